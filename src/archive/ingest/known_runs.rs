//! The decision which runs an ingest adds: runs of files with new content, and runs of a recording with new
//! ids. A twin is a new run of a known game.

use super::digests::{Digests, KeptDigests, digests_of, key_of_game, read_digests, short};
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::row_groups;
use crate::archive::parquet::run_rows::{RunRow, run_rows};
use crate::archive::schema::table_schema;
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
    /// The runs that were added: the first bytes of their digests, or their ids.
    added: Vec<u128>,
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
        let ids = recorded_ids(storage, manifest, input)?;
        Ok(KnownRuns { digests: digests_of(storage, manifest, kept)?, ids, added: Vec::new() })
    }

    /// Adds the runs that a later version has and `base` does not have. Returns `false` if some of them were added to
    /// these runs as new ones.
    pub(in crate::archive) fn follow(
        &mut self,
        storage: &Storage,
        base: &Manifest,
        newest: &Manifest,
        input: RunInput<'_>,
    ) -> Result<bool> {
        let before = base.paths();
        let mut later = newest.clone();
        later.files.retain(|file| !before.contains(&*file.path));
        let mut digests = Digests::default();
        read_digests(storage, later.files(TableName::Runs), &mut digests)?;
        let ids = recorded_ids(storage, &later, input)?.unwrap_or_default();
        let is_known = |key: &u128| digests.contains(key) || u64::try_from(*key).is_ok_and(|id| ids.contains(&id));
        let is_apart = !self.added.iter().any(is_known);
        self.digests.extend(digests);
        Ok(is_apart)
    }

    /// Returns whether a run can be skipped early, because its digest is known.
    pub(in crate::archive) fn has(&self, digest: &[u8; 32]) -> bool {
        self.ids.is_none() && self.digests.contains(&short(digest))
    }

    /// Adds a run if it is new. Returns whether the run and its game were new.
    pub(in crate::archive) fn insert(&mut self, run: &RunRow) -> Novelty {
        let digest = short(run.digest);
        let (is_known, key) = match (&mut self.ids, run.source_id) {
            (Some(ids), Some(id)) => (!ids.insert(id), id.into()),
            _ => (self.digests.contains(&digest), digest),
        };
        if is_known {
            return Novelty::Duplicate;
        }
        self.digests.insert(digest);
        self.added.push(key);
        let is_twin = run.game.is_some_and(|game| !self.digests.insert(key_of_game(game)));
        if is_twin { Novelty::Twin } else { Novelty::New }
    }
}

/// Returns the source ids of a recording's runs; `None` for other runs. Looks only at files with new run ids.
fn recorded_ids(storage: &Storage, manifest: &Manifest, input: RunInput<'_>) -> Result<Option<BTreeSet<u64>>> {
    let RunInput::Open { runs, recorded_since: Some(since) } = input else { return Ok(None) };
    let session = runs.session.as_deref().unwrap_or_default();
    let mut ids = BTreeSet::new();
    let is_new = |file: &&DataFile| u64::from(file.last_run_id) >= since;
    let files = manifest.files(TableName::Runs).filter(is_new);
    for batch in row_groups(storage, files, &table_schema(TableName::Runs)) {
        for run in run_rows(&batch?)? {
            let run = run?;
            ids.extend(run.source_id.filter(|_| run.session.as_deref() == Some(session)));
        }
    }
    Ok(Some(ids))
}
