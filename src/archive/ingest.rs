//! Ingest: adding runs of files to an archive, in parallel, as one commit. `pipeline.rs` does the work.

use super::checkpoint_writer::write_due;
use super::commit::Operation;
use super::digests::{DigestsBase, KeptDigests};
use super::ingest_report::{IngestOptions, IngestReport, Rejected};
use super::known_runs::KnownRuns;
use super::pipeline::{Ingested, Pipeline};
use super::run_discovery::RunInput;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::transaction::transact_from;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::progress::Progress;
use crate::workers::pool;
use std::time::Instant;
use tracing::{info, warn};

/// Ingests into an archive. `base` is the version that the caller has read.
pub(super) fn ingest(
    storage: &Storage,
    base: &Snapshot,
    kept: &KeptDigests,
    input: RunInput<'_>,
    options: &IngestOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<(IngestReport, Snapshot)> {
    let (started, archive) = (Instant::now(), storage.root().display());
    info!(target: "a2store::ingest", %archive, "ingest begins");
    // Reports a missing path before it waits for the lock.
    input.sources()?;
    let threads = pool("ingest", options.workers)?;
    let outcome = transact_from(storage, Some(base), options.wait, cancel, |log, snapshot| {
        let known = KnownRuns::of(storage, log, snapshot, input, kept)?;
        let mut commit = snapshot.next(Operation::Ingest);
        let pipeline = Pipeline { storage, commit: &commit, strict: options.strict, input };
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
    let Ingested { report, known, .. } = outcome.value;
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
        write_due(storage, &outcome.snapshot, &known.digests);
    }
    kept.keep(DigestsBase::of(&outcome.snapshot), known.digests);
    Ok((report, outcome.snapshot))
}
