//! Ingest: adding runs of files to an archive, in parallel, as one commit. `pipeline.rs` does the work.

use super::candidate_files::SeenFiles;
use super::checkpoint_writer::write_due;
use super::commit::Operation;
use super::digests::{DigestsBase, KeptDigests};
use super::ingest_report::{IngestOptions, IngestReport, OnError, Rejected};
use super::known_runs::KnownRuns;
use super::log::Log;
use super::pipeline::{Ingested, Pipeline};
use super::run_discovery::IngestInput;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::transaction::transact_from;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::progress::Progress;
use crate::workers::pool;
use std::time::Instant;
use tracing::{info, warn};

/// An archive at the version that the caller has read.
pub(super) struct IngestBase<'a> {
    pub(super) storage: &'a Storage,
    pub(super) snapshot: &'a Snapshot,
    pub(super) kept: &'a KeptDigests,
}

/// Ingests into an archive.
pub(super) fn ingest(
    base: &IngestBase<'_>,
    input: IngestInput<'_>,
    options: &IngestOptions,
    seen: Option<&mut SeenFiles>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<(IngestReport, Snapshot)> {
    let &IngestBase { storage, snapshot: base, kept } = base;
    let (started, archive) = (Instant::now(), storage.root().display());
    info!(target: "a2store::ingest", %archive, "ingest begins");
    // Reports a missing path before it waits for the lock.
    input.sources(None)?;
    let before = seen.as_deref();
    if before.is_some() {
        // If no file is new, it takes no lock, so frequent calls never block other writers.
        let mut sources = input.sources(before)?.strict(options.on_error == OnError::Raise);
        if sources.window(1, cancel)?.is_empty() {
            let (ignored, unchanged, passed) = (sources.ignored, sources.unchanged, sources.passed);
            if let Some(seen) = seen {
                passed.into_iter().for_each(|file| seen.add(file));
            }
            let report = IngestReport { ignored, unchanged, ..IngestReport::default() };
            return Ok((report, Log::new(storage).replay_from(Some(base))?));
        }
    }
    let threads = pool("ingest", options.workers)?;
    let outcome = transact_from(storage, Some(base), options.wait, cancel, |log, snapshot, lost: Option<Ingested>| {
        if let Some(Ingested { known, base, .. }) = lost {
            kept.keep(base, known.without_added());
        }
        let known = KnownRuns::of(storage, log, snapshot, input, kept)?;
        let mut commit = snapshot.next(Operation::Ingest);
        let pipeline = Pipeline {
            storage,
            commit: &commit,
            base: DigestsBase::of(snapshot),
            on_error: options.on_error,
            on_twin: options.on_twin,
            input,
            seen: before,
        };
        let ingested = pipeline.run(&threads, known, progress, cancel)?;
        if ingested.files.is_empty() {
            return Ok((None, ingested));
        }
        commit.next_run_id = ingested.next_run_id;
        commit.num_runs += ingested.report.accepted;
        commit.num_steps += ingested.report.num_steps;
        commit.add.clone_from(&ingested.files);
        Ok((Some(commit), ingested))
    })?;
    let Ingested { report, known, read, .. } = outcome.value;
    for Rejected { path, error } in &report.errors {
        warn!(target: "a2store::ingest", path = %path.display(), reason = error.message(), "rejected an input");
    }
    info!(
        target: "a2store::ingest",
        %archive,
        accepted = report.accepted,
        duplicates = report.duplicates,
        twins = report.twins,
        rejected = report.rejected,
        steps = report.num_steps,
        bytes = report.num_bytes,
        seconds = started.elapsed().as_secs_f64(),
        "ingest ended"
    );
    if outcome.committed {
        write_due(storage, &outcome.snapshot, known.digests());
    }
    kept.keep(DigestsBase::of(&outcome.snapshot), known.into_digests());
    if let Some(seen) = seen {
        read.into_iter().for_each(|file| seen.add(file));
    }
    Ok((report, outcome.snapshot))
}
