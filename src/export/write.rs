//! The path of all runs: from an archive or from files, through an encoder, to a sink.

use super::format::Needs;
use super::losses::{Losses, parts_of};
use super::options::{ExportOptions, ExportReport};
use super::output::{Output, RunToWrite};
use crate::archive::{Archive, StoredRun};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ReadRun, Rejected, RunInput, each_window};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use rayon::prelude::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A source of runs.
pub(super) enum RunsToWrite<'a> {
    /// These runs of an archive, in ascending order.
    Stored { archive: &'a Archive, run_ids: &'a [u32] },
    /// The runs of files and folders. They are numbered in the order in which they are read.
    Files(&'a [PathBuf]),
}

/// Writes the runs to an output, in order, and adds them to the report.
pub(super) fn write_runs(
    runs: &RunsToWrite<'_>,
    out: &Path,
    options: &ExportOptions,
    mut report: ExportReport,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<ExportReport> {
    options.check()?;
    let num_runs = match runs {
        RunsToWrite::Stored { run_ids, .. } => Some(run_ids.len()),
        RunsToWrite::Files(_) => None,
    };
    let Output { path, encode, mut sink } = Output::open(out, options, num_runs)?;
    report.path = path;
    let (mut losses, mut games, mut num_twins) = (Losses::new(options), HashSet::new(), 0_u64);
    let make = |to_write: RunToWrite| {
        let run = match options.needs() {
            Needs::WholeGame => to_write.run.with_derived_final_board(),
            Needs::Nothing | Needs::RunFile => to_write.run,
        };
        let (num_steps, parts, game) = (run.num_steps() as u64, parts_of(&run, options), run.game());
        // `take` handles an error of the encoder, in the order of runs.
        (num_steps, parts, game, encode(RunToWrite { run, ..to_write }))
    };
    let unread = runs.each(options, progress, cancel, make, |path, id, (num_steps, parts, game, encoded)| {
        cancel.check()?; // The sink may write many shards for the runs of one window.
        let written = encoded.and_then(|encoded| sink.push(encoded)).map_err(|error| of_run(error, id));
        if report.add(num_steps, written, path, options.skip_errors)? {
            losses.add(&parts);
            num_twins += u64::from(game.is_some_and(|game| !games.insert(game)));
        }
        Ok(())
    })?;
    report.errors.splice(0..0, unread);
    losses.warn(|part| sink.keeps(part), &options.layout(), progress);
    sink.finish()?;
    report.num_files = if options.format.is_run_files() { report.runs } else { 1 };
    if num_twins > 0 && matches!(runs, RunsToWrite::Files(_)) {
        progress.warn(&format!("{num_twins} of {} runs repeat the game of an earlier run", report.runs));
    }
    Ok(report)
}

impl RunsToWrite<'_> {
    /// Converts each run with `make` on all threads, and passes the results to `take` in order, with the run's file and
    /// id. Returns the errors of files and runs that were skipped, because they cannot be read.
    fn each<T: Send>(
        &self,
        options: &ExportOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
        make: impl Fn(RunToWrite) -> T + Sync,
        mut take: impl FnMut(&Path, u64, T) -> Result<()> + Send,
    ) -> Result<Vec<Rejected>> {
        let with_files = options.format.uses_run_file();
        match self {
            RunsToWrite::Stored { archive, run_ids } => {
                let make = |mut stored: StoredRun| {
                    let file = if with_files { stored.original()? } else { None };
                    let StoredRun { run, row } = stored;
                    Ok(make(RunToWrite { id: row.run_id.into(), run, file, game_steps: row.game_steps }))
                };
                let take = |run_id: u32, made| take(archive.path(), run_id.into(), made);
                archive.read_runs(run_ids, options.workers, progress, cancel, make, take)?;
                Ok(Vec::new())
            }
            RunsToWrite::Files(paths) => {
                let (source, mut next_id) = (RunInput::Paths(paths), 0_u64);
                let ExportOptions { workers, skip_errors, .. } = *options;
                each_window(source, workers, with_files, skip_errors, progress, cancel, |window| {
                    let mut runs = Vec::with_capacity(window.len());
                    for ReadRun { path, game_steps, run, .. } in window {
                        let Some((run, file)) = run else { continue };
                        runs.push((path, RunToWrite { id: next_id, run, file, game_steps }));
                        next_id += 1;
                    }
                    let made = runs.into_par_iter().map(|(path, run)| (path, run.id, make(run)));
                    made.collect::<Vec<_>>().into_iter().try_for_each(|(path, id, made)| take(&path, id, made))
                })
            }
        }
    }
}

/// Adds the run to an error about a run that does not fit the format.
fn of_run(error: Error, id: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Argument { name, expected, found } => Error::argument(name, expected, format!("run {id}: {found}")),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{ExportFormat, convert};
    use crate::format::tests::samples::game;
    use crate::format::{RunFormat, encode_run};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use walkdir::WalkDir;

    #[test]
    fn a_cancelled_export_writes_no_further_run() {
        let folder = tempfile::tempdir().unwrap();
        let (runs, root) = (folder.path().join("runs"), folder.path().to_path_buf());
        std::fs::create_dir(&runs).unwrap();
        for seed in 0..4 {
            let run = encode_run(&game(seed, 3), RunFormat::A2run2).unwrap();
            std::fs::write(runs.join(format!("{seed}.a2run2")), run).unwrap();
        }
        // The export is cancelled once the shards of the first run are there.
        let most = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&most);
        let cancel = CancellationToken::polling(move || {
            let files = WalkDir::new(&root).into_iter().filter_map(|entry| entry.ok());
            let shards = files.filter(|file| file.file_name().as_encoded_bytes().ends_with(b".npy")).count();
            seen.fetch_max(shards, Ordering::Relaxed);
            shards >= 3
        });
        let options = ExportOptions::new(ExportFormat::Session).with_shard_rows(1_u64);
        let error = convert([&runs], folder.path().join("out"), &options, &(), &cancel).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
        assert_eq!(most.load(Ordering::Relaxed), 3);
        let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["runs"]);
    }
}
