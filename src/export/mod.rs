//! Runs of an archive → files in any format of the field.
//!
//! Entry point is [`Query::export_runs`]: a query names runs by their ids, and they are written in the order of ids.
//! Invariant: what a format has no room for is refused before anything is written, unless the format's description in
//! `docs/formats.md` says that it is left out.

mod session;
mod sink;

use crate::archive::{RunsOf, StoredMeta, StoredRun, each_run};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compression, SourceFormat};
use crate::progress::Progress;
use crate::query::Query;
use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, UInt32Type};
use arrow::util::display::FormatOptions;
use session::Sessions;
use sink::Item;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What runs are exported as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// The very bytes of the run files that came in, each in its format.
    #[default]
    Original,
    /// Run files, A2T1: without values.
    A2t1,
    /// Run files, a2run2.
    A2run2,
    /// One a2pack of run files: those that came in, or else a2run2.
    A2pack,
    /// One pack.dat: without final boards, values of 16 bits.
    PackDat,
    /// A folder with `steps.npy`, `metadata.db` and `manifest.json`: without final boards.
    Npy,
    /// A self-play session: a folder with `steps.npy` and `metadata.db`, without final boards and values.
    Session,
    /// One file of JSON lines.
    Jsonl,
}

impl ExportFormat {
    /// Every format.
    pub const ALL: [ExportFormat; 8] = [
        ExportFormat::Original,
        ExportFormat::A2t1,
        ExportFormat::A2run2,
        ExportFormat::A2pack,
        ExportFormat::PackDat,
        ExportFormat::Npy,
        ExportFormat::Session,
        ExportFormat::Jsonl,
    ];

    /// `"original"`, `"a2t1"`, `"a2run2"`, `"a2pack"`, `"packdat"`, `"npy"`, `"session"` or `"jsonl"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ExportFormat::Original => "original",
            ExportFormat::A2t1 => "a2t1",
            ExportFormat::A2run2 => "a2run2",
            ExportFormat::A2pack => "a2pack",
            ExportFormat::PackDat => "packdat",
            ExportFormat::Npy => "npy",
            ExportFormat::Session => "session",
            ExportFormat::Jsonl => "jsonl",
        }
    }
}

impl fmt::Display for ExportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ExportFormat {
    type Err = Error;

    fn from_str(name: &str) -> Result<ExportFormat> {
        let found = ExportFormat::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| Error::argument("format", ExportFormat::ALL.map(ExportFormat::name).join(", "), name))
    }
}

/// How to export.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExportOptions {
    /// As what.
    pub format: ExportFormat,
    /// Threads; `None` = one per core.
    pub workers: Option<usize>,
    /// Entries of a pack: `None` = 4096.
    pub align: Option<u32>,
    /// Entries of a pack.
    pub compression: Compression,
    /// A dataset or session: so many rows to a file, `steps-00000.npy` and so on; `None` = all in one, `steps.npy`. One that grows goes on
    /// as it is.
    pub shard_rows: Option<u64>,
    /// pack.dat and datasets: add to what is there, if anything is.
    pub append: bool,
    /// JSON lines: one a step instead of one a run.
    pub by_step: bool,
    /// JSON lines: in the shape that DuckDB and others read as it is.
    pub compact: bool,
}

impl ExportOptions {
    /// Into this format, and everything else as usual.
    #[must_use]
    pub fn new(format: ExportFormat) -> ExportOptions {
        ExportOptions { format, ..ExportOptions::default() }
    }

    /// Refuses a run that the format cannot hold.
    fn examine(&self, run: &StoredMeta) -> Result<()> {
        let format = self.format;
        let refuse = |expected: &str, found: String| {
            Err(Error::argument("format", format!("for {format}, {expected}"), format!("run {}, {found}", run.run_id)))
        };
        match format {
            ExportFormat::Original => match run.format {
                Some(SourceFormat::File(_)) => Ok(()),
                Some(other) => refuse("runs that came from run files", format!("from {}", other.name())),
                None => refuse("runs that came from run files", "from another format".into()),
            },
            ExportFormat::PackDat | ExportFormat::Npy | ExportFormat::Session => Ok(()),
            ExportFormat::Jsonl if self.by_step => Ok(()),
            _ if run.final_board.is_none() => refuse("whole games", "which has no final board".into()),
            _ => Ok(()),
        }
    }
}

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct ExportReport {
    /// The file, or the folder of files, that was written.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub path: PathBuf,
    /// Runs.
    pub runs: u64,
    /// Their steps.
    pub num_steps: u64,
    /// Run files, or 1.
    pub num_files: u64,
}

impl Query {
    /// Writes the runs whose ids the query's column `run_id` names, each once and in the order of ids.
    ///
    /// Run files go into the folder `out`, named by their ids (`run-00000042.a2run2`), a thousand to a folder of its own if
    /// there are more than a thousand. Formats of one file are written to `out`, or into it if it is a folder, under the name
    /// that they usually have; they appear whole or not at all. No file is replaced.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when the query has no column `run_id`, or a run does not fit the format;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), when a file is there already for example;
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged).
    ///
    /// # Examples
    /// ```no_run
    /// use a2store::{Archive, ExportFormat, ExportOptions, no_params};
    /// let query = Archive::open("games.a2")?.sql("SELECT run_id FROM runs WHERE max_score >= 50000", no_params())?;
    /// let report = query.export_runs("best.a2pack", &ExportOptions::new(ExportFormat::A2pack), &())?;
    /// println!("{} runs", report.runs);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    pub fn export_runs(
        &self,
        out: impl AsRef<Path>,
        options: &ExportOptions,
        progress: &dyn Progress,
    ) -> Result<ExportReport> {
        let run_ids = self.run_ids(progress)?;
        // Before anything is made.
        let mut sessions = Sessions::default();
        self.archive().examine_runs(&run_ids, progress, |run| {
            sessions.add(run);
            options.examine(run)
        })?;
        let (path, encoder, mut sink) = sink::open(out.as_ref(), options, Some(run_ids.len()), &sessions.plan()?)?;
        let mut report = ExportReport { path, ..ExportReport::default() };
        let written = self.archive().read_runs(
            &run_ids,
            options.workers,
            progress,
            |stored: StoredRun| {
                let original = stored.original()?.map(|(format, bytes)| (format, bytes.into_owned()));
                let StoredRun { run_id, run, source_id, game_steps, .. } = stored;
                let num_steps = run.num_steps() as u64;
                let encoded = encoder.encode(Item { id: run_id.into(), run, original, source_id, game_steps });
                Ok((num_steps, encoded.map_err(|error| of_run(error, run_id.into()))?))
            },
            |run_id, (num_steps, encoded)| {
                report.runs += 1;
                report.num_steps += num_steps;
                sink.push(encoded).map_err(|error| of_run(error, run_id.into()))
            },
        );
        written?;
        report.num_files = sink.finish()?;
        Ok(report)
    }

    /// The ids that the query names, in ascending order.
    fn run_ids(&self, progress: &dyn Progress) -> Result<Vec<u32>> {
        let schema = self.schema();
        let Ok(column) = schema.index_of("run_id") else {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::argument("query", "a column run_id", names.join(", ")));
        };
        let dtype = schema.field(column).data_type();
        if !dtype.is_integer() {
            return Err(Error::argument("run_id", "a column of integers", dtype));
        }
        let options = CastOptions { safe: false, format_options: FormatOptions::default() };
        let mut run_ids = Vec::new();
        let mut stream = self.select(&[column])?.stream_unless_cancelled(progress)?;
        while let Some(batch) = stream.next_unless_cancelled(progress)? {
            let ids = cast_with_options(batch.column(0), &DataType::UInt32, &options)
                .map_err(|error| Error::argument("run_id", "integers of 32 bits", error))?;
            if ids.null_count() > 0 {
                return Err(Error::argument("run_id", "integers", "null"));
            }
            run_ids.extend_from_slice(ids.as_primitive::<UInt32Type>().values());
        }
        run_ids.sort_unstable();
        run_ids.dedup();
        Ok(run_ids)
    }
}

/// Reads run files, packs, pack.dat files, datasets, sessions and logs, and folders of them, and writes their runs in a
/// format, in the order in which they were read and without an archive.
///
/// With [`ExportOptions::append`] a pack.dat or a dataset that is there grows; several inputs are so merged into one.
/// [`ExportFormat::Original`] is refused: to copy files is what others do better.
///
/// # Errors
/// The first file or run that cannot be read, and those of [`Query::export_runs`]. Files of many runs appear whole or not at
/// all, and stay as they were if they were to grow.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (runs, pack) = (folder.path().join("runs"), folder.path().join("pack.dat"));
/// use a2store::{ExportFormat, ExportOptions, SimulateOptions};
/// a2store::simulate(&runs, &SimulateOptions { runs: 4, ..Default::default() }, &())?;
/// let report = a2store::convert([&runs], &pack, &ExportOptions::new(ExportFormat::PackDat), &())?;
/// assert_eq!(report.runs, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn convert<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    out: impl AsRef<Path>,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    if options.format == ExportFormat::Original {
        return Err(Error::argument("format", "another than original, where runs are converted", options.format));
    }
    let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
    refuse_overlap(&paths, out.as_ref(), options)?;
    let (path, encoder, mut sink) = sink::open(out.as_ref(), options, None, &Sessions::default().plan()?)?;
    let mut report = ExportReport { path, ..ExportReport::default() };
    let with_files = matches!(options.format, ExportFormat::A2pack | ExportFormat::Jsonl);
    each_run(&RunsOf::Paths(&paths), options.workers, with_files, progress, |_, (run, original)| {
        let (id, num_steps) = (report.runs, run.num_steps() as u64);
        let encoded = encoder.encode(Item { id, run, original, source_id: None, game_steps: None });
        encoded.and_then(|encoded| sink.push(encoded)).map_err(|error| of_run(error, id))?;
        report.runs += 1;
        report.num_steps += num_steps;
        Ok(())
    })?;
    report.num_files = sink.finish()?;
    Ok(report)
}

/// Refuses to add to what is read, and to write run files where they would be read in turn.
fn refuse_overlap(paths: &[PathBuf], out: &Path, options: &ExportOptions) -> Result<()> {
    let is_folder = matches!(options.format, ExportFormat::A2t1 | ExportFormat::A2run2);
    // The nearest that is there, with links resolved.
    let absolute = std::path::absolute(out).map_err(|source| Error::io(out, source))?;
    let Some(real) = absolute.ancestors().find_map(|path| path.canonicalize().ok()) else { return Ok(()) };
    for path in paths {
        let Ok(input) = path.canonicalize() else { continue };
        let is_same = real.starts_with(&input) || (out.exists() && input.starts_with(&real));
        if (options.append && is_same) || (is_folder && input.is_dir() && real.starts_with(&input)) {
            return Err(Error::argument("out", "a place outside of what is read", out.display()));
        }
    }
    Ok(())
}

/// Names the run that a format has no room for.
fn of_run(error: Error, id: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Argument { name, expected, found } => Error::argument(name, expected, format!("run {id}: {found}")),
        other => other.into(),
    }
}
