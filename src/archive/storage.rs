//! Where an archive lies: a folder of this machine, or a prefix of an object store.
//!
//! What the rest of an archive needs of either is small: read a file, list a folder, publish a file under a name that
//! nobody has, remove one. Folders publish by [`Staged`]; object stores by a conditional put. Paths are relative to the
//! archive, with `/` between their parts.

use super::commit::damaged;
use super::remote::Remote;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, check};
use crate::publish::{self, Published, Staged};
use crate::random;
use bytes::Bytes;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The place of an archive.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    /// The folder, absolute, or the URL.
    root: PathBuf,
    remote: Option<Remote>,
}

/// A file in a folder of an archive.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) num_bytes: u64,
    pub(super) modified: SystemTime,
}

impl Storage {
    /// The place that a path or URL names. Nothing is looked at yet.
    pub(super) fn new(location: &Path) -> Result<Storage> {
        let url = location.to_str().filter(|text| text.contains("://"));
        if let Some(text) = url.filter(|text| !text.starts_with("file://")) {
            let remote = Remote::new(text)?;
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

    /// The folder, absolute, or the URL.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The absolute path or the URL of one of the archive's files.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        match &self.remote {
            None => self.root.join(path),
            Some(_) => format!("{}/{path}", self.root.display()).into(),
        }
    }

    /// Whether writers on this machine can keep each other out by a lock.
    pub(super) fn is_local(&self) -> bool {
        self.remote.is_none()
    }

    /// What readers of data files go through; its root is the archive.
    pub(super) fn store(&self) -> Result<Arc<dyn ObjectStore>> {
        match &self.remote {
            Some(remote) => remote.store(),
            None => {
                let store = LocalFileSystem::new_with_prefix(&self.root);
                Ok(Arc::new(store.map_err(|error| Error::io(&self.root, io::Error::other(error)))?))
            }
        }
    }

    /// Makes the folders of a new archive.
    pub(super) fn create_folders<'a>(&self, folders: impl IntoIterator<Item = &'a str>) -> Result<()> {
        if self.remote.is_some() {
            return Ok(());
        }
        publish::create_folders(&self.root)?;
        folders.into_iter().try_for_each(|folder| publish::create_folder(&self.root.join(folder)))
    }

    /// A small file's content; `None` where there is none.
    pub(super) fn read(&self, path: &str) -> Result<Option<Bytes>> {
        match &self.remote {
            Some(remote) => remote.read(path),
            None => match std::fs::read(self.root.join(path)) {
                Ok(bytes) => Ok(Some(bytes.into())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(Error::io(self.path(path), source)),
            },
        }
    }

    /// A data file, open for reading; `None` where there is none.
    pub(super) fn open(&self, path: &str) -> Result<Option<File>> {
        match &self.remote {
            Some(remote) => remote.fetch(path),
            None => match File::open(self.root.join(path)) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(Error::io(self.path(path), source)),
            },
        }
    }

    /// Numbers that change with the file. For an object store they are constant, because its files never change.
    pub(super) fn last_change(&self, path: &str) -> [i64; 4] {
        let metadata = self.remote.is_none().then(|| std::fs::metadata(self.root.join(path)).ok()).flatten();
        let times = |file: std::fs::Metadata| [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        metadata.map_or([0; 4], times)
    }

    /// As [`read`](Self::read) for many files, which a remote place answers side by side.
    pub(super) fn read_all(&self, paths: Vec<String>) -> Result<Vec<Result<Option<Bytes>>>> {
        match &self.remote {
            Some(remote) => remote.read_all(paths),
            None => Ok(paths.iter().map(|path| self.read(path)).collect()),
        }
    }

    /// The last bytes of a data file, at most `len`; `None` if there is no file.
    pub(super) fn read_end(&self, path: &str, len: u64) -> Result<Option<Bytes>> {
        if let Some(remote) = &self.remote {
            return remote.read_end(path, len);
        }
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let read = || {
            let num_bytes = file.metadata()?.len();
            file.seek(io::SeekFrom::Start(num_bytes.saturating_sub(len)))?;
            let mut bytes = Vec::new();
            file.take(len).read_to_end(&mut bytes)?;
            Ok(bytes.into())
        };
        read().map(Some).map_err(|source| Error::io(self.path(path), source))
    }

    /// The files in a folder, in no order; `None` where there is no such folder.
    pub(super) fn list(&self, folder: &str) -> Result<Option<Vec<Entry>>> {
        match &self.remote {
            Some(remote) => remote.list(folder).map(Some),
            None => list_folder(&self.root.join(folder), true),
        }
    }

    /// The names of the files in a folder, in no order; `None` where there is no such folder.
    pub(super) fn names(&self, folder: &str) -> Result<Option<Vec<String>>> {
        let entries = match &self.remote {
            Some(remote) => Some(remote.list(folder)?),
            None => list_folder(&self.root.join(folder), false)?,
        };
        Ok(entries.map(|entries| entries.into_iter().map(|entry| entry.name).collect()))
    }

    /// Publishes a small file, unless its name is taken. After an error it may be there all the same.
    pub(super) fn put_new(&self, path: &str, bytes: Vec<u8>) -> Result<Published> {
        if let Some(remote) = &self.remote {
            return remote.put_new(path, bytes);
        }
        let name = self.root.join(path);
        self.staged(&name, &bytes)?.publish(&name)
    }

    /// A small file that is to stand under a name, read back.
    fn staged(&self, name: &Path, bytes: &[u8]) -> Result<Staged> {
        let mut staged = Staged::new(name.parent().unwrap_or(&self.root))?;
        let as_io = |source| Error::io(name, source);
        staged.write_all(bytes).map_err(as_io)?;
        let mut found = Vec::with_capacity(bytes.len());
        let mut file = staged.file();
        file.rewind().and_then(|()| file.read_to_end(&mut found)).map_err(as_io)?;
        if found != bytes {
            return Err(damaged(name, "what was written", "the same bytes", "others"));
        }
        Ok(staged)
    }

    /// Begins a data file of a folder: beside its final name, or in the system's folder for temporary files.
    pub(super) fn stage(&self, folder: &str) -> Result<Staged> {
        match &self.remote {
            Some(_) => Staged::new(&std::env::temp_dir()),
            None => Staged::new(&self.root.join(folder)),
        }
    }

    /// Publishes a data file under a name that is new.
    pub(super) fn publish(&self, staged: Staged, path: &str, progress: &dyn Progress) -> Result<()> {
        if let Some(remote) = &self.remote {
            return remote.upload(staged.path(), path, progress);
        }
        let name = self.root.join(path);
        match staged.publish(&name)? {
            Published::New => Ok(()),
            Published::Taken => Err(Error::io(name, io::Error::from(io::ErrorKind::AlreadyExists))),
        }
    }

    /// Removes a file; that it is gone already is no error.
    pub(super) fn remove(&self, path: &str) -> Result<()> {
        match &self.remote {
            Some(remote) => remote.remove(path),
            None => match std::fs::remove_file(self.root.join(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(self.path(path), error)),
                _ => Ok(()),
            },
        }
    }

    /// Gives a file a second name, in place of no other.
    pub(super) fn copy(&self, path: &str, new: &str) -> Result<()> {
        if let Some(remote) = &self.remote {
            return remote.copy(path, new);
        }
        let (from, to) = (self.root.join(path), self.root.join(new));
        std::fs::hard_link(&from, &to).map_err(|source| Error::io(&to, source))?;
        publish::sync_parent(&to)
    }

    /// Writes a small file in place of another, in one step.
    pub(super) fn replace(&self, path: &str, bytes: Vec<u8>) -> Result<()> {
        if let Some(remote) = &self.remote {
            return remote.replace(path, bytes);
        }
        let name = self.root.join(path);
        self.staged(&name, &bytes)?.replace(&name)
    }

    /// Makes durable what stands under a path: the content of a file, the names in a folder.
    pub(super) fn sync(&self, path: &str) -> Result<()> {
        match self.remote {
            Some(_) => Ok(()),
            None => publish::sync(&self.root.join(path)),
        }
    }

    /// Keeps other writers of this machine out until it is dropped, or until the process dies.
    ///
    /// Waits so long for them. Other machines are kept out by put-if-absent alone, as are all writers of an object store.
    pub(super) fn lock(&self, path: &str, wait: Duration, progress: &dyn Progress) -> Result<Option<Lock>> {
        if self.remote.is_some() {
            return Ok(None);
        }
        let path = self.root.join(path);
        let file = File::options().create(true).append(true).open(&path).map_err(|source| Error::io(&path, source))?;
        let start = Instant::now();
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(50));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Lock(file))),
                Err(TryLockError::WouldBlock) if start.elapsed() < wait => {
                    check(progress)?;
                    backoff.sleep();
                }
                Err(TryLockError::WouldBlock) => {
                    let what = match wait.as_secs_f64() {
                        0.0 => "another process is writing to this archive".into(),
                        secs => format!("another process is writing to this archive, after {secs:.1} s of waiting"),
                    };
                    return Err(ErrorKind::Conflict { path: self.root.clone(), what }.into());
                }
                Err(TryLockError::Error(source)) => return Err(Error::io(&path, source)),
            }
        }
    }
}

/// Keeps other writers of this machine out until it is dropped.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the file open as well, so closing it would not be enough.
        self.0.unlock().ok();
    }
}

/// Ever longer pauses, of random length so that writers who met do not meet again.
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
    random: Xoshiro256PlusPlus,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Backoff {
        let seed = random::seed().unwrap_or(u64::from(std::process::id()) << 32);
        Backoff { next: first, longest, random: Xoshiro256PlusPlus::seed_from_u64(seed) }
    }

    pub(super) fn sleep(&mut self) {
        let share = 0.5 + (self.random.next_u32() as f64 / f64::from(u32::MAX)) / 2.0;
        std::thread::sleep(self.next.mul_f64(share));
        self.next = (self.next * 2).min(self.longest);
    }
}

/// The files of a folder; without their metadata, which cost a call each, sizes are 0.
fn list_folder(folder: &Path, with_metadata: bool) -> Result<Option<Vec<Entry>>> {
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
        files.push(Entry { name, num_bytes, modified });
    }
    Ok(Some(files))
}
