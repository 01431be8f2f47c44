//! Archives of simulated games for the tests.

use a2store::format::RunFormat;
use a2store::{Archive, CancellationToken, IngestOptions, Phases, SimulateOptions, simulate};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with an archive of 24 games, in both run formats and of three engines.
pub(crate) struct Games {
    pub(crate) folder: TempDir,
    pub(crate) archive: Archive,
}

impl Games {
    pub(crate) fn new() -> Games {
        let folder = tempfile::tempdir().unwrap();
        write_runs(folder.path());
        let mut archive = Archive::create(folder.path().join("games.a2"), Phases { mid: 64, late: 256 }).unwrap();
        archive
            .ingest([folder.path().join("runs")], &IngestOptions::default(), &(), &CancellationToken::new())
            .unwrap();
        Games { folder, archive }
    }
}

/// Writes 24 runs to `runs/`: engines `alpha` and `beta` with values, `gamma` without.
pub(crate) fn write_runs(folder: &Path) -> PathBuf {
    let runs = folder.join("runs");
    for (seed, engine, format) in
        [(1, "alpha", RunFormat::A2run2), (2, "beta", RunFormat::A2run2), (3, "gamma", RunFormat::A2t1)]
    {
        let options = SimulateOptions::default()
            .with_runs(8)
            .with_seed(seed)
            .with_format(format)
            .with_depth(0)
            .with_engine(engine);
        simulate(runs.join(engine), &options, &(), &CancellationToken::new()).unwrap();
    }
    runs
}
