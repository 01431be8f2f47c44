//! Publishing a folder atomically, or moving its files one by one into another folder. [`Staged`] does the same
//! for a single file.

use crate::error::{Error, Result};
use crate::publish::{self, Staged};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary folder that is being filled. Readers ignore it. Dropping it unpublished removes it and its files.
#[derive(Debug)]
pub(crate) struct StagedFolder(TempDir);

impl StagedFolder {
    /// Creates a temporary folder in `parent`.
    pub(crate) fn new_in(parent: &Path) -> Result<StagedFolder> {
        let (prefix, suffix) = Staged::AFFIXES;
        let mut builder = tempfile::Builder::new();
        // Temporary folders are private by default. Published data uses the usual permissions.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.prefix(prefix).suffix(suffix).tempdir_in(parent);
        folder.map(StagedFolder).map_err(|source| Error::io(parent, source))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Renames the folder to `name`, which must be free or an empty folder. The files in the folder must already
    /// be durable.
    pub(crate) fn publish(self, name: &Path) -> Result<()> {
        publish::sync(self.path())?;
        std::fs::rename(self.path(), name).map_err(|source| Error::io(name, source))?;
        // The folder has moved, so there is nothing to remove.
        let _ = self.0.keep();
        publish::sync_parent(name)
    }

    /// Keeps the folder on disk, for a later recovery. Returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        self.0.keep()
    }

    /// Moves a durable file to the same name in another folder. Fails if the name is taken, unless `replace` is
    /// set.
    pub(crate) fn publish_file(&self, file: &str, folder: &Path, replace: bool) -> Result<()> {
        let name = folder.join(file);
        if !replace && name.symlink_metadata().is_ok() {
            return Err(taken(&name));
        }
        std::fs::rename(self.path().join(file), &name).map_err(|source| Error::io(&name, source))?;
        publish::sync_parent(&name)
    }
}

/// Returns an error if the name is taken, unless it is an empty folder.
pub(super) fn check_free(name: &Path) -> Result<()> {
    let is_empty = || std::fs::read_dir(name).is_ok_and(|mut entries| entries.next().is_none());
    if name.symlink_metadata().is_ok() && !is_empty() { Err(taken(name)) } else { Ok(()) }
}

/// Returns the error for a name that is already taken.
pub(super) fn taken(name: &Path) -> Error {
    Error::io(name, io::Error::new(io::ErrorKind::AlreadyExists, "this name is already taken"))
}
