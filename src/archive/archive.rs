//! The type [`Archive`]: creating and opening, the operations, and the facts of a version.

use super::annotations::{self, AnnotateOptions, AnnotateReport, AnnotationInput, ModelInfo};
use super::ingest;
use super::ingest::digests::KeptDigests;
use super::ingest::ingest_report::{IngestOptions, IngestReport};
use super::ingest::run_ids::IDS_FOLDER;
use super::maintenance::compact::{self, CompactOptions, CompactReport};
use super::maintenance::expire::{self, ExpireOptions, ExpireReport};
use super::maintenance::restore::{self, RestoreReport};
use super::maintenance::verify::{self, VerifyReport};
use super::manifest::tagging;
use super::manifest::tags::{TAGS_FOLDER, VersionName, tags};
use super::manifest::versions::{Publication, VERSIONS_FOLDER, Versions};
use super::manifest::{CommitInfo, Manifest};
use super::phases::Phases;
use super::problem::damaged;
use super::schema::table_schema;
use super::storage::Storage;
use super::storage::storage_options::StorageOptions;
use super::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Container, RunInput};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use arrow::datatypes::SchemaRef;
use object_store::ObjectStore;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::info;

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
    kept: Arc<KeptDigests>,
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
                return Err(damaged(&storage.path(VERSIONS_FOLDER), "manifests", expected, path));
            }
        }
        if let Some((name, _)) = tags(&storage)?.first_key_value() {
            let expected = "no tags without a manifest";
            return Err(damaged(&storage.path(VERSIONS_FOLDER), "manifests", expected, format!("the tag {name}")));
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
        let version = tagging::resolve(&storage, version.into())?;
        let manifest = Versions::new(&storage).open(version)?;
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

    /// Reads run files and folders, with all their subfolders, and commits the new runs as one version.
    ///
    /// Skips each run whose content the archive already holds, compared by digest. Reports each file that does
    /// not decode, and reads on. Run ids follow the order of the paths and do not depend on the number of
    /// workers. If no run is new, nothing is committed. An interrupted ingest that is repeated ends in the same
    /// archive.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if a path does not exist or the file system fails. [`ErrorKind::Conflict`] if another
    /// process keeps writing. [`ErrorKind::Cancelled`]. With [`IngestOptions::strict`], also
    /// the error of the first bad file. After each of these errors the archive is unchanged.
    ///
    /// [`ErrorKind::Unconfirmed`] if the commit was written but not confirmed: repeat the call.
    pub fn ingest<P: AsRef<Path>>(
        &mut self,
        paths: impl IntoIterator<Item = P>,
        options: &IngestOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<IngestReport> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
        self.ingest_input(RunInput::Paths(&paths), options, progress, cancel)
    }

    /// Ingests the runs of a recording. Compares ids instead of content: a run is new if its session and id are
    /// new.
    ///
    /// This view must not show any of the recording's runs.
    pub(crate) fn ingest_recorded(
        &mut self,
        runs: &Arc<Container>,
        options: &IngestOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<IngestReport> {
        let recorded_since = Some(self.manifest.next_run_id);
        self.ingest_input(RunInput::Open { runs, recorded_since }, options, progress, cancel)
    }

    fn ingest_input(
        &mut self,
        input: RunInput<'_>,
        options: &IngestOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<IngestReport> {
        let (report, manifest) =
            ingest::ingest(&self.storage, &self.manifest, &self.kept, input, options, progress, cancel)?;
        self.manifest = manifest.into();
        Ok(report)
    }

    /// Merges small data files, such as those of hourly ingests, into files of full size, and commits the
    /// result.
    ///
    /// The rows, their order and their ids stay the same. No file is removed: older versions need the small
    /// files until [`expire`](Archive::expire) drops these versions.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a file cannot be read back. [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`],
    /// [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn compact(
        &mut self,
        options: &CompactOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<CompactReport> {
        let (report, manifest) = compact::compact(&self.storage, &self.manifest, options, progress, cancel)?;
        info!(
            target: "a2store::maintenance",
            archive = %self.path().display(),
            files_before = report.files_before,
            files_after = report.files_after,
            rows = report.num_rows,
            "compact ended"
        );
        self.manifest = manifest.into();
        Ok(report)
    }

    /// Adds a model's predictions for steps of the archive, and commits them as one version.
    ///
    /// Every step must exist in the archive. Moves and legal moves must equal those of `steps`. The table `annotations`
    /// then has a row per step and model. A call with [`AnnotateOptions::replace`] replaces the model's rows.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`], [`ErrorKind::Header`] and [`ErrorKind::Argument`] if the annotations are damaged or
    /// contradict the archive. [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`],
    /// [`ErrorKind::Unconfirmed`]. After each of these errors but the last, the archive is unchanged.
    pub fn annotate(
        &mut self,
        model: &str,
        input: AnnotationInput<'_>,
        options: &AnnotateOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<AnnotateReport> {
        let (report, manifest) =
            annotations::annotate(&self.storage, &self.manifest, model, input, options, progress, cancel)?;
        info!(
            target: "a2store::ingest",
            archive = %self.path().display(),
            model,
            runs = report.num_runs,
            rows = report.num_rows,
            replaced_rows = report.replaced_rows,
            "annotate ended"
        );
        self.manifest = manifest.into();
        Ok(report)
    }

    /// Drops a model's annotations, and commits this as one version. Earlier versions still have them.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the archive has no annotations of the model. [`ErrorKind::Conflict`],
    /// [`ErrorKind::Cancelled`], [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn drop_annotations(&mut self, model: &str, cancel: &CancellationToken) -> Result<ModelInfo> {
        let (dropped, manifest) = annotations::drop_model(&self.storage, &self.manifest, model, cancel)?;
        self.manifest = manifest.into();
        Ok(dropped)
    }

    /// Returns the models with annotations, in the order of their names.
    #[must_use]
    pub fn annotations(&self) -> Vec<ModelInfo> {
        annotations::models(&self.manifest)
    }

    /// Drops versions that were replaced long ago, and removes their manifests and the data files that no remaining
    /// version needs.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn expire(&mut self, options: &ExpireOptions, cancel: &CancellationToken) -> Result<ExpireReport> {
        let (report, manifest) = expire::expire(&self.storage, &self.manifest, options, cancel)?;
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

    /// Checks an archive and reports every problem, including damage that keeps the archive from being opened.
    ///
    /// Checks the manifest of every version that has not expired, and every data file of these versions:
    /// presence, length, checksum, number of rows and ids. Builds every run of the newest version that has a row in
    /// `runs`, and compares it with its digest, with `runs.verified`, and with the rows that an ingest would write.
    ///
    /// `workers` is the number of threads; `None` = one per core.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Cancelled`]. [`ErrorKind::Io`] if the location cannot be read.
    /// [`ErrorKind::Argument`] for an unknown option of the object store. [`ErrorKind::Conflict`] if other processes
    /// repeatedly replace and expire the newest version during the check. Problems of the archive are no error: the
    /// report lists them.
    pub fn verify(
        location: impl AsRef<Path>,
        workers: Option<usize>,
        storage: &StorageOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<VerifyReport> {
        verify::verify(&Storage::new(location.as_ref(), storage)?, workers, progress, cancel)
    }

    /// Makes a new version with the files of an older one, or with `None` of the newest sound version. With `dry_run`,
    /// only reports the changes.
    ///
    /// The new version also adopts data files that no manifest lists, if they hold whole runs that the version does not
    /// have. So nothing is lost with a damaged manifest. Damaged manifests that the new version replaces are removed.
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
    /// [`ErrorKind::NotAnArchive`]. [`ErrorKind::VersionNotFound`]. [`ErrorKind::Damaged`] if the version is damaged, or
    /// all versions are. [`ErrorKind::Argument`] for an unknown option of the object store. [`ErrorKind::Conflict`],
    /// [`ErrorKind::Io`], [`ErrorKind::Cancelled`], [`ErrorKind::Unconfirmed`].
    pub fn restore(
        location: impl AsRef<Path>,
        version: impl Into<VersionName>,
        dry_run: bool,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<RestoreReport> {
        let storage = Storage::new(location.as_ref(), options)?;
        let version = tagging::resolve(&storage, version.into())?;
        let report = restore::restore(&storage, version, dry_run, cancel)?;
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
    /// assert_eq!(archive.untag("baseline-3")?, 1);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for such a name, or if another version has it. [`ErrorKind::VersionNotFound`] if the
    /// version has expired. [`ErrorKind::Io`].
    pub fn tag(&self, name: &str, version: Option<u64>) -> Result<()> {
        tagging::tag(&self.storage, name, version.unwrap_or(self.version()))
    }

    /// Returns the tags of the archive with their versions, in the order of their names.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a tag is damaged. [`ErrorKind::Io`].
    pub fn tags(&self) -> Result<BTreeMap<String, u64>> {
        tags(&self.storage)
    }

    /// Removes a tag, and returns its version. The version itself stays until it expires.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if there is no such tag. [`ErrorKind::Io`].
    pub fn untag(&self, name: &str) -> Result<u64> {
        tagging::untag(&self.storage, name)
    }

    /// Returns the columns of a table.
    #[must_use]
    pub fn schema(&self, table: TableName) -> SchemaRef {
        table_schema(table)
    }

    /// Returns the commits of the versions up to this one that have not expired, newest first. Reads their manifests.
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

    /// Returns whether one of two archives is a clone of the other, at the same version. Another opening of the version is
    /// not.
    #[must_use]
    pub fn is_clone_of(&self, other: &Archive) -> bool {
        Arc::ptr_eq(&self.manifest, &other.manifest)
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
