//! Restoring: a new version with the files of an older one, and with the sound data files that no manifest lists.
//!
//! The new version is published like any other, so an interrupted restore leaves the archive unchanged or restored.
//! Afterwards the damaged manifests that it replaces are removed. A restore that is repeated continues there.

use super::adoption::Adoption;
use super::sound_file::{SoundFile, read_sound};
use crate::archive::archive::Archive;
use crate::archive::ingest::run_ids::next_run_id;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::tags::VersionName;
use crate::archive::manifest::versions::{Publication, VERSIONS_FOLDER, Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::storage::Storage;
use crate::archive::storage::storage_options::StorageOptions;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::clock;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;
use tracing::info;

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
    /// The files of annotations that the version lists and that are gone or truncated, relative to the archive: they
    /// expired after a later version, whose manifest is damaged, and the new version does not have them.
    pub lost: Vec<String>,
    /// The damaged manifests, relative to the archive. They are removed.
    pub damaged: Vec<String>,
    /// Whether the archive was changed.
    pub done: bool,
}

impl Archive {
    /// Makes a new version with the files of an older one, or with `None` of the newest sound version. With `dry_run`,
    /// only reports the changes.
    ///
    /// The new version also adopts data files that no manifest lists, if they hold whole runs that the version does not
    /// have. So no run is lost with a damaged manifest. Damaged manifests that the new version replaces are removed.
    /// An interrupted restore that is repeated ends in the same archive. On an object store, nothing else may write
    /// meanwhile.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("games.a2");
    /// use a2store::{Archive, CancellationToken, Phases};
    /// use a2store::archive::{StorageOptions, VersionName};
    /// Archive::create(&path, Phases::default())?;
    /// let (options, cancel) = (StorageOptions::default(), CancellationToken::new());
    /// let report = Archive::restore(&path, VersionName::Newest, false, &options, &cancel)?;
    /// assert_eq!((report.version, report.new_version), (1, None)); // Nothing was damaged.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`]. [`ErrorKind::VersionNotFound`]. [`ErrorKind::Damaged`] if the version is damaged or
    /// lacks a file, or all versions are damaged. [`ErrorKind::Argument`] for an unknown option of the object store.
    /// [`ErrorKind::Conflict`], [`ErrorKind::Io`], [`ErrorKind::Cancelled`], [`ErrorKind::Unconfirmed`].
    pub fn restore(
        location: impl AsRef<Path>,
        version: impl Into<VersionName>,
        dry_run: bool,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<RestoreReport> {
        let storage = Storage::new(location.as_ref(), options)?;
        let version = Versions::new(&storage).resolve(version.into())?;
        let report = restore(&storage, version, dry_run, cancel)?;
        info!(
            target: "a2store::maintenance",
            archive = %location.as_ref().display(),
            dry_run,
            version = report.version,
            new_version = report.new_version,
            adopted_runs = report.adopted_runs,
            "restore ended"
        );
        Ok(report)
    }
}

pub(in crate::archive) fn restore(
    storage: &Storage,
    version: Option<u64>,
    dry_run: bool,
    cancel: &CancellationToken,
) -> Result<RestoreReport> {
    let versions = Versions::new(storage);
    let _lock = match dry_run {
        true => None,
        false => versions.lock(Duration::from_secs(60), cancel)?,
    };
    let mut present = Present::new();
    for table in TableName::ALL {
        let files = storage.list(table.name())?.into_iter().filter(|file| file.name.ends_with(".parquet"));
        present.extend(files.map(|file| (format!("{table}/{}", file.name), (table, file.num_bytes))));
    }
    let all = AllVersions::read(&versions, &present, cancel)?;
    let mut target = match version {
        None => all.newest.clone(),
        Some(version) => versions.open(Some(version))?,
    };
    let num_bytes = |file: &DataFile| present.get(&file.path).map(|(_, num_bytes)| *num_bytes);
    let is_there = |file: &DataFile| num_bytes(file) == Some(file.num_bytes);
    // The version may have expired, without its files, in a version whose manifest is lost. Later files have its runs.
    let mut missing: Vec<DataFile> = target.files.extract_if(.., |file| !is_there(file)).collect();
    let unlisted = all.unlisted(storage, &present, cancel)?;
    let adopted = Adoption::of(storage, &target, &missing, unlisted)?;
    missing.retain(|file| !adopted.replaces(file));
    let may_lack = |file: &DataFile| file.table == TableName::Annotations && all.newest.version < all.last;
    if let Some(file) = missing.iter().find(|file| !may_lack(file)) {
        let found = num_bytes(file).map_or("no file".into(), |num_bytes| format!("{num_bytes} bytes"));
        let is_whole = |found: &Manifest| found.num_runs > 0 && found.files.iter().all(is_there);
        let whole = versions.list()?.into_iter().find_map(|version| versions.open(Some(version)).ok().filter(is_whole));
        let hint = whole.map_or_else(String::new, |Manifest { version, num_runs, .. }| {
            format!("; version {version} has all files of its {num_runs} runs: use `restore --version {version}`")
        });
        return Err(storage.damaged(&file.path, "file", format!("{} bytes", file.num_bytes), found + &hint));
    }
    let mut report = RestoreReport {
        version: target.version,
        new_version: None,
        adopted_runs: adopted.num_runs(),
        adopted: adopted.paths(),
        lost: missing.into_iter().map(|file| file.path).collect(),
        damaged: all.replaced.iter().copied().map(manifest_path).collect(),
        done: false,
    };
    let is_current =
        all.newest.version == all.last && report.adopted.is_empty() && target.paths() == all.newest.paths();
    report.new_version = (!is_current).then_some(all.last + 1);
    if dry_run {
        return Ok(report);
    }
    // An interrupted restore may have published it.
    versions.make_durable(all.newest.version)?;
    if !is_current {
        let mut next = all.newest.next(Operation::Restore);
        next.version = all.last + 1;
        next.next_run_id = next_run_id(storage, &all.newest)?;
        next.first_version = if all.first_version > all.newest.version { next.version } else { all.first_version };
        // An interrupted writer may have left a file before it was durable.
        adopted.files.iter().try_for_each(|file| storage.sync(&file.path))?;
        let folders: BTreeSet<TableName> = adopted.files.iter().map(|file| file.table).collect();
        folders.into_iter().try_for_each(|table| storage.sync(table.name()))?;
        let mut files = target.files;
        files.extend(adopted.files);
        for part in &adopted.parts {
            files.extend(part.copy(storage, &next, cancel)?);
        }
        let (before, after): (_, HashSet<&str>) = (all.newest.paths(), files.iter().map(|file| &*file.path).collect());
        let removed = before.difference(&after).map(|&path| path.to_owned()).collect();
        let added = files.iter().filter(|file| !before.contains(&*file.path)).cloned().collect();
        next.replace(&removed, added);
        // Adopted files may have other names.
        let last = next.files.iter().map(|file| u64::from(file.last_run_id) + 1).max();
        next.next_run_id = next.next_run_id.max(last.unwrap_or_default());
        // A change that was prepared before may depend on runs that are gone.
        next.unlisted_before = next.unlisted_before.max(Some(clock::text(storage.now())));
        cancel.check()?;
        if !matches!(versions.publish(next)?, Publication::New(_)) {
            let what = "another writer committed a version meanwhile".to_owned();
            return Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into());
        }
    }
    for path in &report.damaged {
        storage.remove(path)?;
    }
    if !report.damaged.is_empty() {
        storage.sync(VERSIONS_FOLDER)?;
    }
    report.done = report.new_version.is_some() || !report.damaged.is_empty();
    Ok(report)
}

/// The paths of all data files that are there, with their tables and their lengths in bytes.
type Present = BTreeMap<String, (TableName, u64)>;

/// What the manifests of an archive say.
struct AllVersions {
    /// The number of the newest manifest, also if it is damaged.
    last: u64,
    /// The newest sound version.
    newest: Manifest,
    /// The oldest version that has not expired.
    first_version: u64,
    /// The damaged versions that no later version continues.
    replaced: Vec<u64>,
    /// The paths of all files that a sound manifest lists.
    listed: HashSet<String>,
}

impl AllVersions {
    fn read(versions: &Versions, present: &Present, cancel: &CancellationToken) -> Result<AllVersions> {
        let numbers = versions.list()?;
        // A manifest that was copied from another archive counts as damaged. The oldest one says which archive this is.
        let oldest = numbers.iter().rev().find_map(|&version| versions.read(version).ok().flatten());
        let (mut newest, mut replaced, mut listed) = (None, Vec::new(), HashSet::new());
        let (mut damaged, mut error): (Vec<u64>, Option<Error>) = (Vec::new(), None);
        let (mut parent, mut first_version): (Option<String>, u64) = (None, 1);
        // The first of the versions that follow each other up to the newest, and the sound version that was read last.
        let (mut first_linked, mut last_read): (Option<u64>, Option<u64>) = (None, None);
        versions.each(&numbers, |version, manifest| {
            cancel.check()?;
            let checked = manifest.and_then(|manifest| {
                oldest.iter().try_for_each(|oldest| versions.check_archive(&manifest, oldest))?;
                Ok(manifest)
            });
            match checked {
                Ok(manifest) => {
                    let broken = std::mem::take(&mut damaged);
                    let is_parent = parent.as_ref() == Some(&manifest.txn);
                    // There is a gap before a restored version.
                    let is_linked = is_parent && last_read == first_linked;
                    if is_linked || first_linked.is_none_or(|first| version + 1 == first) {
                        first_linked = Some(version);
                    }
                    last_read = Some(version);
                    if newest.is_none() || is_parent {
                        replaced.extend(broken);
                    }
                    if !manifest.files.iter().all(|file| present.contains_key(&file.path)) {
                        // A version whose manifest is lost has dropped this version.
                        first_version = first_version.max(version + 1);
                    }
                    listed.extend(manifest.files.iter().map(|file| file.path.clone()));
                    parent.clone_from(&manifest.parent);
                    newest.get_or_insert(manifest);
                }
                Err(found) if matches!(found.kind(), ErrorKind::Damaged { .. }) => {
                    damaged.push(version);
                    if first_linked == Some(version + 1) {
                        first_linked = Some(version);
                    }
                    error.get_or_insert(found);
                }
                Err(found) => return Err(found),
            }
            Ok(())
        })?;
        match (newest, error) {
            (Some(newest), _) => {
                // An expiry whose manifest is lost may have removed older versions.
                let first_version = first_version.max(first_linked.unwrap_or_default()).max(newest.first_version);
                Ok(AllVersions { last: numbers[0], newest, first_version, replaced, listed })
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(versions.newest().err().unwrap_or_else(|| Error::other("the archive has vanished"))),
        }
    }

    /// Returns the sound data files of this archive that no manifest lists, in the order of their names, and so of
    /// their run ids.
    fn unlisted(&self, storage: &Storage, present: &Present, cancel: &CancellationToken) -> Result<Vec<SoundFile>> {
        let mut unlisted = Vec::new();
        for (path, (table, _)) in present.iter().filter(|(path, _)| !self.listed.contains(*path)) {
            cancel.check()?;
            if let Some(found) = read_sound(storage, *table, path)?
                && found.archive_id == self.newest.archive_id
            {
                unlisted.push(found);
            }
        }
        Ok(unlisted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{IngestOptions, Phases};
    use crate::format::tests::samples::game;
    use crate::format::{RunFormat, encode_run};

    #[test]
    fn a_truncated_or_missing_file_is_an_error_that_names_a_whole_version() {
        let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::never());
        let path = folder.path().join("games.a2");
        let mut archive = Archive::create(&path, Phases::default()).unwrap();
        for seed in [1, 2] {
            let run = folder.path().join("run");
            std::fs::write(&run, encode_run(&game(seed, 3), RunFormat::A2run2).unwrap()).unwrap();
            archive.ingest([&run], &IngestOptions::default(), &(), cancel).unwrap();
        }
        let restore =
            |version: VersionName| Archive::restore(&path, version, false, &StorageOptions::default(), cancel);
        assert_eq!(restore(VersionName::Newest).unwrap().new_version, None);
        let file = path.join(&archive.manifest.files(TableName::Steps).last().unwrap().path);
        for (is_truncated, found) in [(true, "100 bytes"), (false, "no file")] {
            match is_truncated {
                true => std::fs::File::options().write(true).open(&file).unwrap().set_len(100).unwrap(),
                false => std::fs::remove_file(&file).unwrap(),
            }
            let error = restore(VersionName::Newest).unwrap_err().to_string();
            let expected = format!("found {found}; version 2 has all files of its 1 runs: use `restore --version 2`");
            assert!(error.contains(&expected), "{error}");
        }
        assert_eq!(restore(2.into()).unwrap().new_version, Some(4));
        assert_eq!(Archive::open(&path).unwrap().num_runs(), 1);
    }
}
