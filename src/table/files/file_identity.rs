//! The identity of a file, which detects a replaced or changed file.

use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The identity of a file. A file that replaces it has another identity.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(in crate::table) struct FileIdentity {
    pub(in crate::table) path: PathBuf,
    pub(in crate::table) num_bytes: u64,
    pub(in crate::table) modified_ns: u128,
    pub(in crate::table) inode: u64,
}

impl FileIdentity {
    pub(in crate::table) fn of(path: &Path, file: &File) -> Result<FileIdentity> {
        use std::os::unix::fs::MetadataExt;
        let metadata = file.metadata().map_err(|error| Error::io(path, error))?;
        let modified = metadata.modified().map_err(|error| Error::io(path, error))?;
        let modified_ns = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Ok(FileIdentity { path: path.into(), num_bytes: metadata.len(), modified_ns, inode: metadata.ino() })
    }

    /// Returns an error unless `found` is the same file.
    pub(in crate::table) fn check(&self, what: &'static str, found: &FileIdentity) -> Result<()> {
        if self == found {
            return Ok(());
        }
        let name = |file: &FileIdentity| {
            format!("{} bytes, inode {}, modified at {} ns", file.num_bytes, file.inode, file.modified_ns)
        };
        Err(ErrorKind::Damaged { path: self.path.clone(), what, expected: name(self), found: name(found) }.into())
    }
}
