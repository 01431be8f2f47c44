//! The listing of a folder of an archive.

use crate::error::{Error, Result};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// A file in a folder of an archive.
#[derive(Clone, Debug)]
pub(in crate::archive) struct ListedFile {
    pub(in crate::archive) name: String,
    pub(in crate::archive) num_bytes: u64,
    pub(in crate::archive) modified: SystemTime,
}

/// Lists the files of a folder. Metadata cost a system call per file; without them, all sizes are 0.
pub(in crate::archive) fn list_folder(folder: &Path, with_metadata: bool) -> Result<Option<Vec<ListedFile>>> {
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
