//! The type [`Archive`]: creating and opening, and the facts of a version. The file of each operation has its method.

use super::ingest::digests::KeptDigests;
use super::ingest::run_ids::IDS_FOLDER;
use super::manifest::tags::{TAGS_FOLDER, VersionName, tags};
use super::manifest::versions::{Publication, VERSIONS_FOLDER, Versions};
use super::manifest::{CommitInfo, Manifest};
use super::phases::Phases;
use super::schema::table_schema;
use super::storage::Storage;
use super::storage::storage_options::StorageOptions;
use super::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A growing collection of runs, seen at one version.
///
/// An `Archive` is an immutable view that is cheap to clone; clones show the same version. Commits of others
/// stay invisible until [`refresh`](Archive::refresh). An [`ingest`](Archive::ingest) moves the view to the
/// version that it commits.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("games.a2");
/// use a2store::{Archive, CancellationToken, IngestOptions, Phases};
/// let mut archive = Archive::create(&path, Phases::default())?;
/// # let runs = folder.path().join("runs");
/// let cancel = CancellationToken::new();
/// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(2), &(), &cancel)?;
/// let report = archive.ingest([&runs], &IngestOptions::default(), &(), &cancel)?;
/// assert_eq!((report.accepted, archive.num_runs(), archive.version()), (2, 2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Archive {
    pub(super) storage: Storage,
    pub(super) manifest: Arc<Manifest>,
    /// The digests that the last ingest kept for the next ingest. Clones share them.
    pub(super) kept: Arc<KeptDigests>,
    /// Whether each data file is compared with its manifest before its first use.
    pub(super) checksums: bool,
}

impl Archive {
    /// Creates an archive in a new or empty folder, or under a URL (`s3://bucket/games.a2`, `gs://…`,
    /// `az://…`).
    ///
    /// The phase thresholds of an archive never change.
    ///
    /// # Errors
    /// [`ErrorKind::ArchiveExists`] if the folder holds an archive. [`ErrorKind::Argument`] if the thresholds
    /// are not tiles in ascending order, or if the folder holds other files. [`ErrorKind::Io`].
    pub fn create(location: impl AsRef<Path>, phases: Phases) -> Result<Archive> {
        Archive::create_with(location, phases, &StorageOptions::default(), CancellationToken::never())
    }

    /// Creates an archive as [`create`](Archive::create) does, with options of the object store.
    ///
    /// # Errors
    /// The errors of [`create`](Archive::create), [`ErrorKind::Argument`] for an unknown option, and
    /// [`ErrorKind::Cancelled`].
    pub fn create_with(
        location: impl AsRef<Path>,
        phases: Phases,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<Archive> {
        phases.check()?;
        let storage = Storage::new(location.as_ref(), options)?;
        if let Some(folder) = storage.folder() {
            check_empty(folder)?;
        }
        let exists = || Err(ErrorKind::ArchiveExists { path: storage.root().to_path_buf() }.into());
        storage.create_folders(&[VERSIONS_FOLDER, "runs", "steps"])?;
        let versions = Versions::new(&storage);
        match versions.list() {
            Ok(_) => return exists(),
            Err(error) if matches!(error.kind(), ErrorKind::NotAnArchive { .. }) => {}
            Err(error) => return Err(error),
        }
        for table in TableName::ALL {
            if let Some(path) = storage.data_files(table)?.first() {
                let expected = "no data files without a manifest";
                return Err(storage.damaged(VERSIONS_FOLDER, "manifests", expected, path));
            }
        }
        if let Some((name, _)) = tags(&storage)?.first_key_value() {
            let expected = "no tags without a manifest";
            return Err(storage.damaged(VERSIONS_FOLDER, "manifests", expected, format!("the tag {name}")));
        }
        cancel.check()?;
        match versions.publish(Manifest::first(phases))? {
            Publication::New(manifest) => Ok(Archive::new(storage, *manifest)),
            Publication::Taken | Publication::Late => exists(),
        }
    }

    /// Opens an archive at its newest version.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`]. [`ErrorKind::Damaged`] if the newest manifest is damaged; the error names the
    /// newest sound version. [`ErrorKind::SchemaVersion`] if a newer a2store wrote the archive. [`ErrorKind::Io`].
    pub fn open(location: impl AsRef<Path>) -> Result<Archive> {
        Archive::open_with(location, VersionName::Newest, &StorageOptions::default())
    }

    /// Opens an archive at a version, by its number or its tag, or with `None` at the newest, with options of the object
    /// store. Version 1 is the empty archive.
    ///
    /// # Errors
    /// The errors of [`open`](Archive::open), [`ErrorKind::VersionNotFound`] if the version does not exist or has
    /// expired, and [`ErrorKind::Argument`] for an unknown option or tag.
    pub fn open_with(
        location: impl AsRef<Path>,
        version: impl Into<VersionName>,
        options: &StorageOptions,
    ) -> Result<Archive> {
        let storage = Storage::new(location.as_ref(), options)?;
        let versions = Versions::new(&storage);
        let manifest = versions.open(versions.resolve(version.into())?)?;
        Ok(Archive::new(storage, manifest))
    }

    /// Opens an archive at its newest version, or creates it with these phases if there is nothing.
    ///
    /// # Errors
    /// The errors of [`open`](Archive::open) and of [`create_with`](Archive::create_with). An existing archive is not
    /// compared with `phases`.
    pub fn open_or_create(
        location: impl AsRef<Path>,
        phases: Phases,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<Archive> {
        let location = location.as_ref();
        let absent = match Archive::open_with(location, VersionName::Newest, options) {
            Err(error) if error.is_not_found() || matches!(error.kind(), ErrorKind::NotAnArchive { .. }) => error,
            opened => return opened,
        };
        match Archive::create_with(location, phases, options, cancel) {
            Err(error) => match error.kind() {
                // Another process has created it in the meantime.
                ErrorKind::ArchiveExists { .. } => Archive::open_with(location, VersionName::Newest, options),
                // The folder holds other files.
                ErrorKind::Argument { name: "path", .. } => Err(absent),
                _ => Err(error),
            },
            created => created,
        }
    }

    pub(super) fn new(storage: Storage, manifest: Manifest) -> Archive {
        let checksums = !storage.is_remote();
        Archive { storage, manifest: manifest.into(), kept: Arc::default(), checksums }
    }

    /// Returns the same view with checksums on or off.
    ///
    /// If on, queries and exports compare the length and CRC32C of each data file with its manifest before its
    /// first use in a process. This reads the whole file. If off, a flipped bit in a data file can change an
    /// answer.
    ///
    /// By default, checksums are on for a folder and off for an object store. There they would download whole
    /// files for queries that need only some ranges.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("games.a2");
    /// use a2store::{Archive, Phases};
    /// let archive = Archive::create(&path, Phases::default())?;
    /// assert!(archive.has_checksums());
    /// assert!(!archive.with_checksums(false).has_checksums());
    /// # Ok::<(), a2store::Error>(())
    /// ```
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> Archive {
        self.checksums = checksums;
        self
    }

    /// Returns whether each data file is compared with its manifest before its first use.
    #[must_use]
    pub fn has_checksums(&self) -> bool {
        self.checksums
    }

    /// Moves to the newest version.
    ///
    /// # Errors
    /// The errors of [`open`](Archive::open). [`ErrorKind::Damaged`] if the newest version is older than this view.
    pub fn refresh(&mut self) -> Result<()> {
        let versions = Versions::new(&self.storage);
        let newest = versions.newest()?;
        versions.check_follows(&newest, &self.manifest)?;
        if newest.txn != self.manifest.txn {
            self.manifest = newest.into();
        }
        Ok(())
    }

    /// Returns the options of the object store; none for a folder.
    #[must_use]
    pub fn storage_options(&self) -> StorageOptions {
        self.storage.options()
    }

    /// Returns the archive's absolute folder, or its URL.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.storage.root()
    }

    /// Returns the archive's folder, or `None` if the archive is on an object store.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.storage.folder()
    }

    /// Returns whether a path or URL is inside the archive, also by way of symbolic links.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the current folder, or the archive's, cannot be found.
    pub fn contains(&self, path: &Path) -> Result<bool> {
        let is_url = |path: &Path| path.to_str().and_then(|text| url::Url::parse(text).ok());
        let Some(folder) = self.folder() else {
            let (Some(own), Some(other)) = (is_url(self.path()), is_url(path)) else { return Ok(false) };
            let same = own.host() == other.host() && own.port() == other.port();
            return Ok(same && Path::new(other.path()).starts_with(own.path()));
        };
        let path = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        // The path may not exist yet, but some folder above it does.
        let existing = path.ancestors().find_map(|above| above.canonicalize().ok());
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
        Ok(existing.is_some_and(|existing| existing.starts_with(folder)))
    }

    /// Returns the version that this view shows; the empty archive is version 1.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.manifest.version
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn num_runs(&self) -> u64 {
        self.manifest.num_runs
    }

    /// Returns the number of steps.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.manifest.num_steps
    }

    /// Returns the phase thresholds.
    #[must_use]
    pub fn phases(&self) -> Phases {
        self.manifest.phases
    }

    /// Returns the archive's unique id, 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.manifest.archive_id
    }

    /// Returns the columns of a table.
    #[must_use]
    pub fn schema(&self, table: TableName) -> SchemaRef {
        table_schema(table)
    }

    /// Returns the commits of the unexpired versions up to this version, newest first. Reads their manifests.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a manifest is damaged. [`ErrorKind::NotAnArchive`], [`ErrorKind::Io`].
    pub fn history(&self) -> Result<Vec<CommitInfo>> {
        Versions::new(&self.storage).history(&self.manifest)
    }

    /// Returns the absolute paths or URLs of a table's Parquet files at this version, in the order of their run
    /// ids.
    #[must_use]
    pub fn files(&self, table: TableName) -> Vec<PathBuf> {
        self.manifest.files(table).map(|file| self.storage.path(&file.path)).collect()
    }

    /// Returns the size of a table's files, in bytes.
    #[must_use]
    pub fn num_bytes(&self, table: TableName) -> u64 {
        self.manifest.files(table).map(|file| file.num_bytes).sum()
    }

    pub(crate) fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns the store through which data files are read; its root is the archive.
    pub(crate) fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        self.storage.store()
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("path", &self.path())
            .field("version", &self.version())
            .field("num_runs", &self.num_runs())
            .field("num_steps", &self.num_steps())
            .finish()
    }
}

/// Rejects a folder that holds other files. Accepts the folders of an archive: its manifests decide about these.
fn check_empty(root: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(Error::io(root, source)),
    };
    for entry in entries {
        let name = entry.map_err(|source| Error::io(root, source))?.file_name();
        if ![VERSIONS_FOLDER, TAGS_FOLDER, IDS_FOLDER, "annotations", "runs", "steps"].iter().any(|own| name == *own) {
            let found = format!("{} with {} in it", root.display(), name.display());
            return Err(Error::argument("path", "a new or empty folder", found));
        }
    }
    Ok(())
}
