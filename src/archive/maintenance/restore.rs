//! Restoring: a new version with the files of an older one, and with the sound data files that no manifest lists.
//!
//! The new version is published like any other, so an interrupted restore leaves the archive unchanged or restored.
//! Afterwards the damaged manifests that it replaces are removed. A restore that is repeated continues there.

use super::sound_file::{SoundFile, read_sound};
use crate::archive::ingest::run_ids::next_run_id;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::{LOCK, Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::problem::damaged;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use std::cmp::Reverse;
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
        if all.is_only_tagged {
            next.first_version = all.newest.version;
        }
        let mut files: Vec<DataFile> = target.files.clone();
        files.retain(|file| !adopted.replaced.contains(&file.path));
        files.extend(adopted.files);
        let (before, after): (_, HashSet<&str>) = (all.newest.paths(), files.iter().map(|file| &*file.path).collect());
        let removed = before.difference(&after).map(|&path| path.to_owned()).collect();
        let added = files.iter().filter(|file| !before.contains(&*file.path)).cloned().collect();
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
    /// Whether the newest sound version has expired but for its tag: then the version before has no manifest.
    is_only_tagged: bool,
    /// The damaged versions that no later version continues.
    replaced: Vec<u64>,
    /// The paths of all files that a sound manifest lists.
    listed: HashSet<String>,
}

impl AllVersions {
    fn read(versions: &Versions, cancel: &CancellationToken) -> Result<AllVersions> {
        let numbers = versions.list()?;
        // A manifest that was copied from another archive counts as damaged. The oldest one says which archive this is.
        let oldest = numbers.iter().rev().find_map(|&version| versions.read(version).ok().flatten());
        let (mut newest, mut replaced, mut listed) = (None, Vec::new(), HashSet::new());
        let (mut damaged, mut error): (Vec<u64>, Option<Error>) = (Vec::new(), None);
        let mut parent: Option<String> = None;
        versions.each(&numbers, |version, manifest| {
            cancel.check()?;
            let checked = manifest.and_then(|manifest| {
                oldest.iter().try_for_each(|oldest| versions.check_archive(&manifest, oldest))?;
                Ok(manifest)
            });
            match checked {
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
            (Some(newest), _) => {
                let is_first = newest.version == newest.first_version || numbers.contains(&(newest.version - 1));
                let is_only_tagged = !is_first && versions.is_tagged(newest.version)?;
                Ok(AllVersions { last: numbers[0], newest, is_only_tagged, replaced, listed })
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(versions.newest().err().unwrap_or_else(|| Error::other("the archive has vanished"))),
        }
    }

    /// Returns the sound data files of this archive that no manifest lists, in the order of their names, and so of
    /// their run ids.
    fn unlisted(&self, storage: &Storage, cancel: &CancellationToken) -> Result<Vec<SoundFile>> {
        let mut unlisted = Vec::new();
        for table in TableName::ALL {
            let mut names = storage.names(table.name())?.unwrap_or_default();
            names.sort_unstable();
            for name in names.iter().filter(|name| name.ends_with(".parquet")) {
                cancel.check()?;
                let path = format!("{table}/{name}");
                if !self.listed.contains(&path)
                    && let Some(found) = read_sound(storage, table, &path)?
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
    /// The paths of the version's files that a merged file replaces.
    replaced: HashSet<String>,
    num_runs: u64,
}

impl Adoption {
    /// Chooses the files with runs that the version does not have. A merged file with runs of both replaces the files
    /// of the version. Leaves out files with runs whose steps are not all there, which an interrupted writer left.
    fn of(storage: &Storage, target: &Manifest, mut unlisted: Vec<SoundFile>) -> Result<Adoption> {
        if unlisted.is_empty() {
            return Ok(Adoption::default());
        }
        let known = KnownRuns::read(storage, target)?;
        // A merged file comes before the files that it replaced.
        unlisted.sort_by_key(|found| Reverse(found.file.num_rows));
        let of_table = |table| unlisted.iter().filter(move |found| found.file.table == table);
        let mut candidates: Vec<&SoundFile> =
            of_table(TableName::Runs).filter(|found| known.is_extended_by(found)).collect();
        let (runs, steps) = loop {
            let runs = disjoint(target, candidates.iter().copied());
            let mut expected = known.num_steps.clone();
            expected.extend(runs.iter().flat_map(|found| &found.num_steps));
            let is_of_these = |found: &&SoundFile| {
                known.is_extended_by(found) && found.num_steps.iter().all(|(id, count)| expected.get(id) == Some(count))
            };
            let steps = disjoint(target, of_table(TableName::Steps).filter(is_of_these));
            let whole: HashSet<&u32> =
                known.num_steps.keys().chain(steps.iter().flat_map(|found| found.num_steps.keys())).collect();
            let incomplete: HashSet<&str> = runs
                .iter()
                .filter(|found| !found.num_steps.keys().all(|run_id| whole.contains(run_id)))
                .map(|found| &*found.file.path)
                .collect();
            if incomplete.is_empty() {
                break (runs, steps);
            }
            candidates.retain(|found| !incomplete.contains(&*found.file.path));
        };
        let is_new = |run_id: &&u32| !known.num_steps.contains_key(run_id);
        let num_runs = runs.iter().flat_map(|found| found.num_steps.keys()).filter(is_new).count() as u64;
        let annotations = disjoint(
            target,
            of_table(TableName::Annotations)
                .filter(|found| target.files(TableName::Annotations).all(|file| is_apart(file, &found.file))),
        );
        let files: Vec<DataFile> =
            runs.into_iter().chain(steps).chain(annotations).map(|found| found.file.clone()).collect();
        let is_replaced = |file: &&DataFile| files.iter().any(|other| !is_apart(file, other));
        let replaced = target.files.iter().filter(is_replaced).map(|file| file.path.clone()).collect();
        Ok(Adoption { files, replaced, num_runs })
    }
}

/// The runs of the version that an archive continues with.
struct KnownRuns {
    num_steps: BTreeMap<u32, u32>,
    digests: HashSet<[u8; 32]>,
}

impl KnownRuns {
    fn read(storage: &Storage, target: &Manifest) -> Result<KnownRuns> {
        let mut known = KnownRuns { num_steps: BTreeMap::new(), digests: HashSet::new() };
        for file in target.files(TableName::Runs) {
            let Some(found) = read_sound(storage, file.table, &file.path)? else {
                return Err(damaged(
                    &storage.path(&file.path),
                    "content",
                    "the content that its name says",
                    "other content, or no file",
                ));
            };
            known.num_steps.extend(found.num_steps);
            known.digests.extend(found.digests);
        }
        Ok(known)
    }

    /// Returns whether a file of runs or steps has other runs than these, and all of these in the range of its run ids.
    fn is_extended_by(&self, found: &SoundFile) -> bool {
        let range = || self.num_steps.range(found.file.first_run_id..=found.file.last_run_id);
        let num_known = found.digests.iter().filter(|digest| self.digests.contains(*digest)).count();
        found.num_steps.keys().any(|run_id| !self.num_steps.contains_key(run_id))
            && range().all(|(run_id, count)| found.num_steps.get(run_id) == Some(count))
            && (found.file.table == TableName::Steps || num_known == range().count())
    }
}

/// Returns the files that share no run with an earlier one. A file of the version is apart from them, or all its runs
/// are in one of them.
fn disjoint<'a>(target: &Manifest, files: impl Iterator<Item = &'a SoundFile>) -> Vec<&'a SoundFile> {
    let (mut chosen, mut digests): (Vec<&SoundFile>, HashSet<&[u8; 32]>) = (Vec::new(), HashSet::new());
    for found in files {
        let is_new = found.digests.iter().all(|digest| !digests.contains(digest));
        let is_whole = |file: &DataFile| is_apart(&found.file, file) || is_inside(file, &found.file);
        if is_new && target.files.iter().all(is_whole) && chosen.iter().all(|other| is_apart(&found.file, &other.file))
        {
            digests.extend(&found.digests);
            chosen.push(found);
        }
    }
    chosen
}

/// Returns whether two files hold no rows of the same runs. Annotations of two models may be of the same runs.
fn is_apart(a: &DataFile, b: &DataFile) -> bool {
    (a.table, &a.model) != (b.table, &b.model) || a.last_run_id < b.first_run_id || b.last_run_id < a.first_run_id
}

fn is_inside(a: &DataFile, b: &DataFile) -> bool {
    b.first_run_id <= a.first_run_id && a.last_run_id <= b.last_run_id
}
