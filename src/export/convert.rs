//! Conversion of files without an archive.

use super::losses::{Losses, Part, lost};
use super::options::{ExportOptions, ExportReport};
use super::session_plan::SessionOrigins;
use super::target::{ExpectedRuns, ExportOutput, ExportedRun, of_run};
use crate::archive::{ReadRun, RunsOf, each_run};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::Progress;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Converts runs to another format without an archive. The inputs are run files, packs, pack.dat files, datasets,
/// sessions and logs, and folders of them. Runs are written in the order in which they are read.
///
/// With [`ExportOptions::append`], the runs are added to an existing pack.dat or dataset. This merges several
/// inputs into one. [`ExportFormat::Original`](crate::ExportFormat::Original) is rejected: use a file copy instead.
///
/// `progress` gets warnings about the parts of runs that the format loses, and about games that occur more than once.
///
/// # Errors
/// The error of the first file or run that cannot be read or written, unless [`ExportOptions::skip_errors`] is set, and
/// the errors of [`Query::export_runs`](crate::Query::export_runs). A file of many runs appears completely or not at
/// all. After an error, an appended file is unchanged.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (runs, pack) = (folder.path().join("runs"), folder.path().join("pack.dat"));
/// use a2store::{CancellationToken, ExportFormat, ExportOptions, SimulateOptions};
/// let cancel = CancellationToken::new();
/// a2store::simulate(&runs, &SimulateOptions::default().with_runs(4), &(), &cancel)?;
/// let report = a2store::convert([&runs], &pack, &ExportOptions::new(ExportFormat::PackDat), &(), &cancel)?;
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
    refuse_overlap(&paths, out, options)?;
    let mut report = ExportReport::default();
    let with_files = options.format.target().uses_original;
    let ExportOptions { workers, skip_errors, .. } = *options;
    let runs = RunsOf::Paths(&paths);
    let (mut output, mut games, mut num_twins) = (None, HashSet::new(), 0_u64);
    let unread =
        each_run(&runs, workers, with_files, skip_errors, progress, cancel, |ReadRun { path, run, .. }| {
            let Some((run, original)) = run else { return Ok(()) };
            let (id, num_steps, run) = (report.runs, run.num_steps() as u64, options.prepared(run));
            let output = match &mut output {
                Some(output) => output,
                None => output.insert(Output::open(out, options, run.unknown_moves().is_empty())?),
            };
            let (lost, game) = (lost(&output.parts, &run), run.game());
            let exported = ExportedRun { id, run, original, source_id: None, game_steps: None };
            let encoded = output.to.encoder.encode(exported);
            let written = encoded.and_then(|encoded| output.to.sink.push(encoded)).map_err(|error| of_run(error, id));
            if report.add(num_steps, written, &path, skip_errors)? {
                output.losses.add(&lost);
                num_twins += u64::from(game.is_some_and(|game| !games.insert(game)));
            }
            Ok(())
        })?;
    let output = output.map_or_else(|| Output::open(out, options, true), Ok)?;
    report.path = output.to.path;
    report.num_files = output.to.sink.finish()?;
    report.errors.splice(0..0, unread);
    output.losses.warn(&output.parts, &options.layout(), progress);
    if num_twins > 0 {
        progress.warn(&format!("{num_twins} of {} runs repeat the game of an earlier run", report.runs));
    }
    Ok(report)
}

/// The output of a conversion. The first run opens it.
struct Output {
    to: ExportOutput,
    parts: Vec<Part>,
    losses: Losses,
}

impl Output {
    /// Opens the output. A session has moves if the first run has all of them, unless the options say otherwise.
    fn open(out: &Path, options: &ExportOptions, has_moves: bool) -> Result<Output> {
        let session = &SessionOrigins::default().plan(options.moves.or(Some(has_moves)))?;
        let parts = options.loses(session);
        let to = options.open(out, &ExpectedRuns { num_runs: None, session })?;
        Ok(Output { to, losses: Losses::new(parts.len()), parts })
    }
}

/// Returns an error if the output would be appended to an input, or if run files would be written into a folder
/// that is read.
fn refuse_overlap(paths: &[PathBuf], out: &Path, options: &ExportOptions) -> Result<()> {
    let is_folder = options.format.target().is_run_files;
    // The nearest existing ancestor, with links resolved.
    let absolute = std::path::absolute(out).map_err(|source| Error::io(out, source))?;
    let Some(real) = absolute.ancestors().find_map(|path| path.canonicalize().ok()) else { return Ok(()) };
    for path in paths {
        let Ok(input) = path.canonicalize() else { continue };
        let is_same = real.starts_with(&input) || (out.exists() && input.starts_with(&real));
        if (options.append && is_same) || (is_folder && input.is_dir() && real.starts_with(&input)) {
            return Err(Error::argument("out", "a path outside the inputs", out.display()));
        }
    }
    Ok(())
}
