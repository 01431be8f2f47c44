//! Expiry: dropping old versions, and removing the files that no remaining version needs.
//!
//! First a new version drops the old ones, then their files are removed: data files before manifests, because the
//! manifests say which data files are no longer needed. An interrupted `expire` is continued by the next one.

use crate::archive::archive::Archive;
use crate::archive::ingest::run_ids::IDS_FOLDER;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::tags::{TAGS_FOLDER, tags};
use crate::archive::manifest::transaction::{Patience, TransactionOutcome, transact};
use crate::archive::manifest::versions::{VERSIONS_FOLDER, Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::storage::{ListedFile, Storage};
use crate::archive::table_name::TableName;
use crate::error::{ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::clock;
use crate::system::publish::Staged;
use chrono::DateTime;
use derive_setters::Setters;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, SystemTime};
use tracing::info;

/// Options of [`Archive::expire`].
///
/// Set fields with the `with_*` methods: `ExpireOptions::default().with_dry_run(true)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct ExpireOptions {
    /// Versions that were replaced longer ago than this expire. The newest version never expires.
    pub older_than: Duration,
    /// The minimum age of unreferenced files that are removed, counted from their last change.
    ///
    /// Interrupted writers leave such files, but they may also belong to a writer elsewhere that has not
    /// committed yet. All unreferenced files are kept while a manifest is damaged: they may be the files of its version.
    pub grace: Duration,
    /// Only reports what would be removed.
    pub dry_run: bool,
}

impl Default for ExpireOptions {
    /// Returns thirty days for `older_than`, and one day for `grace`.
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        ExpireOptions { older_than: 30 * DAY, grace: DAY, dry_run: false }
    }
}

/// The result of an expiry or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct ExpireReport {
    /// The oldest version that can still be opened without a tag.
    pub first_version: u64,
    /// The tags of older versions, which are kept.
    pub tags: Vec<String>,
    /// The number of versions that expired.
    pub num_versions: u64,
    /// The number of removed data files.
    pub num_files: u64,
    /// The total size of the removed data files.
    pub num_bytes: u64,
    /// All removed files, relative to the archive: data files, manifests, temporary files of interrupted writers, and
    /// reservations of run ids.
    pub paths: Vec<String>,
}

impl Archive {
    /// Drops versions that were replaced long ago, and removes their manifests and the data files that no remaining
    /// version needs.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn expire(&mut self, options: &ExpireOptions, cancel: &CancellationToken) -> Result<ExpireReport> {
        let (storage, now) = (&self.storage, self.storage.now());
        let sweep = Sweep { storage, versions: Versions::new(storage), options, now, cancel };
        let (report, manifest) = match options.dry_run {
            // A dry run changes nothing, so it needs no lock.
            true => {
                let newest = sweep.versions.newest()?;
                (sweep.find(&sweep.next(&newest)?)?, newest)
            }
            false => sweep.expire(&self.manifest)?,
        };
        info!(
            target: "a2store::maintenance",
            archive = %self.path().display(),
            dry_run = options.dry_run,
            versions = report.num_versions,
            files = report.num_files,
            bytes = report.num_bytes,
            "expire ended"
        );
        self.manifest = manifest.into();
        Ok(report)
    }
}

/// An expiry: finding and removing what is old.
struct Sweep<'a> {
    storage: &'a Storage,
    versions: Versions,
    options: &'a ExpireOptions,
    now: SystemTime,
    cancel: &'a CancellationToken,
}

impl Sweep<'_> {
    fn expire(&self, seen: &Manifest) -> Result<(ExpireReport, Manifest)> {
        let prepare = |newest: &Manifest| {
            let mut next = self.next(newest)?;
            let mut report = ExpireReport { first_version: next.first_version, ..ExpireReport::default() };
            if next.first_version == newest.first_version {
                report = self.find(&next)?;
                if report.num_files == 0 && next.kept_versions == newest.kept_versions {
                    return Ok((None, (report, false)));
                }
            }
            // Times in this format are in the order of their text. An earlier expiry may have had a shorter grace.
            next.unlisted_before = self.now.checked_sub(self.options.grace).map(clock::text).max(next.unlisted_before);
            Ok((Some(next), (report, true)))
        };
        let outcome = transact(self.storage, seen, Patience::default(), self.cancel, prepare, |_, _, _| Ok(true))?;
        // The lock is held until the end.
        let TransactionOutcome { manifest, value: (mut report, is_new), lock } = outcome;
        if is_new {
            // A writer may have listed some of these files before the new version.
            report = self.find(&manifest)?;
        }
        for path in &report.paths {
            self.cancel.check()?;
            self.storage.remove(path)?;
        }
        drop(lock);
        Ok((report, manifest))
    }

    /// Returns the next version, which drops old ones.
    fn next(&self, newest: &Manifest) -> Result<Manifest> {
        let mut next = newest.next(Operation::Expire);
        next.first_version = self.first_kept(newest)?;
        let tagged: BTreeSet<u64> = tags(self.storage)?.into_values().collect();
        // An earlier expiry may have dropped any other version before it was tagged.
        let is_kept = |version: &u64| *version < next.first_version && newest.keeps(*version);
        next.kept_versions = tagged.into_iter().filter(is_kept).collect();
        Ok(next)
    }

    /// Returns the oldest version that was still the newest at `now - older_than`.
    fn first_kept(&self, newest: &Manifest) -> Result<u64> {
        let first_version = newest.first_version;
        let Some(cutoff) = self.now.checked_sub(self.options.older_than) else { return Ok(first_version) };
        let made_before = |manifest: &Manifest| {
            DateTime::parse_from_rfc3339(&manifest.time).is_ok_and(|time| SystemTime::from(time) <= cutoff)
        };
        if made_before(newest) {
            return Ok(newest.version);
        }
        // A version is replaced when the next one is made, so one version was the newest at the cutoff.
        for version in self.versions.list()? {
            if (first_version..newest.version).contains(&version)
                // The manifest of a damaged version has no time, so an earlier one decides.
                && let Ok(Some(manifest)) = self.versions.read(version)
                && made_before(&manifest)
            {
                return Ok(version);
            }
        }
        Ok(first_version)
    }

    /// Reports all files that can be removed once `newest` is published.
    fn find(&self, newest: &Manifest) -> Result<ExpireReport> {
        let first_version = newest.first_version;
        let mut report = ExpireReport { first_version, ..ExpireReport::default() };
        let numbers = self.versions.list()?;
        // After the publication, a tag that is created from now on finds its version dropped.
        let mut tags = tags(self.storage)?;
        tags.retain(|_, version| *version < first_version);
        let tagged: HashSet<u64> = tags.values().copied().collect();
        // Another expiry may remove the listed manifests before they are read. Later versions list only these and new files.
        let mut kept: HashSet<String> = newest.files.iter().map(|file| file.path.clone()).collect();
        let mut dropped = HashSet::new();
        let (mut is_damaged, mut manifests) = (false, Vec::new());
        let mut files = Vec::new();
        for table in TableName::ALL {
            let entries = self.storage.list(table.name())?;
            files.extend(entries.into_iter().map(|entry| (format!("{table}/{}", entry.name), entry)));
        }
        let present: HashSet<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        let mut kept_numbers = HashSet::new();
        self.versions.each(&numbers, |version, manifest| {
            self.cancel.check()?;
            // A tag that the manifest does not confirm keeps a version only if all its files are there.
            let is_whole = |manifest: &Manifest| manifest.files.iter().all(|file| present.contains(&*file.path));
            let is_kept =
                newest.keeps(version) || tagged.contains(&version) && manifest.as_ref().map_or(true, is_whole);
            match manifest {
                Ok(manifest) => {
                    let paths = manifest.files.into_iter().map(|file| file.path);
                    if is_kept { kept.extend(paths) } else { dropped.extend(paths) }
                }
                Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => is_damaged |= is_kept,
                Err(error) => return Err(error),
            }
            if is_kept {
                kept_numbers.insert(version);
            } else {
                manifests.push(manifest_path(version));
            }
            Ok(())
        })?;
        let kept_tag = |(name, version): (String, u64)| kept_numbers.contains(&version).then_some(name);
        report.tags = tags.into_iter().filter_map(kept_tag).collect();
        // Interrupted writers and lost versions leave ids that only the names of files record. The file with the highest ids
        // stays until a version has higher ids: of equal ones, a file of a version, or else of steps, which `restore` does
        // not adopt without their runs.
        let ids = files.iter().filter_map(|(path, entry)| {
            let last = DataFile::last_run_id_of(&entry.name)?;
            Some((last, kept.contains(path), path))
        });
        kept.extend(ids.max().map(|(.., path)| path.clone()));
        files.retain(|(path, _)| !kept.contains(path));
        for (path, entry) in files {
            if entry.name.ends_with(".parquet") {
                if !is_damaged && (dropped.contains(&path) || self.is_old(&entry)) {
                    report.num_files += 1;
                    report.num_bytes += entry.num_bytes;
                    report.paths.push(path);
                }
            } else if self.is_leftover(&entry) {
                report.paths.push(path);
            }
        }
        for folder in [VERSIONS_FOLDER, TAGS_FOLDER] {
            let leftovers = self.storage.list(folder)?;
            let leftovers = leftovers.iter().filter(|entry| self.is_leftover(entry));
            report.paths.extend(leftovers.map(|entry| format!("{folder}/{}", entry.name)));
        }
        // The last reservation says which ids are free.
        let mut reservations = self.storage.list(IDS_FOLDER)?;
        reservations.retain(|entry| !entry.name.starts_with('.'));
        reservations.sort_by(|a, b| a.name.cmp(&b.name));
        let old = reservations.iter().skip(1).filter(|entry| self.is_old(entry));
        report.paths.extend(old.map(|entry| format!("{IDS_FOLDER}/{}", entry.name)));
        report.num_versions = manifests.len() as u64;
        // The oldest one is first, so that an interrupted expiry leaves no gap below the versions that it keeps.
        report.paths.extend(manifests.into_iter().rev());
        Ok(report)
    }

    /// Returns whether the file is an old temporary file of a writer.
    fn is_leftover(&self, entry: &ListedFile) -> bool {
        let (prefix, suffix) = Staged::AFFIXES;
        entry.name.starts_with(prefix) && entry.name.ends_with(suffix) && self.is_old(entry)
    }

    fn is_old(&self, entry: &ListedFile) -> bool {
        self.now.duration_since(entry.modified).is_ok_and(|age| age >= self.options.grace)
    }
}
