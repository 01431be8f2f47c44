//! Conversion of files without an archive.

use super::options::{ExportOptions, ExportReport};
use super::write::{RunsToWrite, write_runs};
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use std::path::{Path, PathBuf};

/// Converts runs to another format without an archive. The inputs are run files, packs, pack.dat files, datasets,
/// sessions and logs, and folders of them. Runs are written in the order in which they are read.
///
/// Several inputs are merged. [`ExportFormat::Original`](crate::export::ExportFormat::Original) is rejected: use a file copy
/// instead.
///
/// `progress` gets warnings about the parts of runs that the format loses, and about games that occur more than once.
///
/// # Errors
/// The error of the first file or run that cannot be read or written, unless [`ExportOptions::skip_errors`] is set, and
/// the errors of [`Query::export_runs`](crate::Query::export_runs). A file of many runs appears completely or not at
/// all. After an error, the run files of the call are removed.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (runs, pack) = (folder.path().join("runs"), folder.path().join("pack.dat"));
/// use a2store::{CancellationToken, SimulateOptions};
/// use a2store::export::{ExportFormat, ExportOptions};
/// let cancel = CancellationToken::new();
/// a2store::simulate(&runs, &SimulateOptions::default().with_runs(4), &(), &cancel)?;
/// let report = a2store::export::convert([&runs], &pack, &ExportOptions::new(ExportFormat::PackDat), &(), &cancel)?;
/// assert_eq!(report.runs, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn convert<P: AsRef<Path>>(
    paths: impl IntoIterator<Item = P>,
    out: impl AsRef<Path>,
    options: &ExportOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<ExportReport> {
    if !options.format.is_of_conversions() {
        return Err(Error::argument("format", "a format other than original", options.format));
    }
    let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_path_buf()).collect();
    let out = out.as_ref();
    if options.format.is_run_files() {
        refuse_overlap(&paths, out)?;
    }
    write_runs(&RunsToWrite::Files(&paths), out, options, ExportReport::default(), progress, cancel)
}

/// Returns an error if run files would be written into a folder that is read.
fn refuse_overlap(paths: &[PathBuf], out: &Path) -> Result<()> {
    // The nearest existing ancestor, with links resolved.
    let absolute = std::path::absolute(out).map_err(|source| Error::io(out, source))?;
    let Some(real) = absolute.ancestors().find_map(|path| path.canonicalize().ok()) else { return Ok(()) };
    let mut inputs = paths.iter().filter_map(|path| path.canonicalize().ok());
    if inputs.any(|input| input.is_dir() && real.starts_with(&input)) {
        return Err(Error::argument("out", "a path outside the inputs", out.display()));
    }
    Ok(())
}
