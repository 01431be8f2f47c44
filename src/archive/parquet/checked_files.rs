//! The check of data files before their first use: each process compares a file with its manifest once.
//!
//! Parquet files of an archive have no page checksums, so a flipped bit in a page may decode to other values. A
//! manifest has the CRC32C of every file.
//!
//! Invariant: this process has read each remembered file to its end, and found the length and checksum of its
//! manifest. Since then, the file system has recorded no change of the file.

use super::reader::open_sound;
use crate::archive::archive::Archive;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::Versions;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::process::{PerProcess, lock};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

/// The maximum number of remembered files, in about 16 MiB. At the limit, all are forgotten and compared again.
const MAX_FILES: usize = 1 << 16;

/// The text for a missing file in an error.
const ABSENT: &str = "no file";

/// A key of a file: its path, the CRC32C and the length in its manifest, and its last change.
type FileKey = (PathBuf, String, u64, [i64; 4]);

impl Archive {
    /// Returns the files that must still be compared with their manifests before they are read.
    pub(crate) fn unchecked<'a>(&self, files: impl IntoIterator<Item = &'a DataFile>) -> Result<Vec<&'a DataFile>> {
        if !self.checksums {
            return Ok(Vec::new());
        }
        let keys: Vec<_> = files.into_iter().map(|file| (key(&self.storage, file), file)).collect();
        let known = known()?;
        Ok(keys.into_iter().filter(|(key, _)| !known.contains(key)).map(|(_, file)| file).collect())
    }

    /// Compares a file with its manifest, unless checksums are off or this process has done so since the last change of
    /// the file.
    pub(crate) fn check_file(&self, file: &DataFile) -> Result<()> {
        if !self.checksums {
            return Ok(());
        }
        // Compute the key before the read, so that a change during the read is noticed.
        let key = key(&self.storage, file);
        if known()?.contains(&key) {
            return Ok(());
        }
        open_sound(&self.storage, file).map_err(|error| match error.kind() {
            ErrorKind::Damaged { found, .. } if found == ABSENT => self.why_absent().unwrap_or(error),
            _ => error,
        })?;
        let mut known = known()?;
        if known.len() >= MAX_FILES {
            known.clear();
        }
        known.insert(key);
        Ok(())
    }

    /// Adds a file name to an error about unreadable data: the first file that is missing or has the wrong
    /// length. If the version has expired or the archive is gone, the error says so.
    pub(crate) fn blame(&self, error: Error) -> Error {
        match error.into_kind() {
            ErrorKind::Damaged { path, what, expected, found } if path.as_os_str().is_empty() => {
                if let Some(error) = self.why_absent() {
                    return error;
                }
                let (path, expected, found) = self.unfit_file().unwrap_or_else(|| {
                    let found = format!("{found}; `verify` names the file");
                    (self.path().to_path_buf(), expected, found)
                });
                ErrorKind::Damaged { path, what, expected, found }.into()
            }
            ErrorKind::Io { path: Some(path), source } if path.as_os_str().is_empty() => {
                // An object store does not respond with bytes that an object lacks.
                match self.storage.is_remote().then(|| self.unfit_file()).flatten() {
                    Some((path, expected, found)) => {
                        ErrorKind::Damaged { path, what: "data file", expected, found }.into()
                    }
                    None => Error::io(self.path(), source),
                }
            }
            kind => kind.into(),
        }
    }

    /// Returns why files of this version may be absent: the version has expired, or the archive is gone.
    fn why_absent(&self) -> Option<Error> {
        let error = Versions::new(&self.storage).open(Some(self.version())).err()?;
        let explains = matches!(error.kind(), ErrorKind::VersionNotFound { .. } | ErrorKind::NotAnArchive { .. });
        (explains || error.is_not_found()).then_some(error)
    }

    /// Returns the first data file of this version that is missing or has the wrong length: its path, expected,
    /// found.
    fn unfit_file(&self) -> Option<(PathBuf, String, String)> {
        for table in TableName::ALL {
            let entries = self.storage.list(table.name()).ok()?;
            let lengths: HashMap<&str, u64> =
                entries.iter().map(|entry| (entry.name.as_str(), entry.num_bytes)).collect();
            let unfit = self.manifest.files(table).find_map(|file| {
                let name = file.path.rsplit('/').next().unwrap_or_default();
                let found = match lengths.get(name) {
                    Some(&num_bytes) if num_bytes == file.num_bytes => return None,
                    Some(num_bytes) => format!("{num_bytes} bytes"),
                    None => ABSENT.to_owned(),
                };
                Some((self.storage.path(&file.path), format!("{} bytes", file.num_bytes), found))
            });
            if unfit.is_some() {
                return unfit;
            }
        }
        None
    }
}

fn known() -> Result<MutexGuard<'static, HashSet<FileKey>>> {
    static KNOWN: PerProcess<Mutex<HashSet<FileKey>>> = PerProcess::new();
    KNOWN.get_or_make(|| Ok(Mutex::default())).map(lock)
}

fn key(storage: &Storage, file: &DataFile) -> FileKey {
    (storage.path(&file.path), file.crc32c.clone(), file.num_bytes, storage.last_change(&file.path))
}
