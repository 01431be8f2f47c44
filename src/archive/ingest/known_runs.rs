//! The decision which runs an ingest adds: runs of files with new content, and runs of a recording with new
//! ids. A twin is a new run of a known game.

use super::digests::{Digests, KeptDigests};
use super::runs_batch::RunInfo;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::RowGroups;
use crate::archive::parquet::row_views::run_facts;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::Result;
use crate::format::RunInput;
use std::collections::BTreeSet;

/// The runs that an archive holds.
pub(in crate::archive) struct KnownRuns {
    pub(in crate::archive) digests: Digests,
    /// The ids of the recording's runs in the archive. `None` if runs are compared by content.
    ids: Option<BTreeSet<u64>>,
}

/// Whether a run or its game is new.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::archive) enum Novelty {
    /// The archive has this run.
    Duplicate,
    /// The archive has another run of the same game.
    Twin,
    New,
}

impl KnownRuns {
    pub(in crate::archive) fn of(
        storage: &Storage,
        manifest: &Manifest,
        input: RunInput<'_>,
        kept: &KeptDigests,
    ) -> Result<KnownRuns> {
        let ids = match input {
            RunInput::Paths(_) | RunInput::Open { recorded_since: None, .. } => None,
            RunInput::Open { runs, recorded_since: Some(since) } => {
                Some(source_ids(storage, manifest, runs.session.as_deref().unwrap_or_default(), since)?)
            }
        };
        Ok(KnownRuns { digests: Digests::of(storage, manifest, kept)?, ids })
    }

    /// Returns whether a run can be skipped early, because its digest is known.
    pub(in crate::archive) fn has(&self, digest: &[u8; 32]) -> bool {
        self.ids.is_none() && self.digests.contains(digest)
    }

    /// Adds a run if it is new. Returns whether the run and its game were new.
    pub(in crate::archive) fn insert(&mut self, run: &RunInfo) -> Novelty {
        let is_known = match (&mut self.ids, run.source_id) {
            (Some(ids), Some(id)) => !ids.insert(id),
            _ => self.digests.contains(&run.digest),
        };
        if is_known {
            return Novelty::Duplicate;
        }
        let is_twin = run.game.is_some_and(|game| self.digests.contains_game(game));
        self.digests.insert(&run.digest);
        if let Some(game) = run.game {
            self.digests.insert_game(game);
        }
        if is_twin { Novelty::Twin } else { Novelty::New }
    }
}

/// Returns the source ids of a session's runs. Looks only at files with run ids from `since` on.
fn source_ids(storage: &Storage, manifest: &Manifest, session: &str, since: u64) -> Result<BTreeSet<u64>> {
    let mut ids = BTreeSet::new();
    let is_new = |file: &&DataFile| u64::from(file.last_run_id) >= since;
    let files: Vec<&DataFile> = manifest.files(TableName::Runs).filter(is_new).collect();
    let mut groups = RowGroups::new(storage, &files);
    while let Some(batch) = groups.next()? {
        let own = run_facts(&batch)?.into_iter().filter(|(run, _)| run.session.as_deref() == Some(session));
        ids.extend(own.filter_map(|(run, _)| run.source_id));
    }
    Ok(ids)
}
