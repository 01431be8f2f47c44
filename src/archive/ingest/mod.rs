//! Ingest: adding runs of files to an archive, in parallel, as one commit. `pipeline.rs` does the work.

pub(in crate::archive) mod decode;
pub(in crate::archive) mod digests;
pub(in crate::archive) mod ingest_report;
pub(in crate::archive) mod known_runs;
pub(in crate::archive) mod pipeline;
pub(in crate::archive) mod run_digest;
pub(in crate::archive) mod run_ids;
pub(in crate::archive) mod runs_batch;
pub(in crate::archive) mod steps_batch;

use self::digests::KeptDigests;
use self::ingest_report::{IngestOptions, IngestReport};
use self::known_runs::KnownRuns;
use self::pipeline::{Ingested, Pipeline};
use crate::archive::maintenance::compact::merge_small;
use crate::archive::manifest::transaction::{Patience, transact};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::storage::Storage;
use crate::error::Result;
use crate::format::{Rejected, RunInput};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use crate::system::workers::pool;
use std::collections::HashSet;
use std::time::Instant;
use tracing::{info, warn};

/// Ingests into an archive. `seen` is the version that the caller has read.
pub(in crate::archive) fn ingest(
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
    let prepare = |newest: &Manifest| {
        let known = KnownRuns::of(storage, newest, input, kept)?;
        let mut next = newest.next(Operation::Ingest);
        let pipeline = Pipeline { storage, newest, version: &next, strict: options.strict, input };
        let mut ingested = pipeline.run(&threads, known, progress, cancel)?;
        if ingested.files.is_empty() {
            return Ok((None, ingested));
        }
        next.next_run_id = ingested.next_run_id;
        next.replace(&HashSet::new(), std::mem::take(&mut ingested.files));
        Ok((Some(next), ingested))
    };
    let holds = |base: &Manifest, newest: &Manifest, ingested: &mut Ingested| {
        ingested.known.follow(storage, base, newest, input)
    };
    let patience = Patience { wait: options.wait, ..Patience::default() };
    let outcome = transact(storage, seen, patience, cancel, prepare, holds)?;
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
    drop(outcome.lock);
    let manifest = merge_small(storage, outcome.manifest, &threads, cancel);
    kept.keep(&manifest, known.digests);
    Ok((report, manifest))
}
