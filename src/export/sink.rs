//! The two stages of an export: encoders work on runs in parallel, and sinks write the results in order.

use super::session::Plan;
use super::{ExportFormat, ExportOptions};
use crate::error::{Error, Result};
use crate::format::{
    DatasetOptions, DatasetWriter, JsonlOptions, PackBuilder, PackDatWriter, PackOptions, RunFormat, SessionOptions,
    SessionWriter, encode_run, put_run, put_steps, run_uuid,
};
use crate::publish::{Published, Staged};
use crate::run::Run;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An export of more run files than this uses subfolders of a thousand ids each.
const FLAT_RUNS: usize = 1000;

/// A run to write.
pub(super) struct Item {
    pub(super) id: u64,
    pub(super) run: Run,
    /// The original run file, if there is one.
    pub(super) original: Option<(RunFormat, Vec<u8>)>,
    /// The run's id in its source.
    pub(super) source_id: Option<u64>,
    pub(super) game_steps: Option<u32>,
}

/// The parallel stage: encodes each run.
pub(super) enum Encoder {
    /// Writes the run's file.
    Files {
        folder: PathBuf,
        by_thousands: bool,
        /// `None` = the original format.
        format: Option<RunFormat>,
    },
    /// Encodes the run's file.
    Bytes,
    /// Encodes the run's lines.
    Lines(JsonlOptions),
    /// Passes the run on unchanged.
    Runs,
    /// Passes the run on with its id: the id in the original session, or the archive's id.
    OfSession { as_it_was: bool },
}

/// The result of an [`Encoder`].
pub(super) enum Encoded {
    Written,
    Bytes(Vec<u8>),
    Run(Box<Run>),
    OfSession { id: u64, num_steps: Option<u32>, run: Box<Run> },
}

/// The sequential stage: writes encoded runs in order.
#[allow(clippy::large_enum_variant)] // Only one exists.
pub(super) enum Sink {
    Files(u64),
    Pack(PackBuilder),
    PackDat(PackDatWriter),
    Npy(DatasetWriter),
    Session(SessionWriter),
    Lines(io::BufWriter<Staged>, PathBuf),
}

/// Opens the output. Returns its path and the two stages.
pub(super) fn open(
    out: &Path,
    options: &ExportOptions,
    num_runs: Option<usize>,
    session: &Plan,
) -> Result<(PathBuf, Encoder, Sink)> {
    if options.append && !matches!(options.format, ExportFormat::PackDat | ExportFormat::Npy) {
        return Err(Error::argument("format", "packdat or npy with append", options.format));
    }
    let files = |format| {
        std::fs::create_dir_all(out).map_err(|source| Error::io(out, source))?;
        let encoder = Encoder::Files {
            folder: out.to_path_buf(),
            by_thousands: num_runs.is_none_or(|num_runs| num_runs > FLAT_RUNS),
            format,
        };
        Ok((out.to_path_buf(), encoder, Sink::Files(0)))
    };
    match options.format {
        ExportFormat::Original => files(None),
        ExportFormat::A2t1 => files(Some(RunFormat::A2t1)),
        ExportFormat::A2run2 => files(Some(RunFormat::A2run2)),
        ExportFormat::A2pack => {
            let path = file_at(out, "runs.a2pack")?;
            let mut pack = PackOptions { compression: options.compression, ..PackOptions::default() };
            pack.align = options.align.unwrap_or(pack.align);
            let builder = PackBuilder::create(&path, pack)?;
            Ok((path, Encoder::Bytes, Sink::Pack(builder)))
        }
        ExportFormat::PackDat => {
            let there = if out.is_dir() { out.join("pack.dat") } else { out.to_path_buf() };
            let (path, writer) = match options.append && there.exists() {
                true => (there.clone(), PackDatWriter::append(&there)?),
                false => {
                    let path = file_at(out, "pack.dat")?;
                    (path.clone(), PackDatWriter::create(&path)?)
                }
            };
            Ok((path, Encoder::Runs, Sink::PackDat(writer)))
        }
        ExportFormat::Npy => {
            let writer = match options.append && out.join("metadata.db").exists() {
                true => DatasetWriter::append(out)?,
                false => DatasetWriter::create(out, DatasetOptions::default().with_shard_rows(options.shard_rows))?,
            };
            Ok((out.to_path_buf(), Encoder::Runs, Sink::Npy(writer)))
        }
        ExportFormat::Session => {
            let shards = SessionOptions::default().with_rotate_rows(options.shard_rows);
            let writer = SessionWriter::create_as(out, &session.entries, shards.with_action(session.with_action))?;
            Ok((out.to_path_buf(), Encoder::OfSession { as_it_was: session.as_it_was }, Sink::Session(writer)))
        }
        ExportFormat::Jsonl => {
            let path = file_at(out, if options.by_step { "steps.jsonl" } else { "runs.jsonl" })?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let staged = Staged::new(folder.unwrap_or(Path::new(".")))?;
            let lines = JsonlOptions { by_step: options.by_step, compact: options.compact, ..JsonlOptions::default() };
            Ok((path.clone(), Encoder::Lines(lines), Sink::Lines(io::BufWriter::with_capacity(1 << 20, staged), path)))
        }
    }
}

/// Returns `out/name` if `out` is a folder, or else `out`. Fails if that path exists.
fn file_at(out: &Path, name: &str) -> Result<PathBuf> {
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

impl Encoder {
    pub(super) fn encode(&self, item: Item) -> Result<Encoded> {
        match self {
            Encoder::Files { folder, by_thousands, format } => {
                let (format, bytes) = item.file(*format)?;
                let mut folder = folder.clone();
                if *by_thousands {
                    folder.push(format!("{:05}", item.id / 1000));
                    std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
                }
                let path = folder.join(format!("run-{:08}.{}", item.id, format.extension()));
                write_new(&path, &bytes)?;
                Ok(Encoded::Written)
            }
            Encoder::Bytes => Ok(Encoded::Bytes(item.file(None)?.1)),
            Encoder::Lines(options) => {
                // A run that no run file can hold gets the identifier of an empty file.
                let whole = item.original.is_some() || item.run.missing().is_none();
                let crc = if whole { crc32c::crc32c(&item.file(None)?.1) } else { 0 };
                let mut lines = Vec::new();
                let uuid = run_uuid(crc, item.id);
                match options.by_step {
                    true => put_steps(&mut lines, &item.run, 0..item.run.num_steps(), item.id, &uuid, options.compact),
                    false => put_run(&mut lines, &item.run, item.id, &uuid, options.compact)?,
                }
                Ok(Encoded::Bytes(lines))
            }
            Encoder::Runs => Ok(Encoded::Run(Box::new(item.run))),
            Encoder::OfSession { as_it_was } => {
                let last = item.run.num_steps().checked_sub(1).and_then(|last| item.run.step(last));
                let num_steps = Some(last.map_or(0, |step| step.index.saturating_add(1)));
                let (id, num_steps) = match (as_it_was, item.source_id) {
                    (true, Some(id)) => (id, item.game_steps),
                    _ => (item.id, num_steps),
                };
                Ok(Encoded::OfSession { id, num_steps, run: Box::new(item.run) })
            }
        }
    }
}

impl Item {
    /// Returns the run as a file in the given format; `None` means the original format, or a2run2. Reuses the
    /// original bytes if their format matches.
    fn file(&self, format: Option<RunFormat>) -> Result<(RunFormat, Vec<u8>)> {
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

/// Writes a new file atomically. Fails if the name is taken.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut staged = Staged::new(path.parent().unwrap_or(Path::new(".")))?;
    staged.write_all(bytes).map_err(|source| Error::io(path, source))?;
    match staged.publish_unsynced(path)? {
        Published::New => Ok(()),
        Published::Taken => Err(Error::io(path, io::Error::from_raw_os_error(libc::EEXIST))),
    }
}

impl Sink {
    pub(super) fn push(&mut self, encoded: Encoded) -> Result<()> {
        match (self, encoded) {
            (Sink::Files(num_files), _) => *num_files += 1,
            (Sink::Pack(builder), Encoded::Bytes(bytes)) => builder.add_run_bytes(&bytes)?,
            (Sink::PackDat(writer), Encoded::Run(run)) => drop(writer.push(&run)?),
            (Sink::Npy(writer), Encoded::Run(run)) => drop(writer.push(&run)?),
            (Sink::Session(writer), Encoded::OfSession { id, num_steps, run }) => {
                writer.push_part(id, &run, num_steps)?
            }
            (Sink::Lines(file, path), Encoded::Bytes(lines)) => {
                file.write_all(&lines).map_err(|source| Error::io(path, source))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Publishes the output, and returns the number of files.
    pub(super) fn finish(self) -> Result<u64> {
        match self {
            Sink::Files(num_files) => return Ok(num_files),
            Sink::Pack(builder) => drop(builder.finish()?),
            Sink::PackDat(writer) => drop(writer.finish()?),
            Sink::Npy(writer) => drop(writer.finish()?),
            Sink::Session(writer) => writer.finish()?,
            Sink::Lines(file, path) => {
                let staged = file.into_inner().map_err(|error| Error::io(&path, error.into_error()))?;
                staged.replace(&path)?;
            }
        }
        Ok(1)
    }
}
