//! Files → runs → Parquet, in parallel, as one commit.
//!
//! `pipeline.rs` does the work; here is what it is asked and what it answers, and that it becomes one commit.

use super::commit::Operation;
use super::digests::KeptDigests;
use super::discover::{Input, Seen};
use super::known::Known;
use super::log::{Log, Snapshot};
use super::pipeline::{Done, Pipeline};
use super::storage::Storage;
use super::transaction::{self, DEFAULT_WAIT, transact_from};
use crate::error::{Error, ErrorFields, Result};
use crate::progress::Progress;
use crate::workers::pool;
use serde::{Serialize, Serializer};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to ingest.
#[derive(Clone, Debug)]
pub struct IngestOptions {
    /// Threads; `None` = one per core.
    pub workers: Option<usize>,
    /// How long to wait while another process of this machine writes to the archive, before
    /// [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub wait: Duration,
    /// What to do with a file that does not decode.
    pub on_error: OnError,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions { workers: None, wait: DEFAULT_WAIT, on_error: OnError::default() }
    }
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
#[derive(serde::Serialize)]
pub struct IngestReport {
    /// Runs that were added.
    pub accepted: u64,
    /// Runs that the archive, or the input itself, already held.
    pub duplicates: u64,
    /// Runs, and files as a whole, that could not be read; each is one of `errors`.
    pub rejected: u64,
    /// Files in folders that hold nothing known.
    pub ignored: u64,
    /// Files that were not read again because they are as they were the last time; only for [`SeenFiles`].
    pub unchanged: u64,
    /// Steps that were added.
    pub num_steps: u64,
    /// Bytes of the files that were read.
    pub num_bytes: u64,
    /// The runs and files that could not be read, in order.
    pub errors: Vec<Rejected>,
}

/// A run that could not be read, or a whole file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The file, or the folder of a dataset or session.
    pub path: PathBuf,
    /// Why.
    pub error: Error,
}

impl Rejected {
    /// Why, in one line without the path; where it is one of several files that is wrong, with its name.
    #[must_use]
    pub fn message(&self) -> String {
        let name = self.error.path().filter(|path| *path != self.path).and_then(Path::file_name);
        match name {
            Some(name) => format!("{}: {}", name.to_string_lossy(), self.error.message()),
            None => self.error.message(),
        }
    }
}

impl Serialize for Rejected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let path = Some(self.path.to_string_lossy());
        ErrorFields { path, message: self.message(), ..self.error.fields() }.serialize(serializer)
    }
}

/// The files that [`Archive::ingest_unseen`](super::Archive::ingest_unseen) has read, by path, size and time of change.
#[derive(Debug, Default)]
pub struct SeenFiles(Seen);

/// Ingests into an archive; `base` is the version that was read last.
pub(super) fn ingest(
    storage: &Storage,
    base: &Snapshot,
    kept: &KeptDigests,
    input: Input<'_>,
    options: &IngestOptions,
    seen: Option<&mut SeenFiles>,
    progress: &dyn Progress,
) -> Result<(IngestReport, Snapshot)> {
    // Says what is not there before anything is waited for.
    input.sources(None)?;
    let before = seen.as_deref().map(|seen| &seen.0);
    if before.is_some() {
        // Whoever looks every minute keeps nobody waiting when there is nothing new.
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
