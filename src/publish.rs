//! Making a file appear under its name: whole and durable, or not at all, in place of no other or, when asked, of an older one.
//!
//! A file is written under a staging name that begins with a dot and ends in `.tmp`, which no glob for `*.parquet` or
//! `*.json` picks up. It is synced, then linked to its name, which fails where that name is taken, then the staging name
//! is removed, then its folder is synced.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// A file that is being written and that nobody sees yet. Dropped unpublished, it vanishes.
pub(crate) struct Staged {
    file: NamedTempFile,
}

/// What became of a file that was to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// It stands under its name.
    New,
    /// Another file already stood there, and still does.
    Taken,
}

impl Staged {
    /// What staging names begin and end with.
    pub(crate) const AFFIXES: (&str, &str) = (".staged-", ".tmp");

    /// Begins a file that is to stand in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Staged> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        // Data files are for every reader, not, as temporary files are by default, for their owner alone.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
        let (prefix, suffix) = Staged::AFFIXES;
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(prefix).suffix(suffix).make_in(folder, |path| options.open(path));
        let file = file.map_err(|source| Error::io(folder, source))?;
        Ok(Staged { file })
    }

    /// Makes the file durable and gives it its name, in the folder it was begun in, unless that name is taken.
    ///
    /// After an error the name may be taken by this very file, durable or not.
    pub(crate) fn publish(self, name: &Path) -> Result<Published> {
        self.file.as_file().sync_all().map_err(|source| Error::io(self.file.path(), source))?;
        match std::fs::hard_link(self.file.path(), name) {
            // The staging name goes before the folder is synced, so that both changes are.
            Ok(()) => drop(self),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Whoever published that name may have died before it was durable.
                sync_parent(name)?;
                return Ok(Published::Taken);
            }
            // No links on this file system.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                match self.file.persist_noclobber(name) {
                    Ok(_) => {}
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                        sync_parent(name)?;
                        return Ok(Published::Taken);
                    }
                    Err(error) => return Err(Error::io(name, error.error)),
                }
            }
            Err(error) => return Err(Error::io(name, error)),
        }
        sync_parent(name)?;
        Ok(Published::New)
    }

    /// Makes the file durable and gives it its name, in place of any other file of that name.
    pub(crate) fn replace(self, name: &Path) -> Result<()> {
        self.file.as_file().sync_all().map_err(|source| Error::io(self.file.path(), source))?;
        self.file.persist(name).map_err(|error| Error::io(name, error.error))?;
        sync_parent(name)
    }

    /// The file, for reading and writing at any place.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Where it is while it is staged.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Makes a name in its folder durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => sync(Path::new(".")),
        Some(folder) => sync(folder),
        None => Ok(()),
    }
}

/// Makes a file's content durable, or the names in a folder.
pub(crate) fn sync(path: &Path) -> Result<()> {
    if cfg!(not(unix)) && path.is_dir() {
        // Such systems neither open folders nor need it.
        return Ok(());
    }
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| Error::io(path, source))
}
