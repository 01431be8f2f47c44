//! Opening of archives, and checks of output paths.

use super::exit::UsageError;
use crate::{Archive, StorageOptions, VersionName};
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

// The archive that a command reads. A doc comment here would become help text.
#[derive(Args, Debug)]
pub(super) struct ArchiveArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Version of the archive to read: a number or a tag [default: the newest].
    #[arg(long)]
    pub(super) version: Option<VersionName>,
    /// Verify the checksum of each data file before its first read [default: true, but false on an object store].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
}

impl ArchiveArgs {
    /// Opens the archive.
    pub(super) fn open(&self) -> Result<Archive> {
        let archive = Archive::open_with(&self.archive, self.version.clone(), &StorageOptions::default())?;
        let checksums = self.checksums.unwrap_or(archive.has_checksums());
        Ok(archive.with_checksums(checksums))
    }
}

/// Rejects an output path inside the archive's folder, and an existing file unless the user wants to replace it.
pub(super) fn check_output(path: &Path, overwrite: bool, archive: &Archive) -> Result<()> {
    if archive.contains(path)? {
        bail!(UsageError(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    if !overwrite && path.is_file() {
        bail!(UsageError(format!("-o {}: the file exists: --overwrite replaces it", path.display())));
    }
    Ok(())
}
