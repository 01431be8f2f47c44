//! Simulated games, `a2store.simulate`.

use super::interrupt::interruptible;
use crate::selfplay::{SimulateOptions, simulate as simulate_runs};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A summary of a simulation.
#[pyclass(frozen, get_all, name = "SimulateReport", module = "a2store")]
pub(super) struct PySimulateReport {
    runs: u64,
    num_steps: u64,
    num_bytes: u64,
}

#[pymethods]
impl PySimulateReport {
    fn __repr__(&self) -> String {
        format!("SimulateReport(runs={}, num_steps={}, num_bytes={})", self.runs, self.num_steps, self.num_bytes)
    }
}

/// Plays seeded games and writes each game to its own run file.
#[pyfunction]
#[pyo3(signature = (out, *, runs=100, seed=0, format="a2run2", depth=1, engine=None, workers=None, progress=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // The signature is Python's.
pub(super) fn simulate(
    py: Python<'_>,
    out: PathBuf,
    runs: u32,
    seed: u64,
    format: &str,
    depth: u8,
    engine: Option<String>,
    workers: Option<usize>,
    progress: Option<bool>,
) -> PyResult<PySimulateReport> {
    let options = SimulateOptions { runs, seed, format: format.parse()?, depth, engine, workers };
    let report = interruptible(py, progress, |progress, cancel| simulate_runs(&out, &options, progress, cancel))?;
    Ok(PySimulateReport { runs: report.runs, num_steps: report.num_steps, num_bytes: report.num_bytes })
}
