//! Opening of archives, and checks of output paths.

use super::exit::UsageError;
use a2store::Archive;
use a2store::archive::{StorageOptions, VersionName};
use anyhow::{Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

// The archive that a command reads. A doc comment here would become help text.
#[derive(Args, Debug)]
pub(crate) struct ArchiveArgs {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// Version of the archive to read: a number or a tag [default: the newest].
    #[arg(long)]
    pub(crate) version: Option<VersionName>,
    /// Verify the checksum of each data file before its first read [default: true, but false on an object store].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
}

impl ArchiveArgs {
    /// Opens the archive.
    pub(crate) fn open(&self) -> Result<Archive> {
        let archive = Archive::open_with(&self.archive, self.version.clone(), &StorageOptions::default())?;
        let checksums = self.checksums.unwrap_or(archive.has_checksums());
        Ok(archive.with_checksums(checksums))
    }
}

/// Rejects an output path inside the archive's folder, and an existing file unless the user wants to replace it.
pub(crate) fn check_output(path: &Path, overwrite: bool, archive: &Archive) -> Result<()> {
    if archive.contains(path)? {
        bail!(UsageError(format!("-o {}: expected a file outside of the archive", path.display())));
    }
    if !overwrite && path.is_file() {
        bail!(UsageError(format!("-o {}: the file exists: --overwrite replaces it", path.display())));
    }
    Ok(())
}
