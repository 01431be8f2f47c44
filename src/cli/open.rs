//! Opening of archives, and checks of output paths.

use super::exit::UsageError;
use crate::{Archive, StorageOptions};
use anyhow::{Result, bail};
use std::path::Path;

/// Opens an archive at `version` (`None`: the newest), with `checksums` verified or not (`None`: the archive's default).
pub(super) fn open(path: &Path, version: Option<u64>, checksums: Option<bool>) -> Result<Archive> {
    let archive = Archive::open_with(path, version, &StorageOptions::default())?;
    let checksums = checksums.unwrap_or(archive.has_checksums());
    Ok(archive.with_checksums(checksums))
}

/// Rejects an existing output file, unless the user wants to replace it.
pub(super) fn check_overwrite(path: &Path, overwrite: bool) -> Result<()> {
    if !overwrite && path.is_file() {
        bail!(UsageError(format!("-o {}: the file exists: --overwrite replaces it", path.display())));
    }
    Ok(())
}

/// Rejects an output path inside the archive's folder.
pub(super) fn check_outside(path: &Path, archive: &Archive) -> Result<()> {
    if archive.contains(path)? {
        bail!(UsageError(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    Ok(())
}
