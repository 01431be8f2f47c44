//! The storage of an archive: a folder of this machine, or a prefix of an object store.
//!
//! An archive needs few operations: read a file, list a folder, publish a file under a free name, and remove a
//! file. In a folder, [`Staged`] publishes files; an object store uses a conditional put. Paths are relative to
//! the archive, with `/` as separator.

pub(in crate::archive) mod listing;
pub(in crate::archive) mod lock;
pub(in crate::archive) mod remote;
pub(in crate::archive) mod storage_options;

use self::listing::{ListedFile, list_folder};
use self::lock::Lock;
use self::remote::Remote;
use self::storage_options::StorageOptions;
use crate::archive::problem::damaged;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::publish::{self, Published, Staged};
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The location of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    /// The absolute folder, or the URL.
    root: PathBuf,
    remote: Option<Remote>,
}

impl Storage {
    /// Returns the location that a path or URL names, without accessing it.
    pub(crate) fn new(location: &Path, options: &StorageOptions) -> Result<Storage> {
        let url = location.to_str().filter(|text| text.contains("://"));
        if let Some(text) = url.filter(|text| !text.starts_with("file://")) {
            let remote = Remote::new(text, options)?;
            return Ok(Storage { root: remote.url().into(), remote: Some(remote) });
        }
        let folder = match url {
            Some(url) => url::Url::parse(url)
                .ok()
                .and_then(|url| url.to_file_path().ok())
                .ok_or_else(|| Error::argument("path", "a folder or a URL of one", url))?,
            None => location.to_path_buf(),
        };
        let root = std::path::absolute(&folder).map_err(|source| Error::io(folder, source))?;
        Ok(Storage { root, remote: None })
    }

    /// Returns the absolute folder, or the URL.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the absolute folder; `None` for an object store.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.remote.is_none().then_some(&*self.root)
    }

    /// Returns the options of the object store; none for a folder.
    pub(in crate::archive) fn options(&self) -> StorageOptions {
        self.remote.as_ref().map(|remote| remote.options().clone()).unwrap_or_default()
    }

    /// Returns the absolute path or the URL of a file in the archive.
    pub(in crate::archive) fn path(&self, path: &str) -> PathBuf {
        match &self.remote {
            None => self.root.join(path),
            Some(_) => format!("{}/{path}", self.root.display()).into(),
        }
    }

    /// Returns whether the archive is a folder. Only there can a lock exclude other writers of this machine.
    pub(in crate::archive) fn is_local(&self) -> bool {
        self.remote.is_none()
    }

    /// Returns the store through which queries read data files; its root is the archive.
    pub(in crate::archive) fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        match &self.remote {
            Some(remote) => remote.store(),
            None => {
                std::fs::metadata(&self.root).map_err(|source| Error::io(&self.root, source))?;
                let store = LocalFileSystem::new_with_prefix(&self.root);
                Ok(Arc::new(store.map_err(|error| Error::io(&self.root, io::Error::other(error)))?))
            }
        }
    }

    /// Creates the folders of a new archive.
    pub(in crate::archive) fn create_folders<'a>(&self, folders: impl IntoIterator<Item = &'a str>) -> Result<()> {
        if self.remote.is_some() {
            return Ok(());
        }
        publish::create_folders(&self.root)?;
        folders.into_iter().try_for_each(|folder| publish::create_folder(&self.root.join(folder)))
    }

    /// Reads a small file; returns `None` if there is no file.
    pub(in crate::archive) fn read(&self, path: &str) -> Result<Option<Bytes>> {
        match &self.remote {
            Some(remote) => remote.read(path),
            None => Ok(existing(self.path(path), |path| std::fs::read(path))?.map(Bytes::from)),
        }
    }

    /// Opens a data file for reading; returns `None` if there is no file. Downloads a file of an object store.
    pub(in crate::archive) fn open(&self, path: &str) -> Result<Option<File>> {
        match &self.remote {
            Some(remote) => remote.fetch(path),
            None => existing(self.path(path), |path| File::open(path)),
        }
    }

    /// Returns the modification and change times of a file. In an object store, files never change, and all numbers
    /// are 0.
    pub(in crate::archive) fn last_change(&self, path: &str) -> [i64; 4] {
        let metadata = self.remote.is_none().then(|| std::fs::metadata(self.root.join(path)).ok()).flatten();
        let times = |file: std::fs::Metadata| [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        metadata.map_or([0; 4], times)
    }

    /// Reads many files, like [`read`](Self::read). An object store gets concurrent requests.
    pub(in crate::archive) fn read_all(&self, paths: Vec<String>) -> Result<Vec<Result<Option<Bytes>>>> {
        match &self.remote {
            Some(remote) => remote.read_all(paths),
            None => Ok(paths.iter().map(|path| self.read(path)).collect()),
        }
    }

    /// Lists the files in a folder, in no particular order; returns `None` if there is no such folder.
    pub(in crate::archive) fn list(&self, folder: &str) -> Result<Option<Vec<ListedFile>>> {
        match &self.remote {
            Some(remote) => remote.list(folder, None).map(Some),
            None => list_folder(&self.root.join(folder), true),
        }
    }

    /// Lists the names of the files in a folder, in no particular order; returns `None` if there is no such
    /// folder.
    pub(crate) fn names(&self, folder: &str) -> Result<Option<Vec<String>>> {
        self.names_from(folder, "")
    }

    /// Returns the first name in a folder of an object store, which lists names in the order of their bytes. Returns
    /// `None` if there is no file, or for a folder of this machine.
    pub(in crate::archive) fn first_name(&self, folder: &str) -> Result<Option<String>> {
        self.remote.as_ref().map_or(Ok(None), |remote| remote.first_name(folder))
    }

    /// Lists the names of the files in a folder, from the name `first` on.
    pub(in crate::archive) fn names_from(&self, folder: &str, first: &str) -> Result<Option<Vec<String>>> {
        let entries = match &self.remote {
            Some(remote) => Some(remote.list(folder, (!first.is_empty()).then_some(first))?),
            None => list_folder(&self.root.join(folder), false)?,
        };
        let names = |entries: Vec<ListedFile>| entries.into_iter().map(|entry| entry.name);
        Ok(entries.map(|entries| names(entries).filter(|name| &**name >= first).collect()))
    }

    /// Publishes a small file, unless its name is taken. After an error, the file may exist nevertheless.
    pub(in crate::archive) fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<Published> {
        if let Some(remote) = &self.remote {
            return remote.put_new(path, bytes);
        }
        let name = self.root.join(path);
        self.staged(&name, &bytes)?.publish(&name)
    }

    /// Stages a small file and compares it with `bytes`.
    fn staged(&self, name: &Path, bytes: &[u8]) -> Result<Staged> {
        let mut staged = Staged::new(name.parent().unwrap_or(&self.root))?;
        let as_io = |source| Error::io(name, source);
        staged.write_all(bytes).map_err(as_io)?;
        let mut found = Vec::with_capacity(bytes.len());
        let mut file = staged.file();
        file.rewind().and_then(|()| file.read_to_end(&mut found)).map_err(as_io)?;
        if found != bytes {
            let place = bytes.iter().zip(&found).take_while(|(written, read)| written == read).count();
            let expected = format!("the {} bytes that were written", bytes.len());
            return Err(damaged(
                name,
                "written file",
                expected,
                format!("{} bytes, different from byte {place} on", found.len()),
            ));
        }
        Ok(staged)
    }

    /// Begins a data file: in its folder, or for an object store in the system's temporary folder.
    pub(crate) fn stage(&self, folder: &str) -> Result<Staged> {
        match &self.remote {
            Some(_) => Staged::new(&std::env::temp_dir()),
            None => Staged::new(&self.root.join(folder)),
        }
    }

    /// Publishes a data file under a free name.
    pub(crate) fn publish(&self, staged: Staged, path: &str, cancel: &CancellationToken) -> Result<()> {
        if let Some(remote) = &self.remote {
            return remote.upload(staged.path(), path, cancel);
        }
        let name = self.root.join(path);
        match staged.publish(&name)? {
            Published::New => Ok(()),
            Published::Taken => Err(Error::io(name, io::Error::from(io::ErrorKind::AlreadyExists))),
        }
    }

    /// Removes a file; a missing file is no error.
    pub(crate) fn remove(&self, path: &str) -> Result<()> {
        match &self.remote {
            Some(remote) => remote.remove(path),
            None => existing(self.path(path), |path| std::fs::remove_file(path)).map(|_| ()),
        }
    }

    /// Makes a path durable: the content of a file, or the names in a folder.
    pub(in crate::archive) fn sync(&self, path: &str) -> Result<()> {
        match self.remote {
            Some(_) => Ok(()),
            None => publish::sync(&self.root.join(path)),
        }
    }

    /// Excludes other writers of this machine until the lock is dropped or the process dies. Waits up to `wait`
    /// for them.
    ///
    /// Returns `None` for an object store. Its writers, and writers on other machines, are excluded only by
    /// put-if-absent.
    pub(in crate::archive) fn lock(
        &self,
        path: &str,
        wait: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<Lock>> {
        match self.remote {
            Some(_) => Ok(None),
            None => Lock::acquire(&self.root, &self.root.join(path), wait, cancel).map(Some),
        }
    }
}

/// Applies an operation to a file; returns `None` if there is no file.
fn existing<T>(path: PathBuf, operation: impl Fn(&Path) -> io::Result<T>) -> Result<Option<T>> {
    match operation(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some).map_err(|source| Error::io(path, source)),
    }
}
