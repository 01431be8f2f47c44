//! Packing a folder of run files.

use super::builder::Payload;
use super::{PackBuilder, PackOptions, PackReport};
use crate::error::{Error, ErrorKind, Result};
use crate::format::files::ordered::{fill_window, in_order};
use crate::format::files::walk::{FoundFile, files_in};
use crate::format::run_file::MAX_RUN_BYTES;
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers;
use std::io;
use std::path::Path;

/// Bytes of files per window.
const WINDOW_BYTES: u64 = 16 << 20;
/// The maximum files per window.
const WINDOW_FILES: usize = 512;

/// Packs the run files of a folder and its subfolders in the order of their names. Follows links.
///
/// Files are detected by their content. A file that is not a run is reported if it has the extension of a run
/// file; other files are ignored. A bad file does not stop the packing. Memory is bounded: neither the list of
/// files nor their contents are held as a whole.
///
/// If no run was packed, no pack is written and `output` is unchanged.
///
/// # Errors
/// [`ErrorKind::Io`] if the folder cannot be read, has no run files, or the pack cannot be written;
/// [`ErrorKind::Argument`] for an invalid option; [`ErrorKind::Cancelled`]. After an error, `output` is unchanged.
pub fn pack_folder(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &PackOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<PackReport> {
    let input = input.as_ref();
    let pool = workers::pool("pack", options.workers)?;
    let metadata = std::fs::metadata(input).map_err(|source| Error::io(input, source))?;
    if !metadata.is_dir() {
        return Err(Error::io(input, io::ErrorKind::NotADirectory.into()));
    }
    let builder = PackBuilder::create(output, *options)?;
    // Reserves index space for the highest possible number of runs.
    let (mut num_files, mut num_bytes) = (0, 0);
    for candidate in candidates(input) {
        cancel.check()?;
        let candidate = candidate?;
        num_files += u64::from(candidate.is_named_as_run());
        num_bytes += candidate.num_bytes();
    }
    let _work = ReportedWork::begin(progress, "packing", Unit::Bytes, num_bytes);
    let mut builder = builder.with_capacity(num_files);
    let mut found = candidates(input).map(|candidate| cancel.check().and(candidate));
    // At most this many bytes of a file are read.
    let size = |candidate: &FoundFile| candidate.num_bytes().min(MAX_RUN_BYTES);
    let next_window = || fill_window(&mut found, WINDOW_FILES, WINDOW_BYTES, size);
    let work = |candidate: FoundFile| {
        let (num_bytes, is_named_so) = (candidate.num_bytes(), candidate.is_named_as_run());
        // `None` for a file that is ignored.
        let outcome = match candidate.problem {
            Some(error) => Some(Err(error)),
            None if !is_named_so && num_bytes > MAX_RUN_BYTES => None,
            None => match Payload::of_file(&candidate.path, options.compression) {
                Err(error) if !is_named_so && is_about_content(&error) => None,
                payload => Some(payload),
            },
        };
        (outcome, num_bytes)
    };
    let mut report = PackReport::default();
    let take = |(outcome, num_bytes): (Option<Result<Payload>>, u64)| {
        cancel.check()?;
        match outcome {
            Some(Ok(payload)) => builder.add(payload)?,
            Some(Err(error)) => report.errors.push(error),
            None => report.ignored += 1,
        }
        progress.advance(num_bytes);
        Ok(())
    };
    in_order(&pool, next_window, work, take)?;
    report.rejected = report.errors.len() as u64;
    match (builder.is_empty(), report.rejected) {
        (true, 0) => Err(Error::io(input, io::Error::new(io::ErrorKind::NotFound, "this folder has no run files"))),
        (true, _) => Ok(report),
        (false, _) => {
            let PackReport { packed, num_steps, num_bytes, .. } = builder.finish()?;
            Ok(PackReport { packed, num_steps, num_bytes, ..report })
        }
    }
}

/// Returns whether the error is about the content of the file rather than about access to it.
fn is_about_content(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Decode { .. } | ErrorKind::Checksum { .. })
}

/// Lists the files to read. Skips unfinished files, because the pack itself may be written into this folder.
fn candidates(input: &Path) -> impl Iterator<Item = Result<FoundFile>> {
    files_in(input).filter(|found| !found.as_ref().is_ok_and(|found| found.unfinished))
}
