//! The interface of an export format: what it can hold, and how runs are encoded and written.

use super::losses::Part;
use super::session_plan::SessionPlan;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{JsonlOptions, PackOptions, RunFormat, encode_run};
use crate::run::Run;
use std::io;
use std::path::{Path, PathBuf};

/// The description of an export format.
pub(super) struct TargetFormat {
    pub(super) name: &'static str,
    /// Whether runs can be appended to an existing output.
    pub(super) can_append: bool,
    /// Whether the output is a folder with one file per run.
    pub(super) is_run_files: bool,
    /// Whether encoders use the original run file, if there is one.
    pub(super) uses_original: bool,
    /// Returns which runs the format can hold.
    pub(super) holds: fn(&FormatOptions) -> Holds,
    /// Returns the parts of runs that the format loses.
    pub(super) loses: fn(&FormatOptions, &SessionPlan) -> Vec<Part>,
    pub(super) open: fn(&Path, &FormatOptions, &ExpectedRuns<'_>) -> Result<ExportOutput>,
}

/// The runs that a format can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    All,
    /// Runs whose final board is known, or determined by the score.
    WholeGames,
    /// Runs that came from run files.
    Originals,
}

/// The options of an export, as the writers of the formats take them.
pub(super) struct FormatOptions {
    pub(super) append: bool,
    pub(super) pack: PackOptions,
    pub(super) shard_rows: Option<u64>,
    pub(super) lines: JsonlOptions,
}

/// The facts about the runs that are known before the first run is written.
pub(super) struct ExpectedRuns<'a> {
    pub(super) num_runs: Option<usize>,
    pub(super) session: &'a SessionPlan,
}

/// An open output: its path, and the two stages of writing it.
pub(super) struct ExportOutput {
    pub(super) path: PathBuf,
    pub(super) encoder: Box<dyn RunEncoder>,
    pub(super) sink: Box<dyn RunSink>,
}

/// The parallel stage: encodes each run.
pub(super) trait RunEncoder: Send + Sync {
    fn encode(&self, run: ExportedRun) -> Result<Encoded>;
}

/// The sequential stage: writes encoded runs in order. It accepts what the encoder of its format returns.
pub(super) trait RunSink: Send {
    fn push(&mut self, encoded: Encoded) -> Result<()>;

    /// Publishes the output, and returns the number of files.
    fn finish(self: Box<Self>) -> Result<u64>;
}

/// A run to write.
pub(super) struct ExportedRun {
    pub(super) id: u64,
    pub(super) run: Run,
    /// The original run file, if there is one.
    pub(super) original: Option<(RunFormat, Vec<u8>)>,
    /// The run's id in its source.
    pub(super) source_id: Option<u64>,
    pub(super) game_steps: Option<u32>,
}

/// The result of an [`RunEncoder`].
pub(super) enum Encoded {
    /// The encoder wrote a file.
    Written,
    Bytes(Vec<u8>),
    Run {
        id: u64,
        game_steps: Option<u32>,
        run: Box<Run>,
    },
}

/// An encoder that returns the original run file of each run, or else an a2run2.
pub(super) struct AsFile;

/// An encoder that returns runs unchanged, for a sink that encodes them itself.
pub(super) struct AsRun;

impl RunEncoder for AsFile {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        Ok(Encoded::Bytes(run.file(None)?.1))
    }
}

impl RunEncoder for AsRun {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        Ok(Encoded::Run { id: run.id, game_steps: run.game_steps, run: Box::new(run.run) })
    }
}

impl ExportedRun {
    /// Returns the run as a file in the given format; `None` means the original format, or a2run2. Reuses the
    /// original bytes if their format matches.
    pub(super) fn file(&self, format: Option<RunFormat>) -> Result<(RunFormat, Vec<u8>)> {
        match (&self.original, format) {
            (Some((own, bytes)), None) => Ok((*own, bytes.clone())),
            (Some((own, bytes)), Some(format)) if *own == format => Ok((format, bytes.clone())),
            (_, format) => {
                let format = format.unwrap_or(RunFormat::A2run2);
                Ok((format, encode_run(&self.run, format)?))
            }
        }
    }
}

/// Returns `out/name` if `out` is a folder, or else `out`. Fails if that path exists.
pub(super) fn file_at(out: &Path, name: &str) -> Result<PathBuf> {
    let is_folder = out.is_dir() || out.as_os_str().as_encoded_bytes().ends_with(b"/");
    let path = if is_folder { out.join(name) } else { out.to_path_buf() };
    if path.symlink_metadata().is_ok() {
        return Err(Error::io(&path, io::Error::from_raw_os_error(libc::EEXIST)));
    }
    if is_folder {
        std::fs::create_dir_all(out).map_err(|source| Error::io(out, source))?;
    }
    Ok(path)
}

/// Adds the run to an error about a run that does not fit the format.
pub(super) fn of_run(error: Error, id: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Argument { name, expected, found } => Error::argument(name, expected, format!("run {id}: {found}")),
        other => other.into(),
    }
}
