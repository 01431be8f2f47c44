//! Arguments that several commands share, the parsers of their values, and checks of output paths.

use super::exit::UsageError;
use a2store::Archive;
use a2store::archive::{StorageOptions, VersionName};
use a2store::format::is_archive;
use anyhow::{Result, bail};
use clap::{Args, CommandFactory};
use clap_complete::aot::{self, Shell};
use std::io::Write;
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

// The options of work on many files.
#[derive(Args, Debug)]
pub(crate) struct WorkArgs {
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(crate) workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the completion script of the command line `C`.
pub(crate) fn completions<C: CommandFactory>(args: &CompletionsArgs) -> Result<u8> {
    let mut command = C::command();
    let name = command.get_name().to_owned();
    // In memory, because a generator panics if its output cannot be written.
    let mut script = Vec::new();
    aot::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(0)
}

/// Rejects an output path inside the archive's folder, and an existing file unless the user wants to replace it.
pub(crate) fn check_output(path: &Path, overwrite: bool, archive: &Archive) -> Result<()> {
    if archive.contains(path)? {
        bail!(UsageError(format!("-o {}: expected a path outside of the archive", path.display())));
    }
    if !overwrite && path.is_file() {
        bail!(UsageError(format!("-o {}: the file exists: --overwrite replaces it", path.display())));
    }
    Ok(())
}

/// Rejects an output path inside the folder of any archive.
pub(crate) fn check_outside_archives(path: &Path) -> Result<()> {
    // The path may not exist yet, but some folder above it does.
    let existing = std::path::absolute(path)?.ancestors().find_map(|above| above.canonicalize().ok());
    if existing.is_some_and(|existing| existing.ancestors().any(is_archive)) {
        bail!(UsageError(format!("-o {}: expected a path outside of archives", path.display())));
    }
    Ok(())
}

/// Parses a number of bytes, plain or with a binary unit: `512MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "kib" | "k" => Some(10),
        "mib" | "m" => Some(20),
        "gib" | "g" => Some(30),
        "tib" | "t" => Some(40),
        _ => None,
    };
    let bytes =
        digits.trim_end().parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes such as 4096, 512MiB or 2GiB".into())
}
