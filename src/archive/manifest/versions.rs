//! The versions of an archive: their manifests, from the newest to the oldest.
//!
//! Version `n` is the file `_versions/<u64::MAX - n in 20 digits>.json`, so that the newest version comes first in a
//! listing. A writer publishes a version by creating the file of the next number, which fails if the file exists. So
//! one of two concurrent writers succeeds, and the other detects that it lost.

use super::tags::{VersionName, tags, unknown};
use super::{CommitInfo, Manifest};
use crate::archive::storage::{Guard, Storage};
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::clock;
use crate::system::publish::Published;
use bytes::Bytes;
use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;
use tracing::info;

/// The folder of the manifests.
pub(in crate::archive) const VERSIONS_FOLDER: &str = "_versions";
/// The file that writers of this machine lock.
const LOCK: &str = "_versions/.lock";

/// The maximum number of listings when manifests vanish between listing and reading, because their versions expire.
const ATTEMPTS: usize = 5;

/// The outcome of a publication.
pub(in crate::archive) enum Publication {
    /// The version is part of the archive.
    New(Box<Manifest>),
    /// Another writer has published this version.
    Taken,
    /// Later versions exist, and this version has expired: either as a part of the archive, or other writers published
    /// this number before, and the name was free again. Its files are left to `expire`.
    Late,
}

/// The versions of an archive.
#[derive(Clone, Debug)]
pub(in crate::archive) struct Versions {
    storage: Storage,
}

/// Returns the path of a version's manifest, relative to the archive.
pub(in crate::archive) fn manifest_path(version: u64) -> String {
    format!("{VERSIONS_FOLDER}/{}", descending_name(version))
}

/// Returns the version in the name of a manifest.
pub(in crate::archive) fn version_of(name: &str) -> Option<u64> {
    number_of(name).filter(|version| (1..u64::MAX).contains(version))
}

/// Returns a name for a file with a number. In a listing, the largest number comes first.
pub(in crate::archive) fn descending_name(number: u64) -> String {
    format!("{:020}.json", u64::MAX - number)
}

/// Returns the number in a name of [`descending_name`].
pub(in crate::archive) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json").filter(|digits| digits.len() == 20)?;
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some(u64::MAX - number)
}

impl Versions {
    pub(in crate::archive) fn new(storage: &Storage) -> Versions {
        Versions { storage: storage.clone() }
    }

    /// Lists the versions with a manifest, newest first. Not empty.
    pub(in crate::archive) fn list(&self) -> Result<Vec<u64>> {
        let names = self.storage.names(VERSIONS_FOLDER)?;
        let mut versions: Vec<u64> = names.iter().filter_map(|name| version_of(name)).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        if versions.is_empty() {
            if let Some(folder) = self.storage.folder() {
                std::fs::metadata(folder).map_err(|source| Error::io(folder, source))?;
            }
            return Err(ErrorKind::NotAnArchive { path: self.storage.root().to_path_buf() }.into());
        }
        Ok(versions)
    }

    /// Returns the newest version's number.
    fn newest_number(&self) -> Result<u64> {
        let first = self.storage.first_names(VERSIONS_FOLDER, 1)?.pop();
        first.and_then(|name| version_of(&name)).map_or_else(|| self.list().map(|versions| versions[0]), Ok)
    }

    /// Returns the number of a version; `None` for the newest.
    pub(in crate::archive) fn resolve(&self, version: VersionName) -> Result<Option<u64>> {
        let name = match version {
            VersionName::Newest => return Ok(None),
            VersionName::Number(number) => return Ok(Some(number)),
            VersionName::Tag(name) => name,
        };
        // A location without an archive has no tags, which is not the problem.
        self.list()?;
        let tags = tags(&self.storage)?;
        tags.get(&name).copied().map(Some).ok_or_else(|| unknown("version", tags.keys(), &name))
    }

    pub(in crate::archive) fn is_tagged(&self, version: u64) -> Result<bool> {
        Ok(tags(&self.storage)?.values().any(|&tagged| tagged == version))
    }

    /// Excludes other writers, as [`Backend::lock`](crate::archive::storage::Backend::lock) does.
    pub(in crate::archive) fn lock(&self, wait: Duration, cancel: &CancellationToken) -> Result<Option<Guard>> {
        self.storage.lock(LOCK, wait, cancel).map_err(|error| match self.list() {
            // A folder that is not an archive has no folder for the lock.
            Err(not_an_archive) if error.is_not_found() => not_an_archive,
            _ => error,
        })
    }

    /// Returns the absolute path of a version's manifest.
    pub(in crate::archive) fn path(&self, version: u64) -> PathBuf {
        self.storage.path(&manifest_path(version))
    }

    /// Reads the manifest of a version; returns `None` if there is no such file.
    pub(in crate::archive) fn read(&self, version: u64) -> Result<Option<Manifest>> {
        let bytes = self.storage.read(&manifest_path(version))?;
        bytes.map(|bytes| Manifest::from_bytes(&bytes, version, &self.path(version))).transpose()
    }

    /// Reads the manifests of several versions, in this order. Skips versions without a file, and passes the error of
    /// each unreadable one.
    pub(in crate::archive) fn each(
        &self,
        versions: &[u64],
        mut each: impl FnMut(u64, Result<Manifest>) -> Result<()>,
    ) -> Result<()> {
        // Memory holds the files of one chunk, which an object store reads concurrently.
        for chunk in versions.chunks(64) {
            let files = self.storage.read_all(&chunk.iter().copied().map(manifest_path).collect::<Vec<_>>())?;
            for (&version, file) in chunk.iter().zip(files) {
                let parse = |bytes: Bytes| Manifest::from_bytes(&bytes, version, &self.path(version));
                if let Some(manifest) = file.map(|bytes| bytes.map(parse)).unwrap_or_else(|error| Some(Err(error))) {
                    each(version, manifest)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the newest version. If its manifest is damaged, the error names the newest sound version.
    pub(in crate::archive) fn newest(&self) -> Result<Manifest> {
        for _ in 0..ATTEMPTS {
            match self.read(self.newest_number()?) {
                Ok(Some(manifest)) => return Ok(manifest),
                // A writer whose commit was late has removed it again.
                Ok(None) => {}
                Err(error) => return Err(self.hint(error)),
            }
        }
        let what = format!("its newest version was replaced while it was read, {ATTEMPTS} times");
        Err(ErrorKind::Conflict { path: self.storage.root().to_path_buf(), what }.into())
    }

    /// Returns a version, or with `None` the newest.
    pub(in crate::archive) fn open(&self, version: Option<u64>) -> Result<Manifest> {
        let Some(version) = version else { return self.newest() };
        // If its manifest is missing, it may have expired after the newest manifest was read, so look twice.
        for _ in 0..2 {
            // The manifest of an expired version may still exist, but its files may be gone. If the newest manifest is
            // damaged, no version that it dropped has lost files yet.
            let (oldest, newest) = match self.newest() {
                Ok(newest) => (newest.first_version, newest.version),
                Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. } | ErrorKind::SchemaVersion { .. }) => {
                    (1, self.newest_number()?)
                }
                Err(error) => return Err(error),
            };
            if (version >= oldest || self.is_tagged(version)?)
                && let Some(found) = self.read(version)?
            {
                return Ok(found);
            }
            if !(oldest..newest).contains(&version) {
                let path = self.storage.root().to_path_buf();
                return Err(ErrorKind::VersionNotFound { path, version, oldest, newest }.into());
            }
        }
        let expected = "a file, because later versions exist";
        Err(self.storage.damaged(&manifest_path(version), "manifest", expected, "no file"))
    }

    /// Makes a version durable that a writer may have published before it was interrupted.
    pub(in crate::archive) fn make_durable(&self, version: u64) -> Result<()> {
        self.storage.sync(&manifest_path(version))?;
        self.storage.sync(VERSIONS_FOLDER)
    }

    /// Checks that a manifest is of the same archive as another.
    pub(in crate::archive) fn check_archive(&self, manifest: &Manifest, other: &Manifest) -> Result<()> {
        if manifest.archive_id != other.archive_id {
            let path = manifest_path(manifest.version);
            return Err(self.storage.damaged(&path, "archive_id", &other.archive_id, &manifest.archive_id));
        }
        Ok(())
    }

    /// Checks that `newest` is a version of the same archive as `seen`, and not an older one.
    pub(in crate::archive) fn check_follows(&self, newest: &Manifest, seen: &Manifest) -> Result<()> {
        self.check_archive(newest, seen)?;
        if newest.version < seen.version {
            let expected = format!("version {}, read before", seen.version);
            let found = format!("version {} as the newest", newest.version);
            return Err(self.storage.damaged(&manifest_path(seen.version), "manifest", expected, found));
        }
        Ok(())
    }

    /// Returns the lines of the versions up to `newest` that are not expired, newest first.
    pub(in crate::archive) fn history(&self, newest: &Manifest) -> Result<Vec<CommitInfo>> {
        let tagged: HashSet<u64> = tags(&self.storage)?.into_values().collect();
        let mut versions = self.list()?;
        versions.retain(|version| *version < newest.version);
        versions.retain(|version| *version >= newest.first_version || tagged.contains(version));
        let mut lines = vec![newest.info()];
        self.each(&versions, |_, manifest| {
            let manifest = manifest?;
            self.check_archive(&manifest, newest)?;
            lines.push(manifest.info());
            Ok(())
        })?;
        Ok(lines)
    }

    /// Publishes a version, unless another writer published this version or a later one.
    ///
    /// # Errors
    /// After [`ErrorKind::Unconfirmed`], the version may have been published; the archive shows it later. After any
    /// other error, it was not published.
    pub(in crate::archive) fn publish(&self, mut manifest: Manifest) -> Result<Publication> {
        let (path, version) = (manifest_path(manifest.version), manifest.version);
        let unconfirmed = |error: Error| -> Error {
            let path = self.path(version);
            ErrorKind::Unconfirmed { path, version, reason: error.to_string() }.into()
        };
        manifest.time = clock::text(self.storage.now());
        let bytes = Bytes::from(manifest.seal()?);
        let outcome = self.storage.put_new(&path, bytes.clone());
        // Read the manifest, because the response alone can mislead: if a request was retried, the name may be taken by
        // this very manifest.
        let standing = match self.storage.read(&path) {
            Ok(standing) => standing,
            Err(error) => return Err(unconfirmed(outcome.err().unwrap_or(error))),
        };
        let is_own = match &standing {
            None => false,
            Some(standing) if *standing == bytes => true,
            Some(standing) => {
                let standing = Manifest::from_bytes(standing, manifest.version, &self.path(manifest.version));
                standing.map_err(unconfirmed)?.txn == manifest.txn
            }
        };
        match outcome {
            Ok(_) if is_own => {}
            Ok(Published::Taken) => return Ok(Publication::Taken),
            // An expiry has removed it as the manifest of an old version, and the name was free again.
            Ok(Published::New) if self.newest_number().map_err(unconfirmed)? > version => {
                return Ok(Publication::Late);
            }
            Ok(Published::New) => {
                let found = if standing.is_some() { "another manifest" } else { "no file" };
                return Err(self.storage.damaged(&path, "manifest", "the one just published", found));
            }
            // In an object store, a visible manifest is durable. In a folder, a crash may still remove its name.
            Err(error) if is_own && !self.storage.is_remote() => return Err(unconfirmed(error)),
            Err(_) if is_own => {}
            Err(_) if standing.is_some() => return Ok(Publication::Taken),
            // An object store may still receive the request.
            Err(error) if self.storage.is_remote() => return Err(unconfirmed(error)),
            Err(error) => return Err(error),
        }
        if !self.is_part(&manifest).map_err(unconfirmed)? {
            // Otherwise `restore` could take it for a version of the archive.
            let is_kept = self.newest().map_err(unconfirmed)?.kept_versions.contains(&version);
            if !is_kept && !self.is_tagged(version).map_err(unconfirmed)? {
                self.storage.remove(&path).ok();
            }
            return Ok(Publication::Late);
        }
        info!(
            target: "a2store::commit",
            archive = %self.storage.root().display(),
            version = manifest.version,
            operation = manifest.operation.name(),
            added_files = manifest.added_files,
            removed_files = manifest.removed_files,
            runs = manifest.num_runs,
            steps = manifest.num_steps,
            "published a version"
        );
        Ok(Publication::New(Box::new(manifest)))
    }

    /// Returns whether a published manifest is the newest version or one of its ancestors. It is not if its writer
    /// slept so long that other writers made this version and later ones, and these expired: then its name was free
    /// again.
    fn is_part(&self, manifest: &Manifest) -> Result<bool> {
        if self.newest_number()? <= manifest.version {
            return Ok(true);
        }
        if let Some(next) = self.read(manifest.version + 1)? {
            return Ok(next.parent.as_ref() == Some(&manifest.txn));
        }
        // The next version has expired already. A version that only removed files is no longer to be seen in it.
        let newest = self.newest()?;
        let paths = newest.paths();
        Ok(manifest.added_files > 0 && manifest.own_paths().all(|path| paths.contains(path)))
    }

    /// Adds a hint to an error about damage to the newest manifest.
    fn hint(&self, error: Error) -> Error {
        match error.into_kind() {
            ErrorKind::Damaged { path, what, expected, found } => {
                let versions = self.list().unwrap_or_default();
                let sound = versions.into_iter().find(|&version| matches!(self.read(version), Ok(Some(_))));
                let more = sound
                    .map(|version| format!("; version {version} can still be opened, and `restore` continues from it"));
                ErrorKind::Damaged { path, what, expected, found: found + &more.unwrap_or_default() }.into()
            }
            kind => kind.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first() {
        let versions = [1, 2, 10, 1 << 40, u64::MAX - 1];
        let mut names: Vec<String> = versions.map(manifest_path).into();
        names.sort();
        let found: Vec<u64> = names.iter().filter_map(|path| version_of(path.strip_prefix("_versions/")?)).collect();
        assert_eq!(found, [u64::MAX - 1, 1 << 40, 10, 2, 1]);
    }

    #[test]
    fn other_names_are_no_versions() {
        for name in [
            "18446744073709551615.json",
            "00000000000000000000.json",
            "1.json",
            "+8446744073709551614.json",
            "18446744073709551614.tmp",
        ] {
            assert_eq!(version_of(name), None, "{name}");
        }
    }
}
