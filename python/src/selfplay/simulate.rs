//! Simulated games, `a2store.simulate`.

use crate::error::OrRaise;
use crate::support::integers::{Bounded, Depth, U32, U64, Workers};
use crate::support::interrupt::interruptible;
use crate::support::progress::ProgressOption;
use crate::support::results::IntoInstance;
use a2store::selfplay::{SimulateOptions, simulate as simulate_runs};
use pyo3::prelude::*;
use std::path::PathBuf;

/// Play seeded games with the built-in player and write each game to its own run file.
///
/// The same options give the same files for any number of workers. The first file is ``run-00000.a2run2``, or
/// ``run-00000.bin`` in A2T1. If there are more than 10,000 runs, they go into subfolders of 1,000 files.
///
/// - ``out``: the folder, created if it is missing.
/// - ``runs``: the number of games, in ``0..2**32``.
/// - ``seed``: the seed of all games, in ``0..2**64``.
/// - ``format``: the format of the files, ``"a2t1"`` or ``"a2run2"``. ``"a2t1"`` omits the player's values of moves.
/// - ``depth``: the search depth of the player in spawns, 0 to 3. Each level multiplies the time by about fifty.
/// - ``engine``: the engine's name in the files, at most 65,535 bytes; ``None`` = a name that includes the depth.
/// - ``workers``: threads to play with, 1 to 1,024; ``None`` = one per core.
/// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
///
/// Raises ``FileExistsError`` for an existing file with other contents, and never overwrites a file. A repeated call
/// with the same options changes nothing. Raises ``ValueError`` for an option out of range. Raises
/// ``KeyboardInterrupt`` on Ctrl-C; the files of finished games stay.
///
/// >>> a2store.simulate("more", runs=2, seed=2, depth=0)
/// SimulateReport(runs=2, num_steps=742, num_bytes=22199)
#[pyfunction]
#[pyo3(signature = (out, *, runs=100, seed=0, format="a2run2", depth=1, engine=None, workers=None, progress=None))]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    out: PathBuf,
    #[pyo3(from_py_with = U32::int)] runs: u32,
    #[pyo3(from_py_with = U64::int)] seed: u64,
    format: &str,
    #[pyo3(from_py_with = Depth::int)] depth: u8,
    engine: Option<String>,
    workers: Option<Workers>,
    progress: Option<ProgressOption>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut options = SimulateOptions::default();
    options.runs = runs;
    options.seed = seed;
    options.format = format.parse().or_raise()?;
    options.depth = depth;
    options.engine = engine;
    options.workers = workers.map(Bounded::get);
    let report = interruptible(py, progress, |progress, cancel| simulate_runs(&out, &options, progress, cancel))?;
    report.into_instance(py)
}
