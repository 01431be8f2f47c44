//! The ingest pipeline: it reads and decodes, encodes, and writes at the same time.
//!
//! The input is processed in windows of a few megabytes per thread. While the runs of one window are encoded,
//! the next window is read and decoded, and the writer thread writes the window before:
//!
//! ```text
//!   discover ─▶ decode ─▶ accept (ids in the order of paths) ─▶ encode row groups ─▶ write, sync, verify, publish
//!               window n+1                                      window n             window n-1
//! ```
//!
//! Memory holds two windows, the unwritten row groups, one row group of `runs` and a digest of each run. It
//! depends on the number of threads and hardly on the size of the input; docs/archive.md has the figures.

use super::decode::{IngestedRun, decode_source};
use super::ingest_report::IngestReport;
use super::known_runs::{KnownRuns, Novelty};
use super::run_ids::RunIds;
use super::steps_batch::steps_batch;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::run_rows::{RunRow, runs_batch};
use crate::archive::parquet::writer::{EncodedRowGroup, FILE_STEPS, ROW_GROUP_STEPS, RowGroupEncoder};
use crate::archive::parquet::writer_thread::{RowGroupSender, TransactionFiles};
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{ErrorKind, Result};
use crate::format::inputs::{DiscoveredRun, RunDiscovery, decode_next};
use crate::format::{Rejected, RunInput};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use chrono::{DateTime, Utc};
use rayon::ThreadPool;
use rayon::prelude::*;

/// The number of input bytes per thread in a window: about one row group of steps with branches.
const WINDOW_BYTES: u64 = 12 << 20;
/// The minimum number of rows of a full row group of `runs`. It is also full from `ROW_GROUP_RUNS_BYTES` bytes of
/// text and files on.
const ROW_GROUP_RUNS: usize = 1 << 14;
const ROW_GROUP_RUNS_BYTES: usize = 16 << 20;

/// The input of an ingest, and where it goes.
pub(in crate::archive) struct Pipeline<'a> {
    pub(in crate::archive) storage: &'a Storage,
    pub(in crate::archive) newest: &'a Manifest,
    /// The version that the ingest makes.
    pub(in crate::archive) version: &'a Manifest,
    pub(in crate::archive) strict: bool,
    pub(in crate::archive) input: RunInput<'a>,
    pub(in crate::archive) progress: &'a dyn Progress,
    pub(in crate::archive) cancel: &'a CancellationToken,
}

/// The result of a pipeline.
pub(in crate::archive) struct Ingested {
    pub(in crate::archive) report: IngestReport,
    /// All runs of the archive, including the new ones.
    pub(in crate::archive) known: KnownRuns,
    pub(in crate::archive) next_run_id: u64,
    /// Published files that no manifest names yet.
    pub(in crate::archive) files: Vec<DataFile>,
}

impl Pipeline<'_> {
    pub(in crate::archive) fn run(&self, pool: &ThreadPool, known: KnownRuns) -> Result<Ingested> {
        let mut sources = self.input.sources()?;
        sources.is_strict = self.strict;
        let Pipeline { storage, version, progress, cancel, .. } = *self;
        let output = TransactionFiles { storage, version, model: None, file_rows: FILE_STEPS };
        let (ingested, files) = self.input.report("ingest", progress, cancel, || {
            output.write(cancel, |sender| pool.install(|| IngestJob::new(self, known, sender)?.run(&mut sources)))
        })?;
        Ok(Ingested { files, ..ingested })
    }
}

struct IngestJob<'a> {
    pipeline: &'a Pipeline<'a>,
    sender: &'a RowGroupSender,
    steps: RowGroupEncoder,
    runs: RowGroupEncoder,
    ingested_at_ms: i64,
    ids: RunIds<'a>,
    ingested: Ingested,
    /// Runs whose steps are encoded.
    rows: Vec<RunRow>,
    rows_bytes: usize,
    /// Runs of the next, unfinished row group.
    pending: Vec<IngestedRun>,
    pending_steps: usize,
}

type DecodedSource = (DiscoveredRun, Result<Option<Box<IngestedRun>>>);

impl<'a> IngestJob<'a> {
    fn new(pipeline: &'a Pipeline<'a>, known: KnownRuns, sender: &'a RowGroupSender) -> Result<IngestJob<'a>> {
        let (ids, next_run_id) = (RunIds::new(pipeline.storage, pipeline.newest)?, pipeline.newest.next_run_id);
        Ok(IngestJob {
            pipeline,
            sender,
            steps: RowGroupEncoder::new(TableName::Steps)?,
            runs: RowGroupEncoder::new(TableName::Runs)?,
            ingested_at_ms: DateTime::<Utc>::from(pipeline.storage.now()).timestamp_millis(),
            ids,
            ingested: Ingested { report: IngestReport::default(), known, next_run_id, files: Vec::new() },
            rows: Vec::new(),
            rows_bytes: 0,
            pending: Vec::new(),
            pending_steps: 0,
        })
    }

    fn run(mut self, sources: &mut RunDiscovery<'_>) -> Result<Ingested> {
        let Pipeline { progress, cancel, .. } = *self.pipeline;
        let window_bytes = WINDOW_BYTES * rayon::current_num_threads() as u64;
        let next_window = |known: &KnownRuns, sources: &mut RunDiscovery<'_>| {
            decode_next(sources, window_bytes, progress, cancel, |source| decode_source(source, known))
        };
        let mut decoded = next_window(&self.ingested.known, sources)?;
        loop {
            cancel.check()?;
            let last = decoded.is_empty();
            let groups = self.accept(decoded, last)?;
            let (encoded, next) = rayon::join(|| self.encode(&groups), || next_window(&self.ingested.known, sources));
            self.send(groups, encoded?)?;
            if last {
                self.send_rows()?;
                break;
            }
            decoded = next?;
        }
        cancel.check()?;
        self.ingested.report.ignored = std::mem::take(&mut sources.ignored);
        Ok(self.ingested)
    }

    /// Sends row groups of steps to the writer, and collects the rows of their runs.
    fn send(&mut self, groups: Vec<Vec<IngestedRun>>, encoded: Vec<EncodedRowGroup>) -> Result<()> {
        for group in encoded {
            self.sender.send(TableName::Steps, group)?;
        }
        for IngestedRun { row, .. } in groups.into_iter().flatten() {
            self.rows_bytes += row.num_bytes();
            self.rows.push(row);
            if self.rows.len() == ROW_GROUP_RUNS || self.rows_bytes >= ROW_GROUP_RUNS_BYTES {
                self.send_rows()?;
            }
        }
        Ok(())
    }

    /// Encodes the collected rows of `runs` and sends them to the writer.
    fn send_rows(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let batch = runs_batch(&std::mem::take(&mut self.rows), self.ingested_at_ms)?;
        self.rows_bytes = 0;
        self.sender.send(TableName::Runs, self.runs.encode([Ok(batch)], self.pipeline.cancel)?)
    }

    /// Assigns ids to the new runs in `decoded`. Returns the full row groups, and at the end also the
    /// last one.
    fn accept(&mut self, decoded: Vec<DecodedSource>, last: bool) -> Result<Vec<Vec<IngestedRun>>> {
        let mut accepted = Vec::new();
        for (source, outcome) in decoded {
            let report = &mut self.ingested.report;
            report.num_bytes += source.num_bytes;
            match outcome {
                Ok(None) => report.duplicates += 1,
                Ok(Some(decoded)) => {
                    let novelty = self.ingested.known.insert(&decoded.row);
                    report.duplicates += u64::from(novelty == Novelty::Duplicate);
                    report.twins += u64::from(novelty == Novelty::Twin);
                    if novelty != Novelty::Duplicate {
                        accepted.push(*decoded);
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => return Err(error),
                Err(error) if self.pipeline.strict => return Err(error),
                Err(error) => {
                    report.rejected += 1;
                    report.errors.push(Rejected::new(source.path.clone(), error));
                }
            }
        }
        self.begin_ids(accepted.len() as u64)?;
        let mut groups = Vec::new();
        for run in accepted {
            self.add(run);
            if self.pending_steps >= ROW_GROUP_STEPS {
                self.cut(&mut groups);
            }
        }
        if last && !self.pending.is_empty() {
            self.cut(&mut groups);
        }
        Ok(groups)
    }

    /// Takes ids for the next runs. If another writer has taken ids in between, the next runs begin new files, so that
    /// the id ranges of files do not overlap.
    fn begin_ids(&mut self, count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let first = self.ids.take(count, self.pipeline.cancel)?;
        if self.ingested.report.accepted > 0 && first != self.ingested.next_run_id {
            let mut groups = Vec::new();
            self.cut(&mut groups);
            let encoded = self.encode(&groups)?;
            self.send(groups, encoded)?;
            self.send_rows()?;
            self.sender.end_files()?;
        }
        self.ingested.next_run_id = first;
        Ok(())
    }

    /// Adds a run to the next row group, under the next id.
    fn add(&mut self, mut ingested: IngestedRun) {
        ingested.row.run_id = self.ingested.next_run_id as u32;
        self.ingested.next_run_id += 1;
        self.ingested.report.accepted += 1;
        self.ingested.report.num_steps += ingested.run.num_steps() as u64;
        self.pending_steps += ingested.run.num_steps();
        self.pending.push(ingested);
    }

    fn cut(&mut self, groups: &mut Vec<Vec<IngestedRun>>) {
        groups.push(std::mem::take(&mut self.pending));
        self.pending_steps = 0;
    }

    /// Encodes row groups in parallel. A group whose runs have no steps is left out.
    fn encode(&self, groups: &[Vec<IngestedRun>]) -> Result<Vec<EncodedRowGroup>> {
        groups
            .par_iter()
            .filter(|runs| runs.iter().any(|ingested| ingested.run.num_steps() > 0))
            .map(|runs| {
                let parts = parts(runs).map(|part| {
                    let part = part.iter().map(|ingested| (ingested.row.run_id, &ingested.run));
                    steps_batch(&part.collect::<Vec<_>>(), self.pipeline.version.phases)
                });
                self.steps.encode(parts, self.pipeline.cancel)
            })
            .collect()
    }
}

/// Splits runs into parts whose columns fit in a processor's cache.
fn parts(runs: &[IngestedRun]) -> impl Iterator<Item = &[IngestedRun]> {
    const PART_STEPS: usize = 1 << 14;
    let mut num_steps = 0;
    runs.chunk_by(move |ingested, _| {
        num_steps += ingested.run.num_steps();
        let is_full = num_steps >= PART_STEPS;
        num_steps = if is_full { 0 } else { num_steps };
        !is_full
    })
}
