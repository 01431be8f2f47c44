//! Archives in a folder of this machine. [`Staged`] publishes their files.

use super::backend::{Backend, Guard, ListedFile};
use super::lock::Lock;
use crate::archive::problem::damaged;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{self, Published, Staged};
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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

    fn list(&self, folder: &str) -> Result<Option<Vec<ListedFile>>> {
        list_folder(&self.path(folder), true)
    }

    fn names(&self, folder: &str, first: &str) -> Result<Option<Vec<String>>> {
        let files = list_folder(&self.path(folder), false)?;
        let names = |files: Vec<ListedFile>| files.into_iter().map(|file| file.name);
        Ok(files.map(|files| names(files).filter(|name| &**name >= first).collect()))
    }

    fn first_names(&self, folder: &str, count: usize) -> Result<Vec<String>> {
        let mut names = self.names(folder, "")?.unwrap_or_default();
        names.retain(|name| !name.starts_with('.'));
        names.sort_unstable();
        names.truncate(count);
        Ok(names)
    }

    fn put_new(&self, path: &str, bytes: Bytes) -> Result<Published> {
        let name = self.path(path);
        staged(&name, &bytes)?.publish(&name)
    }

    fn stage(&self, folder: &str) -> Result<Staged> {
        Staged::new(&self.path(folder))
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

/// Applies an operation to a file; returns `None` if there is no file.
fn existing<T>(path: PathBuf, operation: impl Fn(&Path) -> io::Result<T>) -> Result<Option<T>> {
    match operation(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some).map_err(|source| Error::io(path, source)),
    }
}

/// Lists the files of a folder. Metadata cost a system call per file; without them, all sizes are 0.
fn list_folder(folder: &Path, with_metadata: bool) -> Result<Option<Vec<ListedFile>>> {
    let as_io = |source| Error::io(folder, source);
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(as_io(source)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(as_io)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (mut num_bytes, mut modified) = (0, SystemTime::UNIX_EPOCH);
        if with_metadata {
            let metadata = match entry.metadata() {
                Ok(metadata) if metadata.is_file() => metadata,
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(as_io(error)),
                _ => continue,
            };
            num_bytes = metadata.len();
            modified = metadata.modified().map_err(as_io)?;
        }
        files.push(ListedFile { name, num_bytes, modified });
    }
    Ok(Some(files))
}
