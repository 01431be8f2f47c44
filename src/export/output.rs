//! The outputs of an export. Writing has two stages: an encoder that runs in parallel, and a sink that takes encoded
//! runs in order.

use super::format::ExportFormat;
use super::losses::Part;
use super::options::ExportOptions;
use crate::error::{Error, Result};
use crate::format::{
    DatasetWriter, MacroxuePackWriter, PackBuilder, PackDatWriter, PackOptions, RunFormat, SessionOptions,
    SessionWriter, encode_run, lines_of,
};
use crate::run::Run;
use crate::system::process::lock;
use crate::system::publish::{Published, Staged, parent};
use serde_json::json;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A run to write.
pub(super) struct RunToWrite {
    pub(super) id: u64,
    pub(super) run: Run,
    /// The run file that the run came from, if the format uses it.
    pub(super) file: Option<(RunFormat, Vec<u8>)>,
    /// The number of steps of the whole game, if the source states it.
    pub(super) game_steps: Option<u32>,
}

/// An open output.
pub(super) struct Output {
    pub(super) path: PathBuf,
    pub(super) encode: Box<dyn Fn(RunToWrite) -> Result<Encoded> + Send + Sync>,
    pub(super) sink: Box<dyn RunSink>,
}

/// A run after the first stage.
pub(super) enum Encoded {
    /// The encoder wrote a file.
    Written,
    Bytes(Vec<u8>),
    /// The sink encodes the run.
    Run(Box<RunToWrite>),
}

/// The second stage. It accepts what the encoder of its output returns.
pub(super) trait RunSink: Send {
    fn push(&mut self, encoded: Encoded) -> Result<()>;

    /// Returns whether the output has this part of all runs, although the format may lose it.
    fn keeps(&self, part: Part) -> bool {
        let _ = part;
        false
    }

    /// Publishes the output.
    fn finish(self: Box<Self>) -> Result<()>;
}

impl Output {
    /// Opens the output. `num_runs` is the number of runs, if it is known.
    pub(super) fn open(out: &Path, options: &ExportOptions, num_runs: Option<usize>) -> Result<Output> {
        let &ExportOptions { shard_rows, by_step, compact, .. } = options;
        let path = out.to_path_buf();
        match options.format {
            ExportFormat::Original => Ok(run_files(out, None, num_runs)),
            ExportFormat::A2t1 => Ok(run_files(out, Some(RunFormat::A2t1), num_runs)),
            ExportFormat::A2run2 => Ok(run_files(out, Some(RunFormat::A2run2), num_runs)),
            ExportFormat::A2pack => {
                let path = file_at(out, "runs.a2pack")?;
                let mut pack = PackOptions { compression: options.compression, ..PackOptions::default() };
                pack.align = options.align.unwrap_or(pack.align);
                let builder = PackBuilder::create(&path, pack)?;
                let encode = Box::new(|run: RunToWrite| Ok(Encoded::Bytes(run.file(None)?.1)));
                Ok(Output { path, encode, sink: Box::new(builder) })
            }
            ExportFormat::PackDat => {
                let path = file_at(out, "pack.dat")?;
                let writer = PackDatWriter::create(&path)?;
                Ok(of_writer(path, writer, |writer, run| writer.push(run), PackDatWriter::finish))
            }
            ExportFormat::Npy => {
                let writer = DatasetWriter::create(out, shard_rows)?;
                Ok(of_writer(path, writer, |writer, run| writer.push(run).map(drop), DatasetWriter::finish))
            }
            ExportFormat::Macroxue => {
                let writer = MacroxuePackWriter::create(out, shard_rows)?;
                Ok(of_writer(path, writer, |writer, run| writer.push(run), MacroxuePackWriter::finish))
            }
            ExportFormat::Session => {
                let (moves, writer, engine) = (options.moves, None, Engine::NoRun);
                let sink = SessionSink { folder: path.clone(), moves, rotate_rows: shard_rows, writer, engine };
                Ok(Output { path, encode: Box::new(as_run), sink: Box::new(sink) })
            }
            ExportFormat::Jsonl => {
                let path = file_at(out, if by_step { "steps.jsonl" } else { "runs.jsonl" })?;
                let out = BufWriter::with_capacity(1 << 20, Staged::new(parent(&path))?);
                let sink = Box::new(LinesFile { out, path: path.clone() });
                let encode = Box::new(move |run: RunToWrite| lines(&run, by_step, compact).map(Encoded::Bytes));
                Ok(Output { path, encode, sink })
            }
        }
    }
}

impl RunToWrite {
    /// Returns the run as a file in the given format; `None` means the original format, or a2run2. Reuses the
    /// original bytes if their format matches.
    fn file(&self, format: Option<RunFormat>) -> Result<(RunFormat, Vec<u8>)> {
        match (&self.file, format) {
            (Some((own, bytes)), format) if format.is_none_or(|format| format == *own) => Ok((*own, bytes.clone())),
            (_, format) => {
                let format = format.unwrap_or(RunFormat::A2run2);
                Ok((format, encode_run(&self.run, format)?))
            }
        }
    }
}

/// Returns the run unchanged, for a sink that encodes it.
fn as_run(run: RunToWrite) -> Result<Encoded> {
    Ok(Encoded::Run(Box::new(run)))
}

/// A sink that passes runs to the writer of a format.
struct WriterSink<W> {
    writer: W,
    push: fn(&mut W, &Run) -> Result<()>,
    finish: fn(W) -> Result<()>,
}

fn of_writer<W: Send + 'static>(
    path: PathBuf,
    writer: W,
    push: fn(&mut W, &Run) -> Result<()>,
    finish: fn(W) -> Result<()>,
) -> Output {
    Output { path, encode: Box::new(as_run), sink: Box::new(WriterSink { writer, push, finish }) }
}

impl<W: Send> RunSink for WriterSink<W> {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run(run) = encoded else { return Ok(()) };
        (self.push)(&mut self.writer, &run.run)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let WriterSink { writer, finish, .. } = *self;
        finish(writer)
    }
}

impl RunSink for PackBuilder {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Bytes(bytes) = encoded else { return Ok(()) };
        self.add_run_bytes(&bytes)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        PackBuilder::finish(*self).map(drop)
    }
}

/// A sink that writes a session. The first run opens it.
struct SessionSink {
    folder: PathBuf,
    /// Whether to write moves; `None` = if the first run has all of its moves.
    moves: Option<bool>,
    rotate_rows: Option<u64>,
    writer: Option<SessionWriter>,
    engine: Engine,
}

/// The engine of the runs so far. A session has one engine.
enum Engine {
    NoRun,
    Of(Option<String>),
    Several,
}

impl SessionSink {
    fn writer(&mut self, has_moves: bool) -> Result<&mut SessionWriter> {
        if self.writer.is_none() {
            let with_action = *self.moves.get_or_insert(has_moves);
            let session = SessionOptions { with_action, rotate_rows: self.rotate_rows };
            self.writer = Some(SessionWriter::create(&self.folder, &[], session)?);
        }
        self.writer.as_mut().ok_or_else(|| Error::other("no session is open"))
    }
}

impl RunSink for SessionSink {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run(run) = encoded else { return Ok(()) };
        let RunToWrite { id, run, game_steps, .. } = *run;
        let game_steps = game_steps.unwrap_or_else(|| run.last_step().map_or(0, |step| step.index.saturating_add(1)));
        self.writer(run.unknown_moves().is_empty())?.push_part(id, &run, Some(game_steps))?;
        let engine = &run.meta().engine;
        match &self.engine {
            Engine::NoRun => self.engine = Engine::Of(engine.clone()),
            Engine::Of(known) if known != engine => self.engine = Engine::Several,
            Engine::Of(_) | Engine::Several => {}
        }
        Ok(())
    }

    fn keeps(&self, part: Part) -> bool {
        match part {
            Part::Moves => self.moves == Some(true),
            Part::Engine => matches!(self.engine, Engine::Of(_)),
            _ => false,
        }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let engine = if let Engine::Of(Some(engine)) = &self.engine { Some(json!({ "tag": engine })) } else { None };
        let writer = self.writer(true)?;
        engine.iter().try_for_each(|model| writer.add_entry("model", model))?;
        self.writer.take().map_or(Ok(()), SessionWriter::finish)
    }
}

/// An export of more run files than this uses subfolders of a thousand ids each.
const FLAT_RUNS: usize = 1000;

/// Returns an output of one file per run; `None` is the original format.
fn run_files(folder: &Path, format: Option<RunFormat>, num_runs: Option<usize>) -> Output {
    let path = folder.to_path_buf();
    let by_thousands = num_runs.is_none_or(|num_runs| num_runs > FLAT_RUNS);
    let sink = RunFiles { folder: path.clone(), written: Arc::default() };
    let (root, written) = (path.clone(), Arc::clone(&sink.written));
    let encode = Box::new(move |run: RunToWrite| {
        let (format, bytes) = run.file(format)?;
        let folder = if by_thousands { root.join(format!("{:05}", run.id / 1000)) } else { root.clone() };
        std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        let path = folder.join(format!("run-{:08}.{}", run.id, format.extension()));
        write_new(&path, &bytes)?;
        lock(&written).push(path);
        Ok(Encoded::Written)
    });
    Output { path, encode, sink: Box::new(sink) }
}

/// The run files of an export, which the encoder writes. Dropping it before the end removes the files.
struct RunFiles {
    folder: PathBuf,
    written: Arc<Mutex<Vec<PathBuf>>>,
}

impl RunSink for RunFiles {
    fn push(&mut self, _: Encoded) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        lock(&self.written).clear();
        // Without a run, the folder is still missing.
        std::fs::create_dir_all(&self.folder).map_err(|source| Error::io(&self.folder, source))
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        for path in lock(&self.written).drain(..) {
            std::fs::remove_file(&path).ok();
            // Only an empty folder can be removed. The folder of the export may be the user's.
            path.parent().filter(|folder| *folder != self.folder).map(std::fs::remove_dir);
        }
    }
}

/// Returns the run as JSON Lines.
fn lines(run: &RunToWrite, by_step: bool, compact: bool) -> Result<Vec<u8>> {
    // A run that no run file can hold gets the identifier of an empty file.
    let is_whole = run.file.is_some() || run.run.missing().is_none();
    let crc = if is_whole { crc32c::crc32c(&run.file(None)?.1) } else { 0 };
    lines_of(&run.run, run.id, crc, by_step, compact)
}

/// A sink that writes lines to one file.
struct LinesFile {
    out: BufWriter<Staged>,
    path: PathBuf,
}

impl RunSink for LinesFile {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Bytes(lines) = encoded else { return Ok(()) };
        self.out.write_all(&lines).map_err(|source| Error::io(&self.path, source))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let LinesFile { out, path } = *self;
        let staged = out.into_inner().map_err(|error| Error::io(&path, error.into_error()))?;
        staged.replace(&path)
    }
}

/// Writes a new file atomically. Fails if the name is taken.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut staged = Staged::new(parent(path))?;
    staged.write_all(bytes).map_err(|source| Error::io(path, source))?;
    match staged.publish_unsynced(path)? {
        Published::New => Ok(()),
        Published::Taken => Err(Error::io(path, io::Error::from_raw_os_error(libc::EEXIST))),
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
