//! Archives in a folder of this machine. [`Staged`] publishes their files.

use super::backend::{Backend, Guard, ListedFile};
use super::lock::Lock;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{self, Published, Staged};
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An absolute folder.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Backend for Folder {
    fn root(&self) -> &Path {
        &self.0
    }

    fn folder(&self) -> Option<&Path> {
        Some(&self.0)
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        std::fs::metadata(&self.0).map_err(|source| Error::io(&self.0, source))?;
        let store = LocalFileSystem::new_with_prefix(&self.0);
        Ok(Arc::new(store.map_err(|error| Error::io(&self.0, io::Error::other(error)))?))
    }

    fn create_folders(&self, folders: &[&str]) -> Result<()> {
        publish::create_folders(&self.0)?;
        folders.iter().try_for_each(|folder| publish::create_folder(&self.0.join(folder)))
    }

    fn read(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(existing(self.path(path), |path| std::fs::read(path))?.map(Bytes::from))
    }

    fn open(&self, path: &str) -> Result<Option<File>> {
        existing(self.path(path), |path| File::open(path))
    }

    fn last_change(&self, path: &str) -> [i64; 4] {
        let times = |file: std::fs::Metadata| [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        std::fs::metadata(self.path(path)).map_or([0; 4], times)
    }

    fn list(&self, folder: &str) -> Result<Vec<ListedFile>> {
        let mut files = Vec::new();
        for name in self.names(folder)? {
            let metadata = existing(self.path(folder).join(&name), Path::symlink_metadata)?;
            if let Some(metadata) = metadata.filter(Metadata::is_file) {
                let modified = metadata.modified().map_err(|source| Error::io(self.path(folder), source))?;
                files.push(ListedFile { name, num_bytes: metadata.len(), modified });
            }
        }
        Ok(files)
    }

    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let folder = self.path(folder);
        let entries = existing(folder.clone(), |folder| std::fs::read_dir(folder))?;
        let mut names = Vec::new();
        for entry in entries.into_iter().flatten() {
            let name = entry.map_err(|source| Error::io(&folder, source))?.file_name();
            names.extend(name.into_string());
        }
        Ok(names)
    }

    fn first_names(&self, folder: &str, count: usize) -> Result<Vec<String>> {
        let mut names = self.names(folder)?;
        names.retain(|name| !name.starts_with('.'));
        if count < names.len() {
            names.select_nth_unstable(count);
            names.truncate(count);
        }
        names.sort_unstable();
        Ok(names)
    }

    fn put_new(&self, path: &str, bytes: Bytes) -> Result<Published> {
        let name = self.path(path);
        staged(&name, &bytes)?.publish(&name)
    }

    fn put_file(&self, staged: Staged, path: &str, _: &CancellationToken) -> Result<()> {
        let name = self.path(path);
        match staged.publish(&name)? {
            Published::New => Ok(()),
            Published::Taken => Err(Error::io(name, io::Error::from(io::ErrorKind::AlreadyExists))),
        }
    }

    fn remove(&self, path: &str) -> Result<()> {
        existing(self.path(path), |path| std::fs::remove_file(path)).map(|_| ())
    }

    fn sync(&self, path: &str) -> Result<()> {
        publish::sync(&self.path(path))
    }

    fn lock(&self, path: &str, wait: Duration, cancel: &CancellationToken) -> Result<Option<Guard>> {
        let lock = Lock::acquire(&self.0, &self.path(path), wait, cancel)?;
        Ok(Some(Box::new(lock)))
    }
}

/// Stages a small file and compares it with `bytes`.
fn staged(name: &Path, bytes: &[u8]) -> Result<Staged> {
    let mut staged = Staged::new(publish::parent(name))?;
    let as_io = |source| Error::io(name, source);
    staged.write_all(bytes).map_err(as_io)?;
    let found = std::fs::read(staged.path()).map_err(as_io)?;
    if found != bytes {
        let place = bytes.iter().zip(&found).take_while(|(written, read)| written == read).count();
        let expected = format!("the {} bytes that were written", bytes.len());
        let found = format!("{} bytes, different from byte {place} on", found.len());
        return Err(Error::damaged(name, "written file", expected, found));
    }
    Ok(staged)
}

/// Applies an operation to a file; returns `None` if there is no file.
fn existing<T>(path: PathBuf, operation: impl Fn(&Path) -> io::Result<T>) -> Result<Option<T>> {
    match operation(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some).map_err(|source| Error::io(path, source)),
    }
}
