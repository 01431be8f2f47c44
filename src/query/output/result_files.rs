//! Writing a result to a file, or to a folder or a URL as several files.

use crate::archive::{Storage, StorageOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::StagedFolder;
use crate::query::output::stream::QueryStream;
use crate::query::output::write::RowFormat;
use crate::query::query::Query;
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{Output, parent, staged_in};
use crate::system::random;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind::AlreadyExists};
use std::path::{Path, PathBuf};

impl Query {
    /// Runs the query, writes its rows to a file as they are made, and returns their number.
    ///
    /// The complete file replaces an existing one, durably and in one step. After an error or a cancellation, the
    /// existing file is unchanged. Writes directly to a pipe or a device.
    ///
    /// A path that ends in `/` and a URL are folders: they get the files `part-00000.parquet`, `part-00001.parquet`, …,
    /// whose rows in the order of their names are the result. Neither the folder nor an object under the URL may exist.
    /// A query that an engine divides as a whole writes a file per task; other queries write one file. A folder appears
    /// when it is complete. Under a URL, each file appears when it is complete, and its name has a random part. After an
    /// error, the query removes its files. A URL is opened with the archive's storage options.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// use a2store::CancellationToken;
    /// use a2store::query::{RowFormat, no_params};
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
        if self.archive().contains(path)? {
            return Err(Error::argument("path", "a file outside of the archive", path.display()));
        }
        let rows = self.stream(cancel)?;
        let output = Output::create(path)?;
        let num_rows = rows.write_to(format, output.file(), cancel).map_err(|error| error.with_path(path))?;
        output.publish()?;
        Ok(num_rows)
    }

    fn write_folder(&self, path: &Path, format: RowFormat, cancel: &CancellationToken) -> Result<u64> {
        let options = self.archive().storage_options();
        if self.archive().contains(path)? {
            return Err(Error::argument("path", "a folder outside of the archive", path.display()));
        }
        let folder = OutputFolder::create(path, format, &options)?;
        let limits = self.limits();
        let written = match self.write_by_tasks(&folder.files, &limits, cancel) {
            Ok(None) => self
                .execution(&limits, cancel)
                .and_then(|execution| folder.files.write(0, self.stream_of(execution, limits), &options, cancel)),
            written => written.map(Option::unwrap_or_default),
        };
        folder.finish(written)
    }
}

/// The files of a result, which several processes may write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::query) struct OutputFiles {
    /// The absolute folder, or the URL.
    root: PathBuf,
    /// The end of the files' names. Under a URL it is unique, so that two writers never mistake their files.
    suffix: String,
    format: RowFormat,
}

impl OutputFiles {
    /// Writes rows to the file with a number, and returns their number. The file appears when it is complete. A process
    /// that repeats the work of another process leaves the file as it is.
    pub(in crate::query) fn write(
        &self,
        number: usize,
        rows: QueryStream,
        options: &StorageOptions,
        cancel: &CancellationToken,
    ) -> Result<u64> {
        let storage = Storage::new(&self.root, options)?;
        let staged = storage.stage("")?;
        let num_rows =
            rows.write_to(self.format, staged.file(), cancel).map_err(|error| error.with_path(&self.root))?;
        match storage.put_file(staged, &format!("part-{number:05}{}", self.suffix), cancel) {
            Err(error) if matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == AlreadyExists) => {}
            published => published?,
        }
        Ok(num_rows)
    }
}

/// A folder or a prefix of an object store that is being filled.
struct OutputFolder {
    files: OutputFiles,
    storage: Storage,
    /// A folder under a staging name, and its own name.
    staged: Option<(StagedFolder, PathBuf)>,
}

impl OutputFolder {
    /// Returns whether a path leads to a folder or an object store, and not to a file.
    fn is_meant(path: &Path) -> bool {
        let text = path.as_os_str().to_string_lossy();
        text.ends_with('/') || text.contains("://")
    }

    /// Begins a new folder, or a prefix without objects.
    fn create(path: &Path, format: RowFormat, options: &StorageOptions) -> Result<OutputFolder> {
        let storage = Storage::new(path, options)?;
        let extension = format.extension();
        let Some(folder) = storage.folder() else {
            if path.to_string_lossy().contains(['?', '#']) {
                return Err(Error::argument("path", "a URL without `?` and `#`", path.display()));
            }
            if let Some(name) = storage.names("")?.into_iter().next() {
                return Err(taken(path, "nothing", &name));
            }
            let (root, suffix) = (storage.root().to_path_buf(), format!("-{}.{extension}", &random::id()[..12]));
            return Ok(OutputFolder { files: OutputFiles { root, suffix, format }, storage, staged: None });
        };
        // Without a slash at its end, a link is not followed.
        let name: PathBuf = folder.components().collect();
        if name.symlink_metadata().is_ok() {
            return Err(taken(path, "nothing", "a file or folder"));
        }
        let folder = StagedFolder::new_in(parent(&name))?;
        let (root, suffix) = (folder.path().to_path_buf(), format!(".{extension}"));
        Ok(OutputFolder { files: OutputFiles { root, suffix, format }, storage, staged: Some((folder, name)) })
    }

    /// Completes the folder if its files were written, or else removes them.
    fn finish(self, written: Result<u64>) -> Result<u64> {
        if let Some((folder, name)) = self.staged {
            let num_rows = written?;
            // A worker that was killed may have left a part of a file.
            for file in staged_in(folder.path())? {
                std::fs::remove_file(&file).map_err(|source| Error::io(file, source))?;
            }
            return folder.publish(&name).map(|()| num_rows);
        }
        let names = self.storage.names("");
        // The error that stopped the writers matters more.
        let names = if written.is_ok() { names? } else { names.unwrap_or_default() };
        let (own, others): (Vec<String>, Vec<String>) =
            names.into_iter().partition(|name| name.ends_with(&self.files.suffix));
        let written = written.and_then(|num_rows| match others.first() {
            None => Ok(num_rows),
            Some(name) => Err(taken(self.storage.root(), "no other objects", name)),
        });
        written.inspect_err(|_| own.iter().for_each(|name| _ = self.storage.remove(name)))
    }
}

fn taken(path: &Path, expected: &str, found: &str) -> Error {
    Error::io(path, io::Error::new(AlreadyExists, format!("expected {expected}, found {found}")))
}
