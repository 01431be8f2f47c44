//! Ingest: adding runs of files to an archive, in parallel, as one commit.
//!
//! This file has the options, the report and the commit. `pipeline.rs` does the work.

use super::commit::Operation;
use super::digests::KeptDigests;
use super::discover::{Input, Seen};
use super::known::Known;
use super::log::{Log, Snapshot};
use super::pipeline::{Done, Pipeline};
use super::storage::Storage;
use super::transaction::{self, DEFAULT_WAIT, transact_from};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::workers::pool;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of [`Archive::ingest`](super::Archive::ingest).
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
    /// The longest wait for another process of this machine that writes to the archive. Then the call fails
    /// with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub wait: Duration,
    /// What to do with a file that does not decode.
    pub on_error: OnError,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions { workers: None, wait: DEFAULT_WAIT, on_error: OnError::default() }
    }
}

/// The reaction to a file that does not decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Lists the file in the report and continues.
    #[default]
    Report,
    /// Stops and adds nothing.
    Raise,
}

/// The result of an ingest.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct IngestReport {
    /// The number of runs added.
    pub accepted: u64,
    /// The number of runs skipped because the archive or the earlier input holds them.
    pub duplicates: u64,
    /// The number of runs and whole files that could not be read. Each has an entry in `errors`.
    pub rejected: u64,
    /// The number of files in folders whose content is unknown.
    pub ignored: u64,
    /// The number of files skipped because they have not changed since the last ingest; only for [`SeenFiles`].
    pub unchanged: u64,
    /// The number of steps added.
    pub num_steps: u64,
    /// The number of bytes read.
    pub num_bytes: u64,
    /// The runs and files that could not be read, in order.
    pub errors: Vec<Rejected>,
}

/// A run or a whole file that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The file, or the folder of a dataset or session.
    pub path: PathBuf,
    /// The reason.
    pub error: Error,
}

impl Rejected {
    /// Returns the reason in one line, without the path. If one file of a folder is bad, the line begins with
    /// its name.
    #[must_use]
    pub fn message(&self) -> String {
        let name = self.error.path().filter(|path| *path != self.path).and_then(Path::file_name);
        match name {
            Some(name) => format!("{}: {}", name.to_string_lossy(), self.error.message()),
            None => self.error.message(),
        }
    }
}

/// The files that [`Archive::ingest_unseen`](super::Archive::ingest_unseen) has read, by path, size and time of
/// change.
#[derive(Debug, Default)]
pub struct SeenFiles(Seen);

/// Ingests into an archive. `base` is the version that the caller has read.
pub(super) fn ingest(
    storage: &Storage,
    base: &Snapshot,
    kept: &KeptDigests,
    input: Input<'_>,
    options: &IngestOptions,
    seen: Option<&mut SeenFiles>,
    progress: &dyn Progress,
) -> Result<(IngestReport, Snapshot)> {
    // Reports a missing path before it waits for the lock.
    input.sources(None)?;
    let before = seen.as_deref().map(|seen| &seen.0);
    if before.is_some() {
        // If no file is new, it takes no lock, so frequent calls never block other writers.
        let mut sources = input.sources(before)?;
        if sources.window(1, progress)?.is_empty() {
            let (ignored, unchanged, passed) = (sources.ignored, sources.unchanged, sources.passed);
            if let Some(seen) = seen {
                passed.into_iter().for_each(|file| seen.0.add(file));
            }
            let report = IngestReport { ignored, unchanged, ..IngestReport::default() };
            return Ok((report, Log::new(storage).replay_from(Some(base))?));
        }
    }
    let threads = pool("ingest", options.workers)?;
    let outcome = transact_from(storage, Some(base), options.wait, progress, |log, snapshot| {
        let known = Known::of(storage, log, snapshot, input, kept)?;
        let mut commit = snapshot.next(Operation::Ingest);
        let pipeline = Pipeline { storage, commit: &commit, on_error: options.on_error, input, seen: before };
        let done = pipeline.run(&threads, known, progress)?;
        if done.files.is_empty() {
            return Ok((None, done));
        }
        commit.next_run_id = done.next_run_id;
        commit.num_runs += done.report.accepted;
        commit.num_steps += done.report.num_steps;
        commit.add.clone_from(&done.files);
        Ok((Some(commit), done))
    })?;
    let Done { report, known, read, .. } = outcome.value;
    if outcome.committed {
        transaction::checkpoint(storage, &outcome.snapshot, known.digests());
    }
    kept.keep(&outcome.snapshot, known.into_digests());
    if let Some(seen) = seen {
        read.into_iter().for_each(|file| seen.0.add(file));
    }
    Ok((report, outcome.snapshot))
}
