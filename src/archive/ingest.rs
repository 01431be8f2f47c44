//! Files → runs → Parquet, in parallel and in bounded memory.
//!
//! ```text
//!  paths ─▶ windows of files ─▶ decode, verify, digest ─▶ new? id ─▶ row groups ─▶ encode ─▶ file ─▶ commit
//!           in order            in parallel               in order                 in parallel
//! ```
//!
//! While one window's row groups are encoded, the next window is decoded. Memory holds two windows, so it is bounded by
//! the number of workers and not by the input.

use super::log::{DataFile, Log, Operation, Snapshot};
use super::schema::{IngestedRun, RunInfo, RunRow, runs_batch, start_time_fits, steps_batch};
use super::writer::{EncodedRowGroup, FILE_STEPS, ROW_GROUP_STEPS, RowGroupEncoder, TableWriter};
use super::{TableName, schema::Phases};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::{RunFormat, decode_run, encode_run};
use crate::progress::{Progress, Unit, check};
use crate::run::Run;
use arrow::array::AsArray;
use chrono::Utc;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rayon::prelude::*;
use std::collections::HashSet;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// How to ingest.
#[derive(Clone, Debug, Default)]
pub struct IngestOptions {
    /// Threads to decode and encode with; `None` = one per core.
    pub workers: Option<usize>,
    /// What to do with a file that does not decode.
    pub on_error: OnError,
}

/// What to do with a file that does not decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// List it in the report and go on.
    #[default]
    Report,
    /// Stop, and add nothing at all.
    Raise,
}

/// What an ingest did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct IngestReport {
    /// Runs that were added.
    pub accepted: u64,
    /// Runs that the archive, or the input itself, already held.
    pub duplicates: u64,
    /// Files that did not decode; each is one of `errors`.
    pub rejected: u64,
    /// Files in folders whose extension is not that of a run file.
    pub ignored: u64,
    /// Steps that were added.
    pub num_steps: u64,
    /// Bytes of the files that were read.
    pub num_bytes: u64,
    /// The files that did not decode, in order.
    pub errors: Vec<Rejected>,
}

/// A file that did not decode.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub error: Error,
}

/// Extensions of the files that are taken from folders; a file that is named itself is always read.
const EXTENSIONS: [&str; 3] = ["a2run2", "bin", "a2t1"];
/// A larger file is not a run: this is 9 million steps, a thousand times the longest game.
const MAX_RUN_BYTES: u64 = 256 << 20;
/// Input bytes per worker in a window: about one row group of steps with branches.
const WINDOW_BYTES: u64 = 16 << 20;

struct Source {
    path: PathBuf,
    num_bytes: u64,
}

struct Decoded {
    run: Run,
    info: RunInfo,
}

type DecodedFile = (PathBuf, Result<Decoded>);

pub(super) fn ingest(
    root: &Path,
    paths: &[PathBuf],
    options: &IngestOptions,
    progress: &dyn Progress,
) -> Result<(IngestReport, Snapshot)> {
    let log = Log::new(root);
    let _lock = lock(root)?;
    let snapshot = log.replay(None)?;
    let (sources, ignored) = discover(paths)?;
    let workers = options.workers.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .thread_name(|i| format!("a2store-ingest-{i}"))
        .build()
        .map_err(|error| Error::from(std::io::Error::other(error)))?;

    progress.begin("ingest", Unit::Bytes, sources.iter().map(|source| source.num_bytes).sum());
    let outcome = pool.install(|| {
        let job = Job {
            root,
            phases: snapshot.newest().phases,
            on_error: options.on_error,
            known: known_digests(root, &snapshot)?,
            next_run_id: snapshot.newest().next_run_id,
            report: IngestReport {
                ignored,
                num_bytes: sources.iter().map(|source| source.num_bytes).sum(),
                ..IngestReport::default()
            },
            rows: Vec::new(),
            pending: Vec::new(),
            pending_steps: 0,
            writer: None,
            files: Vec::new(),
        };
        job.run(&sources, progress)
    });
    progress.end();
    let (report, files, next_run_id) = outcome?;

    if files.is_empty() {
        return Ok((report, snapshot));
    }
    let mut commit = snapshot.next(Operation::Ingest);
    commit.next_run_id = next_run_id;
    commit.num_runs += report.accepted;
    commit.num_steps += report.num_steps;
    commit.add = files;
    log.append(&commit)?;
    Ok((report, log.replay(Some(commit.version))?))
}

/// Keeps other writers of this machine out until it is dropped, or until the process dies.
fn lock(root: &Path) -> Result<File> {
    let path = root.join(Log::FOLDER).join(".lock");
    if !root.join(Log::FOLDER).is_dir() {
        // Says what is wrong with the folder, better than the lock could.
        Log::new(root).replay(None)?;
    }
    let file = File::options().create(true).append(true).open(&path).map_err(|source| Error::io(&path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let what = "another process is writing to this archive".into();
            Err(ErrorKind::Conflict { path: root.to_path_buf(), what }.into())
        }
        Err(TryLockError::Error(source)) => Err(Error::io(&path, source)),
    }
}

/// The run files among `paths` and in the folders among them, in order, and the number of other files there.
///
/// What a folder holds and cannot be looked at, such as a link that leads nowhere, is a source too: reading it says why.
fn discover(paths: &[PathBuf]) -> Result<(Vec<Source>, u64)> {
    let mut sources = Vec::new();
    let mut ignored = 0;
    for root in paths {
        for entry in WalkDir::new(root).follow_links(true).sort_by_file_name() {
            let as_io = |error: walkdir::Error| {
                let path = error.path().unwrap_or(root).to_path_buf();
                Error::io(path, error.into_io_error().unwrap_or_else(|| std::io::Error::other("a loop of links")))
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) if error.depth() > 0 => {
                    let path = error.path().unwrap_or(root).to_path_buf();
                    sources.push(Source { path, num_bytes: 0 });
                    continue;
                }
                Err(error) => return Err(as_io(error)),
            };
            // A pipe that is named itself can be read as well as a file.
            let named_itself = entry.depth() == 0 && !entry.file_type().is_dir();
            if !named_itself && !entry.file_type().is_file() {
                continue;
            }
            let extension = entry.path().extension().and_then(|extension| extension.to_str());
            if named_itself || extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
                let num_bytes = entry.metadata().map_err(as_io)?.len();
                sources.push(Source { path: entry.into_path(), num_bytes });
            } else {
                ignored += 1;
            }
        }
    }
    Ok((sources, ignored))
}

/// The digests of the runs that an archive holds.
fn known_digests(root: &Path, snapshot: &Snapshot) -> Result<HashSet<[u8; 32]>> {
    let mut known = HashSet::with_capacity(snapshot.newest().num_runs as usize);
    for file in snapshot.files(TableName::Runs) {
        let path = root.join(&file.path);
        let damaged = |error: String| {
            let expected = format!("{} rows with digests", file.num_rows);
            Error::from(ErrorKind::Damaged { path: path.clone(), what: "runs", expected, found: error })
        };
        let reader = File::open(&path).map_err(|source| Error::io(&path, source))?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(reader).map_err(|error| damaged(error.to_string()))?;
        let mask = ProjectionMask::columns(builder.parquet_schema(), ["digest"]);
        for batch in builder.with_projection(mask).build().map_err(|error| damaged(error.to_string()))? {
            let batch = batch.map_err(|error| damaged(error.to_string()))?;
            let digests = batch.column_by_name("digest").and_then(|column| column.as_fixed_size_binary_opt());
            let digests = digests.ok_or_else(|| damaged("another type".into()))?;
            known.extend(digests.iter().flatten().filter_map(|digest| <[u8; 32]>::try_from(digest).ok()));
        }
    }
    Ok(known)
}

struct Job<'a> {
    root: &'a Path,
    phases: Phases,
    on_error: OnError,
    known: HashSet<[u8; 32]>,
    next_run_id: u64,
    report: IngestReport,
    rows: Vec<RunRow>,
    /// Runs that wait for their row group to fill.
    pending: Vec<IngestedRun>,
    pending_steps: usize,
    writer: Option<TableWriter<'a>>,
    files: Vec<DataFile>,
}

impl<'a> Job<'a> {
    fn run(mut self, sources: &[Source], progress: &dyn Progress) -> Result<(IngestReport, Vec<DataFile>, u64)> {
        let window_bytes = WINDOW_BYTES * rayon::current_num_threads() as u64;
        let mut windows = windows(sources, window_bytes);
        let mut decoded = decode(windows.next(), progress);
        loop {
            check(progress)?;
            let next = windows.next();
            let last = next.is_none();
            let groups = self.accept(decoded, last)?;
            let phases = self.phases;
            let encoder = self.writer()?.encoder();
            let (encoded, next) = rayon::join(|| encode(encoder, &groups, phases), || decode(next, progress));
            self.append(encoded?)?;
            self.rows.extend(groups.into_iter().flatten().map(RunRow::from));
            if last {
                break;
            }
            decoded = next;
        }
        check(progress)?;
        self.finish_steps()?;
        if !self.rows.is_empty() {
            let mut writer = TableWriter::new(self.root, TableName::Runs)?;
            let group = writer.encoder().encode(&runs_batch(&self.rows, Utc::now().timestamp_millis())?)?;
            writer.append(group)?;
            self.files.extend(writer.finish()?);
        }
        Ok((self.report, self.files, self.next_run_id))
    }

    /// Gives the new among decoded runs their ids, and takes out the row groups that are full, or all at the end.
    fn accept(&mut self, decoded: Vec<DecodedFile>, last: bool) -> Result<Vec<Vec<IngestedRun>>> {
        let mut groups = Vec::new();
        for (path, outcome) in decoded {
            let Decoded { run, info } = match outcome {
                Ok(decoded) => decoded,
                Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => return Err(error),
                Err(error) if self.on_error == OnError::Raise => return Err(error),
                Err(error) => {
                    self.report.rejected += 1;
                    self.report.errors.push(Rejected { path, error });
                    continue;
                }
            };
            if !self.known.insert(info.digest) {
                self.report.duplicates += 1;
                continue;
            }
            let run_id = u32::try_from(self.next_run_id)
                .map_err(|_| Error::argument("runs", "at most 4294967296 in an archive", self.next_run_id))?;
            self.next_run_id += 1;
            self.report.accepted += 1;
            self.report.num_steps += run.num_steps() as u64;
            self.pending_steps += run.num_steps();
            self.pending.push(IngestedRun { run_id, run, info });
            if self.pending_steps >= ROW_GROUP_STEPS {
                self.cut(&mut groups);
            }
        }
        if last && !self.pending.is_empty() {
            self.cut(&mut groups);
        }
        Ok(groups)
    }

    fn cut(&mut self, groups: &mut Vec<Vec<IngestedRun>>) {
        groups.push(std::mem::take(&mut self.pending));
        self.pending_steps = 0;
    }

    /// The file of steps that is being written.
    fn writer(&mut self) -> Result<&mut TableWriter<'a>> {
        let writer = match self.writer.take() {
            Some(writer) => writer,
            None => TableWriter::new(self.root, TableName::Steps)?,
        };
        Ok(self.writer.insert(writer))
    }

    fn append(&mut self, groups: Vec<EncodedRowGroup>) -> Result<()> {
        for group in groups {
            let writer = self.writer()?;
            writer.append(group)?;
            if writer.num_rows() >= FILE_STEPS {
                self.finish_steps()?;
            }
        }
        Ok(())
    }

    fn finish_steps(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.files.extend(writer.finish()?);
        }
        Ok(())
    }
}

/// Cuts files into windows of about so many bytes, at least one file each.
fn windows(sources: &[Source], num_bytes: u64) -> impl Iterator<Item = &[Source]> {
    let mut rest = sources;
    std::iter::from_fn(move || {
        let mut sum = 0;
        let len = rest
            .iter()
            .position(|source| {
                sum += source.num_bytes;
                sum >= num_bytes
            })
            .map_or(rest.len(), |last| last + 1);
        let (window, after) = rest.split_at(len);
        rest = after;
        (!window.is_empty()).then_some(window)
    })
}

fn decode(window: Option<&[Source]>, progress: &dyn Progress) -> Vec<DecodedFile> {
    let decode_one = |source: &Source| {
        let outcome = check(progress).and_then(|()| decode_file(source));
        progress.advance(source.num_bytes);
        (source.path.clone(), outcome)
    };
    window.unwrap_or_default().par_iter().map(decode_one).collect()
}

fn decode_file(source: &Source) -> Result<Decoded> {
    let path = &source.path;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| Error::io(path, source))?;
    if bytes.len() as u64 > MAX_RUN_BYTES {
        let location = Location { path: Some(path.clone()), ..Location::default() };
        let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
        let found = "a longer file".into();
        return Err(ErrorKind::Decode { location, what: "length of the file", expected, found }.into());
    }
    let (run, format) = decode_run(&bytes).map_err(|error| error.with_path(path))?;
    let encoded = encode_run(&run, format)?;
    let digest = match format {
        RunFormat::A2run2 => blake3::hash(&encoded),
        _ => blake3::hash(&encode_run(&run, RunFormat::A2run2)?),
    };
    // Whatever the columns cannot give back byte by byte is kept as it came.
    let restorable = encoded == bytes && start_time_fits(run.meta().start_unix_s);
    let info = RunInfo {
        digest: digest.into(),
        format,
        source: path.to_string_lossy().into_owned(),
        verified: run.verify().is_ok(),
        original: (!restorable).then_some(bytes),
    };
    Ok(Decoded { run, info })
}

/// Encodes row groups in parallel; a group whose runs have no steps gives none.
fn encode(encoder: &RowGroupEncoder, groups: &[Vec<IngestedRun>], phases: Phases) -> Result<Vec<EncodedRowGroup>> {
    groups
        .par_iter()
        .filter(|runs| runs.iter().any(|ingested| ingested.run.num_steps() > 0))
        .map(|runs| encoder.encode(&steps_batch(runs, phases)?))
        .collect()
}
