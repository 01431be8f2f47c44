//! Atomic and durable creation of files. A published file is complete or does not exist. It replaces an older file
//! only on request.
//!
//! A file is written under a staging name that begins with a dot and ends in `.tmp`. No glob for `*.parquet` or
//! `*.json` matches it. Publication takes four steps: sync the file, link it to its name, remove the staging name,
//! sync the folder. The link fails if the name is taken.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that is being written under a staging name. Dropping it without publishing deletes it.
pub struct Staged {
    file: NamedTempFile,
}

/// The outcome of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// The file now has its name.
    New,
    /// Another file already has the name, and keeps it.
    Taken,
}

impl Staged {
    /// The prefix and suffix of staging names.
    pub(crate) const AFFIXES: (&str, &str) = (".staged-", ".tmp");

    /// Creates a staged file in `folder`.
    pub(crate) fn new(folder: &Path) -> Result<Staged> {
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        // Data files are readable by everyone. Temporary files are, by default, readable by their owner alone.
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
        let (prefix, suffix) = Staged::AFFIXES;
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(prefix).suffix(suffix).make_in(folder, |path| options.open(path));
        let file = file.map_err(|source| Error::io(folder, source))?;
        Ok(Staged { file })
    }

    /// Makes the file durable and gives it its name, unless the name is taken. The name must be in the folder of the
    /// staged file.
    ///
    /// After an error the name may already belong to this file, durable or not.
    pub(crate) fn publish(self, name: &Path) -> Result<Published> {
        self.file.as_file().sync_all().map_err(|source| Error::io(self.file.path(), source))?;
        let published = self.publish_unsynced(name)?;
        // If the name is taken, its publisher may have died before the name was durable.
        sync_parent(name)?;
        Ok(published)
    }

    /// Gives the file its name unless the name is taken. The file is complete, but durable only after the next sync.
    pub(crate) fn publish_unsynced(self, name: &Path) -> Result<Published> {
        let named = match std::fs::hard_link(self.file.path(), name) {
            // The file system has no hard links.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                self.file.persist_noclobber(name).map(drop).map_err(|error| error.error)
            }
            // This removes the staging name before the folder is synced, so that the sync covers both changes.
            linked => {
                drop(self);
                linked
            }
        };
        match named {
            Ok(()) => Ok(Published::New),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Published::Taken),
            Err(error) => Err(Error::io(name, error)),
        }
    }

    /// Makes the file durable and gives it its name, replacing any other file of that name. A symbolic link stays, and
    /// its target is replaced; the target must be on the same file system. A pipe or a device is not replaced.
    pub(crate) fn replace(self, name: &Path) -> Result<()> {
        self.file.as_file().sync_all().map_err(|source| Error::io(self.file.path(), source))?;
        let Some(name) = destination(name)? else {
            let refused = io::Error::new(io::ErrorKind::AlreadyExists, "expected a file, found a pipe or a device");
            return Err(Error::io(name, refused));
        };
        self.file.persist(&name).map_err(|error| Error::io(&name, error.error))?;
        sync_parent(&name)
    }

    /// Returns the file, for reading and writing at any offset.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Returns the staging path.
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

/// Creates a folder and its missing parents, and makes their names durable. This includes folders that an earlier,
/// interrupted call created.
pub(crate) fn create_folders(folder: &Path) -> Result<()> {
    let above: Vec<&Path> = folder.ancestors().skip(1).collect();
    for above in above.into_iter().rev().filter(|above| !above.as_os_str().is_empty()) {
        if above.is_dir() {
            // Another user owns a folder that cannot be opened, so its name is already durable.
            sync(above).ok();
        } else {
            create_folder(above)?;
        }
    }
    create_folder(folder)
}

/// Creates a folder unless it exists, and makes its name durable.
pub(crate) fn create_folder(folder: &Path) -> Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(Error::io(folder, error)),
        _ => sync_parent(folder),
    }
}

/// Returns the files in a folder that have staging names.
pub(crate) fn staged_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let io = |source| Error::io(folder, source);
    let (prefix, suffix) = Staged::AFFIXES;
    let mut staged = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let is_staged = |name: &str| name.starts_with(prefix) && name.ends_with(suffix);
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_staged) {
            staged.push(path);
        }
    }
    Ok(staged)
}

/// Returns whether two paths lead to the same existing file.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Makes the name of a file durable by syncing its parent folder.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    sync(parent(path))
}

/// Returns the folder of a file; `.` for a bare file name.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the content of a file durable, or the names in a folder.
pub(crate) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|source| Error::io(path, source))
}

/// Returns the path of a file that will be written, with symbolic links resolved: a link stays, and its target is
/// replaced. Returns `None` for a pipe or a device, which must not be replaced; `/dev/stdout` is a link to one.
pub(crate) fn destination(path: &Path) -> Result<Option<PathBuf>> {
    let io = |source| Error::io(path, source);
    let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(io(io::Error::from_raw_os_error(libc::EISDIR))),
        Ok(metadata) if !metadata.is_file() => Ok(None),
        Err(error) if error.kind() != io::ErrorKind::NotFound || is_link => Err(io(error)),
        _ if is_link => path.canonicalize().map(Some).map_err(io),
        _ => Ok(Some(path.to_path_buf())),
    }
}

/// The output of a command or method: a file that replaces an older one, or a pipe or device.
pub enum Output {
    /// A file under a staging name.
    File {
        /// The file.
        staged: Staged,
        /// The final path, with symbolic links resolved.
        path: PathBuf,
    },
    /// An open pipe or device.
    Stream(File),
}

impl Output {
    /// Begins a file for `path`, or opens the pipe or device there.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with the path.
    pub fn create(path: &Path) -> Result<Output> {
        match destination(path)? {
            Some(path) => Ok(Output::File { staged: Staged::new(parent(&path))?, path }),
            None => match File::options().write(true).open(path) {
                Ok(file) => Ok(Output::Stream(file)),
                Err(source) => Err(Error::io(path, source)),
            },
        }
    }

    /// Returns the file, pipe or device.
    #[must_use]
    pub fn file(&self) -> &File {
        match self {
            Output::File { staged, .. } => staged.file(),
            Output::Stream(file) => file,
        }
    }

    /// Makes a file durable and gives it its name, replacing an older file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), with the path.
    pub fn publish(self) -> Result<()> {
        match self {
            Output::File { staged, path } => staged.replace(&path),
            Output::Stream(_) => Ok(()),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        // The system's temporary folder may be a symbolic link.
        let root = folder.path().canonicalize().unwrap();
        let file = root.join("file");
        assert_eq!(destination(&file).unwrap().as_ref(), Some(&file));
        std::fs::write(&file, "old").unwrap();
        assert_eq!(destination(&file).unwrap().as_ref(), Some(&file));
        symlink(&file, root.join("link")).unwrap();
        assert_eq!(destination(&root.join("link")).unwrap().as_ref(), Some(&file));
        symlink("/dev/null", root.join("device")).unwrap();
        for device in [Path::new("/dev/null"), &root.join("device")] {
            assert_eq!(destination(device).unwrap(), None);
        }
        symlink(root.join("none"), root.join("dangling")).unwrap();
        for path in [root.join("dangling"), root.clone(), file.join("below")] {
            assert!(destination(&path).is_err());
        }
    }
}
