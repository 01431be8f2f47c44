//! Making a folder appear under its name whole, or some of its files in another folder one after the other: what
//! [`Staged`] does for a single file.

use crate::error::{Error, Result};
use crate::publish::{self, Staged};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder that is being filled and that nobody looks into yet. Dropped unpublished, it vanishes with all in it.
#[derive(Debug)]
pub(crate) struct StagedFolder(TempDir);

impl StagedFolder {
    /// Begins a folder beside the one that it is to become, or in the one that its files are to stand in.
    pub(crate) fn new_in(parent: &Path) -> Result<StagedFolder> {
        let (prefix, suffix) = Staged::AFFIXES;
        let mut builder = tempfile::Builder::new();
        // Data is for every reader, not, as temporary files are by default, for its owner alone.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.prefix(prefix).suffix(suffix).tempdir_in(parent);
        folder.map(StagedFolder).map_err(|source| Error::io(parent, source))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Gives the folder its name, which must be free or that of an empty folder. The files in it are durable already.
    pub(crate) fn publish(self, name: &Path) -> Result<()> {
        publish::sync(self.path())?;
        std::fs::rename(self.path(), name).map_err(|source| Error::io(name, source))?;
        // Nothing is left to be removed.
        let _ = self.0.keep();
        publish::sync_parent(name)
    }

    /// Leaves the folder where it is, for whoever is to make out what became of it.
    pub(crate) fn keep(self) -> PathBuf {
        self.0.keep()
    }

    /// Moves a file, which is durable already, to its name in another folder. That name must be free unless the file is to
    /// replace what stands there.
    pub(crate) fn publish_file(&self, file: &str, folder: &Path, replace: bool) -> Result<()> {
        let name = folder.join(file);
        if !replace && name.symlink_metadata().is_ok() {
            return Err(taken(&name));
        }
        std::fs::rename(self.path().join(file), &name).map_err(|source| Error::io(&name, source))?;
        publish::sync_parent(&name)
    }
}

/// Refuses a name that is taken by anything but an empty folder.
pub(super) fn check_free(name: &Path) -> Result<()> {
    let is_empty = || std::fs::read_dir(name).is_ok_and(|mut entries| entries.next().is_none());
    if name.symlink_metadata().is_ok() && !is_empty() { Err(taken(name)) } else { Ok(()) }
}

/// An error about a name that something has already.
pub(super) fn taken(name: &Path) -> Error {
    Error::io(name, io::Error::new(io::ErrorKind::AlreadyExists, "something of this name is already there"))
}
