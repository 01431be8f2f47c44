//! Which runs an ingest adds: of files those whose content is new, of a recording those whose ids are new.

use super::TableName;
use super::digests::{Digests, KeptDigests};
use super::discover::Input;
use super::log::{Log, Snapshot};
use super::read::{not_parquet, read_columns};
use super::schema::RunInfo;
use super::storage::Storage;
use crate::error::Result;
use arrow::array::AsArray;
use arrow::datatypes::UInt64Type;
use std::collections::BTreeSet;

/// The runs that an archive holds.
pub(super) struct Known {
    digests: Digests,
    /// The ids of a recording's runs among them: these alone tell its runs apart.
    ids: Option<BTreeSet<u64>>,
}

impl Known {
    pub(super) fn of(
        storage: &Storage,
        log: &Log,
        snapshot: &Snapshot,
        input: Input<'_>,
        kept: &KeptDigests,
    ) -> Result<Known> {
        let ids = match input {
            Input::Paths(_) => None,
            Input::Recorded { runs, since } => {
                Some(source_ids(storage, snapshot, runs.session.as_deref().unwrap_or_default(), since)?)
            }
        };
        Ok(Known { digests: Digests::of(storage, log, snapshot, kept)?, ids })
    }

    /// Whether a run need not be looked at any further, as one of this digest is there.
    pub(super) fn has(&self, digest: &[u8; 32]) -> bool {
        self.ids.is_none() && self.digests.contains(digest)
    }

    /// Whether the run was not among them; it is now.
    pub(super) fn insert(&mut self, run: &RunInfo) -> bool {
        let is_new_content = self.digests.insert(&run.digest);
        match (&mut self.ids, run.source_id) {
            (Some(ids), Some(id)) => ids.insert(id),
            _ => is_new_content,
        }
    }

    pub(super) fn digests(&self) -> &Digests {
        &self.digests
    }

    pub(super) fn into_digests(self) -> Digests {
        self.digests
    }
}

/// The ids that a session's runs have in it, of runs that the archive got since it had given out `since` run ids.
pub(super) fn source_ids(storage: &Storage, snapshot: &Snapshot, session: &str, since: u64) -> Result<BTreeSet<u64>> {
    let mut ids = BTreeSet::new();
    for file in snapshot.files(TableName::Runs).filter(|file| u64::from(file.last_run_id) >= since) {
        read_columns(storage, file, &["session", "source_id"], |batch| {
            let sessions = batch.column(0).as_string_opt::<i32>();
            let numbers = batch.column(1).as_primitive_opt::<UInt64Type>();
            let (Some(sessions), Some(numbers)) = (sessions, numbers) else {
                return Err(not_parquet(storage, file, "sessions or ids of another type"));
            };
            let own = sessions.iter().zip(numbers).filter(|(found, _)| *found == Some(session));
            ids.extend(own.filter_map(|(_, id)| id));
            Ok(())
        })?;
    }
    Ok(ids)
}
