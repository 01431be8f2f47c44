//! Opening of archives, and the difference between folders and URLs.

use super::exit::UsageError;
use crate::error::{Error, ErrorKind};
use crate::{Archive, Phases};
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

/// Opens an archive, or creates it with these phases if it does not exist.
pub(super) fn open_or_create(path: &Path, phases: Phases) -> Result<Archive> {
    match Archive::open(path) {
        Err(error) if is_absent(&error) => match Archive::create(path, phases) {
            // Another process has created it in the meantime.
            Err(error) if matches!(error.kind(), ErrorKind::ArchiveExists { .. }) => Ok(Archive::open(path)?),
            created => Ok(created?),
        },
        opened => Ok(opened?),
    }
}

/// Returns whether an archive can be created where opening one failed: nothing else is stored there.
fn is_absent(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        ErrorKind::NotAnArchive { path, .. } => is_url(path) || is_empty(path),
        _ => false,
    }
}

/// Returns whether a folder is empty, or holds only what an interrupted creation of an archive leaves.
fn is_empty(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names.is_empty() || names.iter().zip(["_log", "runs", "steps"]).all(|(name, own)| name == own) && names.len() <= 3
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

/// Rejects an output path inside the archive's folder.
pub(super) fn check_outside(path: &Path, archive: &Path) -> Result<()> {
    let Some(folder) = local_folder(archive) else { return Ok(()) };
    if std::path::absolute(path)?.starts_with(std::path::absolute(folder)?) {
        bail!(UsageError(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    Ok(())
}
