//! The operations that an archive needs of its storage.

use super::storage_options::StorageOptions;
use crate::error::Result;
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{Published, Staged};
use bytes::Bytes;
use object_store::ObjectStore;
use std::fmt::Debug;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The storage of an archive. Paths are relative to the archive, with `/` as separator.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Returns the absolute folder, or the URL.
    fn root(&self) -> &Path;

    /// Returns the absolute folder; `None` for an object store.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Returns whether operations are requests over a network. A request that failed may still take effect later, and a
    /// file that can be read is durable. In a folder, neither is so.
    fn is_remote(&self) -> bool {
        self.folder().is_none()
    }

    /// Returns the options of the object store.
    fn options(&self) -> StorageOptions {
        StorageOptions::default()
    }

    /// Returns the absolute path or the URL of a file in the archive.
    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Returns the store through which queries read data files; its root is the archive.
    fn store(&self) -> Result<Arc<dyn ObjectStore>>;

    /// Creates the folder of the archive and folders in it, if the storage has folders.
    fn create_folders(&self, _folders: &[&str]) -> Result<()> {
        Ok(())
    }

    /// Reads a small file; returns `None` if there is no file.
    fn read(&self, path: &str) -> Result<Option<Bytes>>;

    /// Reads many files, like [`read`](Self::read), and possibly at the same time.
    fn read_all(&self, paths: &[String]) -> Result<Vec<Result<Option<Bytes>>>> {
        Ok(paths.iter().map(|path| self.read(path)).collect())
    }

    /// Opens a data file for reading; returns `None` if there is no file.
    fn open(&self, path: &str) -> Result<Option<File>>;

    /// Returns the modification and change times of a file. All numbers are 0 if files never change.
    fn last_change(&self, _path: &str) -> [i64; 4] {
        [0; 4]
    }

    /// Lists the files in a folder, in no particular order. A missing folder has none.
    fn list(&self, folder: &str) -> Result<Vec<ListedFile>>;

    /// Lists the names in a folder, like [`list`](Self::list). They may include names of folders in it.
    fn names(&self, folder: &str) -> Result<Vec<String>> {
        Ok(self.list(folder)?.into_iter().map(|file| file.name).collect())
    }

    /// Returns the first names in a folder, in the order of bytes, that do not begin with a dot.
    fn first_names(&self, folder: &str, count: usize) -> Result<Vec<String>>;

    /// Publishes a small file, unless its name is taken. After an error, the file may exist nevertheless.
    fn put_new(&self, path: &str, bytes: Bytes) -> Result<Published>;

    /// Begins a data file: in its folder, or in the system's temporary folder.
    fn stage(&self, folder: &str) -> Result<Staged> {
        Staged::new(&self.folder().map_or_else(std::env::temp_dir, |root| root.join(folder)))
    }

    /// Publishes a data file under a free name.
    fn put_file(&self, staged: Staged, path: &str, cancel: &CancellationToken) -> Result<()>;

    /// Publishes several data files, possibly at the same time.
    fn put_files(&self, files: Vec<(Staged, &str)>, cancel: &CancellationToken) -> Vec<Result<()>> {
        files.into_iter().map(|(staged, path)| self.put_file(staged, path, cancel)).collect()
    }

    /// Removes a file; a missing file is no error.
    fn remove(&self, path: &str) -> Result<()>;

    /// Makes a path durable: the content of a file, or the names in a folder.
    fn sync(&self, _path: &str) -> Result<()> {
        Ok(())
    }

    /// Excludes other writers of this machine until the guard is dropped or the process dies. Waits up to `wait` for
    /// them.
    ///
    /// Returns `None` if the storage has no locks. Then only put-if-absent excludes other writers.
    fn lock(&self, _path: &str, _wait: Duration, _cancel: &CancellationToken) -> Result<Option<Guard>> {
        Ok(None)
    }

    /// Returns the current time.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// Pauses this thread.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A lock that is held until the guard is dropped.
pub(in crate::archive) type Guard = Box<dyn Send>;

/// A file in a folder of an archive.
#[derive(Clone, Debug)]
pub(crate) struct ListedFile {
    pub(crate) name: String,
    pub(crate) num_bytes: u64,
    pub(crate) modified: SystemTime,
}
