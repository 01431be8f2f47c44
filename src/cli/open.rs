//! Opening of archives, and the difference between folders and URLs.

use super::exit::UsageError;
use crate::Archive;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// Opens an archive at `version` (`None`: the newest), with `checksums` verified or not (`None`: the archive's default).
pub(super) fn open(path: &Path, version: Option<u64>, checksums: Option<bool>) -> Result<Archive> {
    let archive = match version {
        Some(version) => Archive::open_at(path, version)?,
        None => Archive::open(path)?,
    };
    let checksums = checksums.unwrap_or(archive.has_checksums());
    Ok(archive.with_checksums(checksums))
}

/// Returns whether an archive's path is a URL, such as `s3://bucket/games.a2`.
fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

/// Returns the folder of a local archive, or `None` for an archive on an object store.
pub(super) fn local_folder(archive: &Path) -> Option<PathBuf> {
    if !is_url(archive) {
        return Some(archive.to_path_buf());
    }
    let url = url::Url::parse(archive.to_str()?).ok()?;
    if url.scheme() == "file" { url.to_file_path().ok() } else { None }
}

/// Rejects an existing output file, unless the user wants to replace it.
pub(super) fn check_overwrite(path: &Path, overwrite: bool) -> Result<()> {
    if !overwrite && path.is_file() {
        bail!(UsageError(format!("-o {}: the file exists: --overwrite replaces it", path.display())));
    }
    Ok(())
}

/// Rejects an output path inside the archive's folder.
pub(super) fn check_outside(path: &Path, archive: &Path) -> Result<()> {
    let Some(folder) = local_folder(archive) else { return Ok(()) };
    if std::path::absolute(path)?.starts_with(std::path::absolute(folder)?) {
        bail!(UsageError(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    Ok(())
}
