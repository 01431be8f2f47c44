//! Restoring: a new version with the files of an older one, and with the sound data files that no manifest lists.
//!
//! The new version is published like any other, so an interrupted restore leaves the archive unchanged or restored.
//! Afterwards the damaged manifests that it replaces are removed. A restore that is repeated continues there.

use super::unlisted::{UnlistedFile, read_unlisted};
use crate::archive::ingest::digests::Digests;
use crate::archive::ingest::run_ids::next_run_id;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::{LOCK, Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The result of a restore or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The version whose files the archive continues with.
    pub version: u64,
    /// The new version; `None` if the newest version has these files already.
    pub new_version: Option<u64>,
    /// The number of runs in data files that no manifest listed.
    pub adopted_runs: u64,
    /// The data files that no manifest listed, relative to the archive.
    pub adopted: Vec<String>,
    /// The damaged manifests, relative to the archive. They are removed.
    pub damaged: Vec<String>,
    /// Whether the archive was changed.
    pub done: bool,
}

pub(in crate::archive) fn restore(
    storage: &Storage,
    version: Option<u64>,
    dry_run: bool,
    cancel: &CancellationToken,
) -> Result<RestoreReport> {
    let versions = Versions::new(storage);
    // A folder that is not an archive must not get a lock file.
    versions.list()?;
    let _lock = match dry_run {
        true => None,
        false => storage.lock(LOCK, Duration::from_secs(60), cancel)?,
    };
    let all = AllVersions::read(&versions, cancel)?;
    let target = match version {
        None => all.newest.clone(),
        Some(version) => versions.open(Some(version))?,
    };
    let unlisted = all.unlisted(storage, cancel)?;
    let adopted = Adoption::of(storage, &target, unlisted)?;
    let mut report = RestoreReport {
        version: target.version,
        new_version: None,
        adopted_runs: adopted.num_runs,
        adopted: adopted.files.iter().map(|file| file.path.clone()).collect(),
        damaged: all.replaced.iter().copied().map(manifest_path).collect(),
        done: false,
    };
    let is_newest_sound = all.newest.version == all.last;
    if !(is_newest_sound && adopted.files.is_empty() && target.paths() == all.newest.paths()) {
        let mut next = all.newest.next(Operation::Restore);
        next.version = all.last + 1;
        next.next_run_id = next_run_id(storage, &all.newest)?;
        let removed = all.newest.paths().difference(&target.paths()).map(|&path| path.to_owned()).collect();
        let before = all.newest.paths();
        let mut added: Vec<DataFile> =
            target.files.iter().filter(|file| !before.contains(&*file.path)).cloned().collect();
        added.extend(adopted.files);
        next.replace(&removed, added);
        report.new_version = Some(next.version);
        if !dry_run {
            cancel.check()?;
            if versions.publish(next)?.is_none() {
                let what = "another writer committed a version meanwhile".to_owned();
                return Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into());
            }
        }
    }
    if !dry_run {
        for path in &report.damaged {
            storage.remove(path)?;
        }
        report.done = report.new_version.is_some() || !report.damaged.is_empty();
    }
    Ok(report)
}

/// What the manifests of an archive say.
struct AllVersions {
    /// The number of the newest manifest, also if it is damaged.
    last: u64,
    /// The newest sound version.
    newest: Manifest,
    /// The damaged versions that no later version continues.
    replaced: Vec<u64>,
    /// The paths of all files that a sound manifest lists.
    listed: HashSet<String>,
}

impl AllVersions {
    fn read(versions: &Versions, cancel: &CancellationToken) -> Result<AllVersions> {
        let numbers = versions.list()?;
        let (mut newest, mut replaced, mut listed) = (None, Vec::new(), HashSet::new());
        let (mut damaged, mut error): (Vec<u64>, Option<Error>) = (Vec::new(), None);
        let mut parent: Option<String> = None;
        versions.each(&numbers, |version, manifest| {
            cancel.check()?;
            match manifest {
                Ok(manifest) => {
                    let broken = std::mem::take(&mut damaged);
                    if newest.is_none() || parent.as_ref() == Some(&manifest.txn) {
                        replaced.extend(broken);
                    }
                    listed.extend(manifest.files.iter().map(|file| file.path.clone()));
                    parent.clone_from(&manifest.parent);
                    newest.get_or_insert(manifest);
                }
                Err(found) if matches!(found.kind(), ErrorKind::Damaged { .. }) => {
                    damaged.push(version);
                    error.get_or_insert(found);
                }
                Err(found) => return Err(found),
            }
            Ok(())
        })?;
        match (newest, error) {
            (Some(newest), _) => Ok(AllVersions { last: numbers[0], newest, replaced, listed }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(versions.newest().err().unwrap_or_else(|| Error::other("the archive has vanished"))),
        }
    }

    /// Returns the sound data files of this archive that no manifest lists, in the order of their names, and so of
    /// their run ids.
    fn unlisted(&self, storage: &Storage, cancel: &CancellationToken) -> Result<Vec<UnlistedFile>> {
        let mut unlisted = Vec::new();
        for table in TableName::ALL {
            let mut names = storage.names(table.name())?.unwrap_or_default();
            names.sort_unstable();
            for name in names.iter().filter(|name| name.ends_with(".parquet")) {
                cancel.check()?;
                let path = format!("{table}/{name}");
                if !self.listed.contains(&path)
                    && let Some(found) = read_unlisted(storage, table, &path)?
                    && found.archive_id == self.newest.archive_id
                {
                    unlisted.push(found);
                }
            }
        }
        Ok(unlisted)
    }
}

/// The unlisted files that a new version takes over.
#[derive(Default)]
struct Adoption {
    files: Vec<DataFile>,
    num_runs: u64,
}

impl Adoption {
    /// Chooses the files of runs that the version does not have. Leaves out runs without all of their steps, which an
    /// interrupted writer left.
    fn of(storage: &Storage, target: &Manifest, unlisted: Vec<UnlistedFile>) -> Result<Adoption> {
        let mut adoption = Adoption::default();
        if unlisted.is_empty() {
            return Ok(adoption);
        }
        let mut known = Digests::default();
        for file in target.files(TableName::Runs) {
            known.read(storage, file)?;
        }
        let mut by_txn: BTreeMap<String, Vec<UnlistedFile>> = BTreeMap::new();
        for found in unlisted {
            by_txn.entry(found.txn.clone()).or_default().push(found);
        }
        let mut transactions: Vec<Vec<UnlistedFile>> = by_txn.into_values().collect();
        transactions.sort_by_key(|files| files.first().map(|found| found.file.path.clone()));
        for files in transactions {
            adoption.adopt(target, &files, &mut known);
        }
        Ok(adoption)
    }

    /// Adopts the files of one transaction.
    fn adopt(&mut self, target: &Manifest, files: &[UnlistedFile], known: &mut Digests) {
        let of_table = |table| files.iter().filter(move |found| found.file.table == table);
        let is_new = |found: &&UnlistedFile| !found.digests.iter().any(|digest| known.contains(digest));
        let mut chosen: Vec<&UnlistedFile> = of_table(TableName::Runs).filter(is_new).collect();
        let digests: Vec<[u8; 32]> = chosen.iter().flat_map(|found| found.digests.iter().copied()).collect();
        let mut expected: BTreeMap<u32, u32> = chosen.iter().flat_map(|found| found.num_steps.clone()).collect();
        expected.retain(|_, num_steps| *num_steps > 0);
        let has_only_these = |found: &&UnlistedFile| found.num_steps.keys().all(|run_id| expected.contains_key(run_id));
        let steps: Vec<&UnlistedFile> = of_table(TableName::Steps).filter(has_only_these).collect();
        let found: BTreeMap<u32, u32> = steps.iter().flat_map(|found| found.num_steps.clone()).collect();
        chosen.extend(steps);
        let taken = || target.files.iter().chain(&self.files);
        let is_free = |found: &&UnlistedFile| taken().all(|file| is_apart(&found.file, file));
        if found != expected || !chosen.iter().all(is_free) {
            chosen.clear();
        }
        if !chosen.is_empty() {
            self.num_runs += digests.len() as u64;
            digests.iter().for_each(|digest| known.insert(digest));
        }
        // Annotations may be of any runs.
        chosen.extend(of_table(TableName::Annotations).filter(is_free));
        let chosen: Vec<DataFile> = chosen.into_iter().map(|found| found.file.clone()).collect();
        self.files.extend(chosen);
    }
}

/// Returns whether two files hold no rows of the same runs. Annotations of two models may be of the same runs.
fn is_apart(a: &DataFile, b: &DataFile) -> bool {
    (a.table, &a.model) != (b.table, &b.model) || a.last_run_id < b.first_run_id || b.last_run_id < a.first_run_id
}
