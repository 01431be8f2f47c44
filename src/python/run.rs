//! Runs and their metadata, `a2store.Run`.

use super::numpy::copied_array;
use crate::error::Error;
use crate::format::{RunFormat, decode_run, encode_run, read_run as read_run_file};
use crate::run::Run;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

/// One decoded game.
#[pyclass(frozen, name = "Run", module = "a2store")]
pub(super) struct PyRun {
    run: Run,
    format: RunFormat,
}

/// The metadata of a run file.
#[pyclass(frozen, get_all, name = "RunMeta", module = "a2store")]
pub(super) struct PyRunMeta {
    num_steps: usize,
    start_unix_s: u64,
    elapsed_s: f32,
    max_score: u64,
    highest_tile: u32,
    engine: Option<String>,
    seed: Option<u64>,
    raw_evs: bool,
    format: &'static str,
}

/// Decodes one run from a file or from the bytes of a run file.
#[pyfunction]
pub(super) fn read_run(py: Python<'_>, path_or_bytes: &Bound<'_, PyAny>) -> PyResult<PyRun> {
    let (run, format) = if let Ok(bytes) = path_or_bytes.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        py.detach(|| decode_run(bytes))?
    } else {
        let path: PathBuf = path_or_bytes.extract()?;
        py.detach(|| read_run_file(path))?
    };
    Ok(PyRun { run, format })
}

impl PyRun {
    pub(super) fn new(run: Run, format: RunFormat) -> PyRun {
        PyRun { run, format }
    }

    fn encode(&self, format: Option<&str>) -> PyResult<Vec<u8>> {
        let format = format.map_or(Ok(self.format), str::parse)?;
        Ok(encode_run(&self.run, format)?)
    }
}

#[pymethods]
impl PyRun {
    #[getter]
    fn meta(&self) -> PyRunMeta {
        let meta = self.run.meta();
        PyRunMeta {
            num_steps: self.run.num_steps(),
            start_unix_s: meta.start_unix_s,
            elapsed_s: meta.elapsed_s,
            max_score: meta.max_score,
            highest_tile: meta.highest_tile,
            engine: meta.engine.clone(),
            seed: meta.seed,
            raw_evs: meta.raw_evs,
            format: self.format.name(),
        }
    }

    #[getter]
    fn boards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, u64>(self.run.boards()), "<u8", None)
    }

    #[getter]
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut moves: Vec<u8> = self.run.moves().iter().map(|&direction| direction as u8).collect();
        self.run.unknown_moves().iter().for_each(|&step| moves[step as usize] = u8::MAX);
        copied_array(py, &moves, "|u1", None)
    }

    #[getter]
    fn ev_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, f32>(self.run.ev_values()), "<f4", Some(4))
    }

    #[getter]
    fn ev_legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let legal: Vec<u8> =
            self.run.ev_legal().iter().flat_map(|&mask| (0..4).map(move |bit| mask >> bit & 1)).collect();
        copied_array(py, &legal, "|b1", Some(4))
    }

    #[getter]
    fn has_evs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let has_evs: Vec<u8> = self.run.has_evs().iter().map(|&has| u8::from(has)).collect();
        copied_array(py, &has_evs, "|b1", None)
    }

    #[getter]
    fn final_board(&self) -> Option<u64> {
        self.run.final_board().map(|board| board.board().0)
    }

    fn __len__(&self) -> usize {
        self.run.num_steps()
    }

    #[pyo3(signature = (format=None))]
    fn to_bytes<'py>(&self, py: Python<'py>, format: Option<&str>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.encode(format)?))
    }

    #[pyo3(signature = (path, format=None))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn save(&self, path: PathBuf, format: Option<&str>) -> PyResult<()> {
        let bytes = self.encode(format)?;
        Ok(std::fs::write(&path, bytes).map_err(|source| Error::io(&path, source))?)
    }

    fn verify(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.run.verify().err().map(|violation| violation.to_string()))
    }

    fn __repr__(&self) -> String {
        let meta = self.run.meta();
        let engine = meta.engine.as_ref().map_or_else(|| "None".to_owned(), |engine| format!("{engine:?}"));
        format!("Run({} steps, max_score={}, engine={engine}, {})", self.run.num_steps(), meta.max_score, self.format)
    }
}
