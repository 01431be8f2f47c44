//! Simulation: run files of seeded games of the built-in player.

use super::player::Player;
use super::spawner::Spawner;
use crate::error::{Error, Result};
use crate::format::{RunFormat, encode_run};
use crate::run::{Run, RunMeta};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers::pool;
use derive_setters::Setters;
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Options of [`simulate`].
///
/// Set fields with the `with_*` methods: `SimulateOptions::default().with_runs(8)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct SimulateOptions {
    /// The number of games.
    pub runs: u32,
    /// The seed of the games. Equal seeds give equal files.
    pub seed: u64,
    /// The format of the files. A2T1 does not store the player's values.
    pub format: RunFormat,
    /// The search depth of the [`Player`], 0 to 3.
    pub depth: u8,
    /// The engine's name in the files; `None` = a name that contains the depth.
    #[setters(into)]
    pub engine: Option<String>,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

/// The result of [`simulate`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SimulateReport {
    /// The number of files.
    pub runs: u64,
    /// The number of steps in all files.
    pub num_steps: u64,
    /// The size of all files, in bytes.
    pub num_bytes: u64,
}

/// With more runs than this, files go into subfolders of a thousand.
const FLAT_RUNS: u32 = 10_000;

impl Default for SimulateOptions {
    fn default() -> Self {
        Self { runs: 100, seed: 0, format: RunFormat::A2run2, depth: 1, engine: None, workers: None }
    }
}

/// Plays seeded games and writes each to a file: `run-00000.a2run2` and so on.
///
/// The files contain no times, so they depend only on the options. A repeated call with the same options changes
/// nothing.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io), also for an existing file with other contents, because no file is
/// overwritten.
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled); the files of finished games stay.
pub fn simulate(
    out: impl AsRef<Path>,
    options: &SimulateOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<SimulateReport> {
    let out = out.as_ref();
    Error::check_range("depth", 0..=3, options.depth)?;
    if options.engine.as_ref().is_some_and(|engine| engine.len() > usize::from(u16::MAX)) {
        return Err(Error::argument("engine", "at most 65535 bytes", "a longer name"));
    }
    let num_folders = if options.runs > FLAT_RUNS { options.runs.div_ceil(1000) } else { 0 };
    let folders = (0..num_folders).map(|folder| out.join(format!("{folder:04}"))).chain([out.to_path_buf()]);
    for folder in folders {
        std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
    }
    let pool = pool("play", options.workers)?;
    let _work = ReportedWork::begin(progress, "simulate", Unit::Runs, u64::from(options.runs));
    let report = pool.install(|| {
        (0..options.runs)
            .into_par_iter()
            .map(|index| -> Result<(u64, u64)> {
                let run = play(index, options, cancel)?;
                let bytes = encode_run(&run, options.format)?;
                let name = format!("run-{index:05}.{}", options.format.extension());
                let path = match num_folders {
                    0 => out.join(name),
                    _ => out.join(format!("{:04}", index / 1000)).join(name),
                };
                write_new(&path, &bytes).map_err(|source| Error::io(&path, source))?;
                progress.advance(1);
                Ok((run.num_steps() as u64, bytes.len() as u64))
            })
            .try_reduce(|| (0, 0), |a, b| Ok((a.0 + b.0, a.1 + b.1)))
    });
    report.map(|(num_steps, num_bytes)| SimulateReport { runs: options.runs.into(), num_steps, num_bytes })
}

/// Writes a file, unless it already has these bytes. Does not overwrite other bytes.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match File::create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match std::fs::read(path) {
            Ok(found) if found == bytes => Ok(()),
            _ => Err(error),
        },
        file => file?.write_all(bytes),
    }
}

fn play(index: u32, options: &SimulateOptions, cancel: &CancellationToken) -> Result<Run> {
    let mut steps = Run::builder(1024);
    let player = Player::new(options.depth);
    let mut spawner = Spawner::of_game(options.seed, u64::from(index));
    let mut board = spawner.first_board();
    while let Some((chosen, branches)) = player.choose(board) {
        cancel.check()?;
        steps.push(board, chosen, Some(branches));
        board = spawner.spawn(board.slide(chosen));
    }
    let engine = options.engine.clone().unwrap_or_else(|| format!("a2store-expectimax-{}", options.depth));
    let meta = RunMeta {
        max_score: board.score(),
        highest_tile: board.highest_tile(),
        engine: Some(engine),
        ..RunMeta::default()
    };
    steps.finish(meta, board)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::read_run;

    #[test]
    fn a_seed_gives_the_same_files_on_any_number_of_threads() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = |name: &str, seed, workers| {
            let out = folder.path().join(name);
            let options = SimulateOptions { runs: 5, seed, depth: 0, workers: Some(workers), ..Default::default() };
            let report = simulate(&out, &options, &(), CancellationToken::never()).unwrap();
            let files: Vec<Vec<u8>> =
                (0..5).map(|i| std::fs::read(out.join(format!("run-{i:05}.a2run2"))).unwrap()).collect();
            assert_eq!(report.num_bytes, files.iter().map(|file| file.len() as u64).sum::<u64>());
            files
        };
        let one = bytes("one", 3, 1);
        assert_eq!(one, bytes("two", 3, 2));
        assert_ne!(one, bytes("other", 4, 2));
        assert!(one.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn a_repeated_call_changes_nothing_and_overwrites_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let of = |seed| {
            let options = SimulateOptions { runs: 2, seed, depth: 0, ..Default::default() };
            simulate(folder.path(), &options, &(), CancellationToken::never())
        };
        let first = of(1).unwrap();
        let file = folder.path().join("run-00001.a2run2");
        let before = std::fs::read(&file).unwrap();
        assert_eq!(of(1).unwrap(), first);
        assert_eq!(of(2).unwrap_err().kind_name(), "io");
        assert_eq!(std::fs::read(&file).unwrap(), before);
        std::fs::write(&file, &before[1..]).unwrap();
        let error = of(1).unwrap_err();
        assert_eq!(error.path(), Some(file.as_path()));
        assert_eq!(std::fs::read(&file).unwrap(), before[1..]);
    }

    #[test]
    fn games_obey_the_rules_and_end() {
        let folder = tempfile::tempdir().unwrap();
        for format in RunFormat::ALL {
            let out = folder.path().join(format.name());
            simulate(&out, &SimulateOptions { runs: 3, format, ..Default::default() }, &(), CancellationToken::never())
                .unwrap();
            for i in 0..3 {
                let (run, found) = read_run(out.join(format!("run-{i:05}.{}", format.extension()))).unwrap();
                assert_eq!(found, format);
                run.verify().unwrap();
                let final_board = run.final_board().unwrap();
                assert!(final_board.is_terminal());
                assert_eq!(run.meta().max_score, final_board.score());
            }
        }
    }
}
