//! Making a file appear under its name: whole and durable, or not at all, in place of no other or, when asked, of an older one.
//!
//! A file is written under a staging name that begins with a dot and ends in `.tmp`, which no glob for `*.parquet` or
//! `*.json` picks up. It is synced, then linked to its name, which fails where that name is taken, then the staging name
//! is removed, then its folder is synced.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
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
        let published = self.publish_unsynced(name)?;
        // Whoever published a name that is taken may have died before it was durable.
        sync_parent(name)?;
        Ok(published)
    }

    /// Gives the file its name unless that is taken. It is whole, and as durable as the system makes it in time.
    pub(crate) fn publish_unsynced(self, name: &Path) -> Result<Published> {
        match std::fs::hard_link(self.file.path(), name) {
            // The staging name goes before the folder is synced, so that both changes are.
            Ok(()) => drop(self),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(Published::Taken),
            // No links on this file system.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                match self.file.persist_noclobber(name) {
                    Ok(_) => {}
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(Published::Taken),
                    Err(error) => return Err(Error::io(name, error.error)),
                }
            }
            Err(error) => return Err(Error::io(name, error)),
        }
        Ok(Published::New)
    }

    /// Makes the file durable and gives it its name, in place of any other file of that name. A link stays, and what it leads to
    /// is replaced, on the same file system; a pipe or a device is not.
    pub(crate) fn replace(self, name: &Path) -> Result<()> {
        self.file.as_file().sync_all().map_err(|source| Error::io(self.file.path(), source))?;
        let name = match Destination::of(name)? {
            Destination::File { path, .. } => &path.clone(),
            Destination::Stream(path) => {
                let refused = io::Error::new(io::ErrorKind::AlreadyExists, "a pipe or a device, which is not replaced");
                return Err(Error::io(path, refused));
            }
        };
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

/// Creates a folder and its missing parents. Makes all of their names durable, also those that an earlier, interrupted
/// attempt created.
pub(crate) fn create_folders(folder: &Path) -> Result<()> {
    let above: Vec<&Path> = folder.ancestors().skip(1).collect();
    for above in above.into_iter().rev().filter(|above| !above.as_os_str().is_empty()) {
        if above.is_dir() {
            // An unreadable folder was made by another user.
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
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Error::io(folder, error)),
        _ => {}
    }
    sync_parent(folder)
}

/// The files in a folder that have staging names.
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

/// Whether two paths lead to one file that is there.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
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

/// What stands under the name of a file that is to be written.
pub(crate) enum Destination {
    /// Nothing or a file: the new one takes its place.
    File {
        /// Its name, no link.
        path: PathBuf,
        folder: PathBuf,
    },
    /// A pipe or a device, which must stay.
    Stream(PathBuf),
}

impl Destination {
    /// Looks at what stands there. A link stays, and what it leads to counts: `/dev/stdout` is one.
    pub(crate) fn of(path: &Path) -> Result<Destination> {
        let io = |source| Error::io(path, source);
        let is_link = path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => return Err(io(io::Error::from_raw_os_error(libc::EISDIR))),
            Ok(metadata) if !metadata.is_file() => return Ok(Destination::Stream(path.to_path_buf())),
            Err(error) if error.kind() != io::ErrorKind::NotFound || is_link => return Err(io(error)),
            _ => {}
        }
        let path = if is_link { path.canonicalize().map_err(io)? } else { path.to_path_buf() };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Destination::File { folder: folder.to_path_buf(), path })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        // The system's folder for such may be a link itself.
        let root = folder.path().canonicalize().unwrap();
        let file = root.join("file");
        let is_file = |path: &Path, expected: &Path| matches!(Destination::of(path).unwrap(), Destination::File { path, folder } if path == expected && folder == root);
        assert!(is_file(&file, &file));
        std::fs::write(&file, "old").unwrap();
        assert!(is_file(&file, &file));
        symlink(&file, root.join("link")).unwrap();
        assert!(is_file(&root.join("link"), &file));
        symlink("/dev/null", root.join("device")).unwrap();
        for device in [Path::new("/dev/null"), &root.join("device")] {
            assert!(matches!(Destination::of(device).unwrap(), Destination::Stream(_)));
        }
        symlink(root.join("none"), root.join("dangling")).unwrap();
        for path in [root.join("dangling"), root.clone(), file.join("below")] {
            assert!(Destination::of(&path).is_err());
        }
    }
}
