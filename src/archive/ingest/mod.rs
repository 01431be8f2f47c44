//! Ingest: adding runs of files to an archive, in parallel, as one commit. `pipeline.rs` does the work.

pub(in crate::archive) mod decode;
pub(in crate::archive) mod digests;
pub(in crate::archive) mod ingest_report;
pub(in crate::archive) mod known_runs;
pub(in crate::archive) mod pipeline;
pub(in crate::archive) mod run_digest;
pub(in crate::archive) mod run_ids;
pub(in crate::archive) mod steps_batch;

use self::ingest_report::{IngestOptions, IngestReport};
use self::known_runs::KnownRuns;
use self::pipeline::{Ingested, Pipeline};
use crate::archive::archive::Archive;
use crate::archive::maintenance::compact::merge_small;
use crate::archive::manifest::transaction::{Patience, transact};
use crate::archive::manifest::{Manifest, Operation};
use crate::error::Result;
use crate::format::{Rejected, RunInput};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use crate::system::workers::pool;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tracing::{info, warn};

impl Archive {
    /// Reads run files and folders, with all their subfolders, and commits the new runs as one version.
    ///
    /// Skips each run whose content the archive already holds, compared by digest. Reports each file that does
    /// not decode, and reads on. Run ids follow the order of the paths and do not depend on the number of
    /// workers. If no run is new, nothing is committed. An interrupted ingest that is repeated ends in the same
    /// archive.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io) if a path does not exist or the file system fails.
    /// [`Conflict`](crate::ErrorKind::Conflict) if another process keeps writing.
    /// [`Cancelled`](crate::ErrorKind::Cancelled). With [`IngestOptions::strict`], also the error of the first bad file.
    /// After each of these errors the archive is unchanged.
    ///
    /// [`Unconfirmed`](crate::ErrorKind::Unconfirmed) if the commit was written but not confirmed: repeat the call.
    pub fn ingest<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        options: &IngestOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<IngestReport> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        self.ingest_input(RunInput::Paths(&paths), options, progress, cancel)
    }

    /// Ingests the runs of an input. A run of a recording is new if its session and id are new; its content is not
    /// compared.
    pub(crate) fn ingest_input(
        &mut self,
        input: RunInput<'_>,
        options: &IngestOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<IngestReport> {
        let (started, archive) = (Instant::now(), self.path().display());
        info!(target: "a2store::ingest", %archive, "ingest begins");
        let (storage, seen, kept) = (&self.storage, &self.manifest, &self.kept);
        // Reports a missing path before it waits for the lock.
        input.sources()?;
        let threads = pool("ingest", options.workers)?;
        let prepare = |newest: &Manifest| {
            let known = KnownRuns::of(storage, newest, input, kept)?;
            let mut next = newest.next(Operation::Ingest);
            let pipeline =
                Pipeline { storage, newest, version: &next, strict: options.strict, input, progress, cancel };
            let mut ingested = pipeline.run(&threads, known)?;
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
        self.manifest = manifest.into();
        Ok(report)
    }
}
