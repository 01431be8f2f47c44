//! Tagging versions.

use super::tags::{TAGS_FOLDER, check_name, create, names, path_of, tags, unknown};
use super::versions::Versions;
use crate::archive::archive::Archive;
use crate::error::{Error, ErrorKind, Result};
use crate::system::publish::Published;
use std::collections::BTreeMap;

impl Archive {
    /// Names a version, so that [`expire`](Archive::expire) keeps it. `None` is the version of this view. A name that the
    /// version already has is no error.
    ///
    /// A name has 1 to 100 letters, digits and `-_.`. It does not consist of digits only, and begins with no dot.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("games.a2");
    /// use a2store::{Archive, Phases};
    /// use a2store::archive::StorageOptions;
    /// let archive = Archive::create(&path, Phases::default())?;
    /// archive.tag("baseline-3", None)?;
    /// let same = Archive::open_with(&path, "baseline-3", &StorageOptions::default())?;
    /// assert_eq!((same.version(), same.tags()?["baseline-3"]), (1, 1));
    /// archive.untag("baseline-3")?;
    /// # Ok::<(), a2store::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for such a name, or if another version has it. [`ErrorKind::VersionNotFound`] if the
    /// version has expired. [`ErrorKind::Conflict`] if it expired during this call; the tag stays.
    /// [`ErrorKind::Damaged`] if another archive has taken the place of this one. [`ErrorKind::Io`].
    pub fn tag(&self, name: &str, version: Option<u64>) -> Result<()> {
        let (storage, version) = (&self.storage, version.unwrap_or(self.version()));
        check_name(name)?;
        let versions = Versions::new(storage);
        versions.open(Some(version))?;
        let newest = versions.newest()?;
        versions.check_archive(&newest, &self.manifest)?;
        if !newest.keeps(version) {
            // Its tag may have come too late, so a tag does not prove that its files are there.
            let (path, oldest) = (storage.root().to_path_buf(), newest.first_version);
            return Err(ErrorKind::VersionNotFound { path, version, oldest, newest: newest.version }.into());
        }
        // A writer may have published the version just before it was interrupted.
        versions.make_durable(version).or_else(|error| versions.open(Some(version)).and(Err(error)))?;
        if create(storage, name, version)? == Published::Taken {
            // Its writer may have been interrupted before the tag was durable.
            storage.sync(TAGS_FOLDER)?;
        }
        // An expiry that began before the tag was there may have dropped the version.
        let newest = versions.newest()?;
        match self.tags()?.remove(name) {
            Some(known) if known == version && newest.keeps(version) => Ok(()),
            // The tag may have come in time, and another call may have relied on it. So the tag stays.
            Some(known) if known == version => {
                let path = storage.root().to_path_buf();
                let what = format!(
                    "version {version} expired while it was tagged; if the tag {name} does not open, remove the tag"
                );
                Err(ErrorKind::Conflict { path, what }.into())
            }
            known => {
                let found = known.map_or("a removed tag".into(), |known| format!("{name}, the tag of version {known}"));
                Err(Error::argument("name", "a new name", found))
            }
        }
    }

    /// Returns the tags of the archive with their versions, in the order of their names.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a tag is damaged. [`ErrorKind::Io`].
    pub fn tags(&self) -> Result<BTreeMap<String, u64>> {
        tags(&self.storage)
    }

    /// Removes a tag, also if its file is damaged. The version itself stays until it expires.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if there is no such tag. [`ErrorKind::Damaged`] as in [`tag`](Archive::tag). [`ErrorKind::Io`].
    pub fn untag(&self, name: &str) -> Result<()> {
        let names = names(&self.storage)?;
        names.get(name).ok_or_else(|| unknown("name", &names, name))?;
        let versions = Versions::new(&self.storage);
        match versions.newest() {
            Ok(newest) => versions.check_archive(&newest, &self.manifest)?,
            Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
        self.storage.remove(&path_of(name))?;
        // Otherwise a power failure could bring the tag back after its version has expired.
        self.storage.sync(TAGS_FOLDER)
    }
}
