//! Writing a result to a file, or to a folder or a URL as several files.

use super::planned::Query;
use super::stream::QueryStream;
use super::write::{FirstError, RowFormat};
use crate::archive::{Storage, StorageOptions};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{StagedFolder, check_free};
use crate::publish::{Output, parent};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind::AlreadyExists};
use std::path::{Path, PathBuf};

impl Query {
    /// Runs the query, writes its rows to a file as they are made, and returns their number.
    ///
    /// The complete file replaces an existing one, durably and in one step. After an error or a cancellation, the
    /// existing file is unchanged. A pipe or a device is written directly.
    ///
    /// A path that ends in `/`, an existing folder and a URL are folders: they get the files `part-00000.parquet`,
    /// `part-00001.parquet`, …, whose rows in the order of their names are the result. They must be free or empty. A query
    /// that an engine divides as a whole writes a file for each task, and others write one. A folder appears when it is
    /// complete. An object store gets each file when it is complete, and after an error these are removed again. A URL is
    /// opened with the archive's storage options.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// use a2store::{CancellationToken, RowFormat, no_params};
    /// let query = archive.sql("SELECT 1 AS one", no_params())?;
    /// let path = folder.path().join("one.csv");
    /// assert_eq!(query.write(&path, RowFormat::Csv, &CancellationToken::new())?, 1);
    /// assert_eq!(std::fs::read_to_string(path)?, "one\n1\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a path inside the archive.
    /// [`ErrorKind::Query`](crate::ErrorKind::Query), also for a column that the format cannot hold.
    /// [`ErrorKind::Io`](crate::ErrorKind::Io); [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn write(&self, path: impl AsRef<Path>, format: RowFormat, cancel: &CancellationToken) -> Result<u64> {
        let path = path.as_ref();
        if OutputFolder::is_meant(path) {
            return self.write_folder(path, format, cancel);
        }
        let absolute = std::path::absolute(path).map_err(|source| Error::io(path, source))?;
        if absolute.starts_with(self.archive().path()) {
            return Err(Error::argument("path", "a file outside of the archive", path.display()));
        }
        let rows = self.stream(cancel)?;
        let output = Output::create(path)?;
        let mut file = FirstError::new(output.file());
        let num_rows = rows.write_to(format, &mut file, cancel).map_err(|error| file.explain(path, error))?;
        output.publish()?;
        Ok(num_rows)
    }

    fn write_folder(&self, path: &Path, format: RowFormat, cancel: &CancellationToken) -> Result<u64> {
        let options = self.archive().storage_options();
        let folder = OutputFolder::create(path, self.archive().path(), format, &options)?;
        let limits = self.limits();
        let written = match self.write_by_tasks(folder.files(), &limits, cancel) {
            Ok(None) => self
                .execution(&limits, cancel)
                .and_then(|execution| folder.files().write(0, self.stream_of(execution, limits), &options, cancel)),
            written => written.map(Option::unwrap_or_default),
        };
        folder.finish(written)
    }
}

/// The files of a result, which several processes may write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OutputFiles {
    /// The absolute folder, or the URL.
    root: PathBuf,
    format: RowFormat,
}

impl OutputFiles {
    /// Writes rows to the file with a number, and returns their number. The file appears when it is complete. A process
    /// that repeats the work of another one leaves the file as it is.
    pub(super) fn write(
        &self,
        number: usize,
        rows: QueryStream,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<u64> {
        let storage = Storage::new(&self.root, options)?;
        let staged = storage.stage("")?;
        let mut file = FirstError::new(staged.file());
        let num_rows =
            rows.write_to(self.format, &mut file, cancel).map_err(|error| file.explain(&self.root, error))?;
        match storage.publish(staged, &format!("part-{number:05}.{}", self.format.extension()), cancel) {
            Err(error) if matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == AlreadyExists) => {}
            published => published?,
        }
        Ok(num_rows)
    }
}

/// A folder or a prefix of an object store that is being filled.
pub(super) struct OutputFolder {
    files: OutputFiles,
    storage: Storage,
    /// A folder under a staging name, and its own name.
    staged: Option<(StagedFolder, PathBuf)>,
}

impl OutputFolder {
    /// Returns whether a path leads to a folder or an object store, and not to a file.
    pub(super) fn is_meant(path: &Path) -> bool {
        let text = path.as_os_str().to_string_lossy();
        text.ends_with('/') || text.contains("://") || path.is_dir()
    }

    /// Begins a folder, which must be free or empty, and outside of the archive.
    pub(super) fn create(
        path: &Path,
        archive: &Path,
        format: RowFormat,
        options: &StorageOptions,
    ) -> Result<OutputFolder> {
        let storage = Storage::new(path, options)?;
        if storage.root().starts_with(archive) {
            return Err(Error::argument("path", "a folder outside of the archive", path.display()));
        }
        let Some(name) = storage.folder() else {
            if storage.names("")?.is_some_and(|names| !names.is_empty()) {
                return Err(Error::io(path, io::Error::new(AlreadyExists, "expected no objects, found some")));
            }
            let root = storage.root().to_path_buf();
            return Ok(OutputFolder { files: OutputFiles { root, format }, storage, staged: None });
        };
        check_free(name)?;
        let folder = StagedFolder::new_in(parent(name))?;
        let root = folder.path().to_path_buf();
        let staged = Some((folder, name.to_path_buf()));
        Ok(OutputFolder { files: OutputFiles { root, format }, storage, staged })
    }

    pub(super) fn files(&self) -> &OutputFiles {
        &self.files
    }

    /// Gives a folder its name if its files were written, or else removes them.
    pub(super) fn finish(self, written: Result<u64>) -> Result<u64> {
        match (self.staged, written) {
            (Some((folder, name)), Ok(num_rows)) => folder.publish(&name).map(|()| num_rows),
            (None, Err(error)) => {
                // The error that stopped the writers matters more than one of removing their files.
                for name in self.storage.names("").ok().flatten().into_iter().flatten() {
                    let _ = self.storage.remove(&name);
                }
                Err(error)
            }
            (_, written) => written,
        }
    }
}
