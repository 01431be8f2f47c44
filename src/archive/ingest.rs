//! Ingest: adding runs of files to an archive, in parallel, as one commit. `pipeline.rs` does the work.

use super::compact::{Merged, merge_last};
use super::digests::KeptDigests;
use super::ingest_report::{IngestOptions, IngestReport, Rejected};
use super::known_runs::KnownRuns;
use super::manifest::{Manifest, Operation};
use super::pipeline::{Ingested, Pipeline};
use super::run_discovery::RunInput;
use super::run_ids::next_run_id;
use super::storage::Storage;
use super::transaction::transact;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::progress::Progress;
use crate::workers::pool;
use std::time::Instant;
use tracing::{info, warn};

/// Ingests into an archive. `seen` is the version that the caller has read.
pub(super) fn ingest(
    storage: &Storage,
    seen: &Manifest,
    kept: &KeptDigests,
    input: RunInput<'_>,
    options: &IngestOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<(IngestReport, Manifest)> {
    let (started, archive) = (Instant::now(), storage.root().display());
    info!(target: "a2store::ingest", %archive, "ingest begins");
    // Reports a missing path before it waits for the lock.
    input.sources()?;
    let threads = pool("ingest", options.workers)?;
    let outcome = transact(storage, Some(seen), options.wait, cancel, |newest| {
        let known = KnownRuns::of(storage, newest, input, kept)?;
        let mut next = newest.next(Operation::Ingest);
        next.next_run_id = next_run_id(storage, newest)?;
        let pipeline = Pipeline { storage, version: &next, strict: options.strict, input };
        let mut ingested = pipeline.run(&threads, known, progress, cancel)?;
        if ingested.files.is_empty() {
            return Ok((None, ingested));
        }
        next.next_run_id = ingested.next_run_id;
        // New runs need no merge, so they are committed even if an old file is damaged.
        let merged = threads.install(|| merge_last(storage, newest, &next, cancel));
        let Merged { removed, mut added } = merged.unwrap_or_else(|error| {
            warn!(target: "a2store::ingest", %archive, %error, "small files were not merged");
            Merged::default()
        });
        added.append(&mut ingested.files);
        next.replace(&removed, added);
        Ok((Some(next), ingested))
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
    kept.keep(&outcome.manifest, known.digests);
    Ok((report, outcome.manifest))
}
