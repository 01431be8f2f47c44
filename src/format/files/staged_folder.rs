//! Publishing a folder atomically. [`Staged`] does the same for a single file.

use crate::error::{Error, Result};
use crate::system::publish::{self, Staged};
use std::fs::File;
use std::io::{
    self, ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty, ErrorKind::NotADirectory, ErrorKind::NotFound,
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tracing::warn;

/// A temporary folder that is being filled. Readers ignore it. Dropping it unpublished removes it and its files.
#[derive(Debug)]
pub(crate) struct StagedFolder {
    folder: TempDir,
    /// The folder, with a lock that its process holds. `None` if the file system has no locks.
    _lock: Option<File>,
}

impl StagedFolder {
    /// Creates a temporary folder in `parent`.
    pub(crate) fn new_in(parent: &Path) -> Result<StagedFolder> {
        let (prefix, suffix) = Staged::AFFIXES;
        let mut builder = tempfile::Builder::new();
        // Temporary folders are private by default. Published data uses the usual permissions.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.prefix(prefix).suffix(suffix).tempdir_in(parent);
        let folder = folder.map_err(|source| Error::io(parent, source))?;
        let _lock = File::open(folder.path()).ok().filter(|file| file.try_lock().is_ok());
        Ok(StagedFolder { folder, _lock })
    }

    /// Removes the staged folders in `parent` whose processes have ended. Ignores errors, because readers ignore such
    /// folders.
    pub(crate) fn remove_abandoned(parent: &Path) {
        for path in publish::staged_in(parent).unwrap_or_default() {
            let is_abandoned = || path.is_dir() && File::open(&path).is_ok_and(|folder| folder.try_lock().is_ok());
            if is_abandoned() && std::fs::remove_dir_all(&path).is_ok() {
                warn!(target: "a2store::recorder", folder = %path.display(), "removed an unfinished folder");
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Renames the folder to `name`, which must be free or an empty folder. The files in the folder must already
    /// be durable.
    pub(crate) fn publish(self, name: &Path) -> Result<()> {
        let name = self.rename_to_first_free([name.to_owned()])?;
        publish::sync_parent(&name)
    }

    /// Renames the folder to the first of the names that is free or an empty folder, and returns it. The files in the
    /// folder must already be durable. The name is durable after the next sync of its parent.
    pub(crate) fn rename_to_first_free(self, names: impl IntoIterator<Item = PathBuf>) -> Result<PathBuf> {
        publish::sync(self.path())?;
        let mut refused = Error::argument("names", "at least one", 0);
        for name in names {
            let moved = std::fs::rename(self.path(), &name);
            let has_moved = |error: &io::Error| {
                error.kind() != NotFound && self.path().symlink_metadata().is_err_and(|error| error.kind() == NotFound)
            };
            match moved {
                Err(error) if matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory) => {
                    refused = Error::io(name, error);
                }
                Err(error) if !has_moved(&error) => return Err(Error::io(name, error)),
                // After another error, the folder may still have got the name.
                _ => {
                    let _ = self.folder.keep();
                    return Ok(name);
                }
            }
        }
        Err(refused)
    }
}

/// Returns an error if the name is taken, unless it is an empty folder.
pub(in crate::format) fn check_free(name: &Path) -> Result<()> {
    let is_empty = || std::fs::read_dir(name).is_ok_and(|mut entries| entries.next().is_none());
    if name.symlink_metadata().is_ok() && !is_empty() { Err(taken(name)) } else { Ok(()) }
}

/// Returns the error for a name that is already taken.
pub(in crate::format) fn taken(name: &Path) -> Error {
    Error::io(name, io::Error::new(io::ErrorKind::AlreadyExists, "this name is already taken"))
}
