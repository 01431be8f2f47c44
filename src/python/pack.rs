//! The reader of packs, `a2store.PackReader`.

use super::indices::row_indices;
use super::interrupt::interruptible;
use super::numpy::copied_array;
use super::pack_iterators::{BATCH_RUNS, PyPackBatchIterator, PyPackIterator, PyPackStepIterator, decode_all, pyrun};
use super::reports::skips_errors;
use super::run::PyRun;
use super::table::PyStepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind};
use crate::format::{JsonlOptions, JsonlReport, PackReader, PackStats, RunKind, ValidateOptions};
use crate::loader::Permutation;
use crate::run::Run;
use crate::table::{FromRunsOptions, StepTable};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;

/// A reader of a pack of run files.
#[pyclass(frozen, name = "PackReader", module = "a2store")]
pub(super) struct PyPackReader {
    pack: PackReader,
    path: PathBuf,
    checksums: bool,
}

/// Statistics of a pack.
#[pyclass(frozen, name = "PackStats", module = "a2store")]
pub(super) struct PyPackStats(PackStats);

/// A summary of a conversion to JSON Lines.
#[pyclass(frozen, get_all, name = "JsonlReport", module = "a2store")]
pub(super) struct PyJsonlReport {
    num_runs: u64,
    num_steps: u64,
    num_bytes: u64,
    errors: Vec<String>,
}

impl PyPackReader {
    /// Returns a run's index; a negative one counts from the end.
    fn place(&self, index: i64) -> PyResult<usize> {
        let len = self.pack.len();
        let place = if index < 0 { index.checked_add_unsigned(len as u64) } else { Some(index) };
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < len);
        place.ok_or_else(|| PyIndexError::new_err(format!("index {index} is out of bounds for a pack of {len} runs")))
    }

    fn run(&self, index: usize, run: Run) -> PyRun {
        pyrun(&self.pack, index, run)
    }

    /// Reads the rows of all runs.
    fn table(&self, py: Python<'_>, workers: Option<usize>, on_error: &str) -> PyResult<StepTable> {
        let skip_errors = skips_errors(on_error)?;
        let options = FromRunsOptions { workers, skip_errors, ..FromRunsOptions::default() };
        interruptible(py, Some(false), |progress, cancel| StepTable::from_pack(&self.pack, &options, progress, cancel))
    }

    fn total_steps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(interruptible(py, Some(false), |progress, cancel| self.pack.stats(progress, cancel))?.total_steps)
    }
}

#[pymethods]
impl PyPackReader {
    #[staticmethod]
    #[pyo3(signature = (path, checksums=true))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn open(py: Python<'_>, path: PathBuf, checksums: bool) -> PyResult<PyPackReader> {
        // The process that unpickles the reader may have another working folder.
        let path = std::path::absolute(&path)?;
        let pack = py.detach(|| PackReader::open(&path))?.with_checksums(checksums);
        Ok(PyPackReader { pack, path, checksums })
    }

    fn __len__(&self) -> usize {
        self.pack.len()
    }

    fn __repr__(&self) -> String {
        format!("PackReader({:?}, {} runs)", self.path, self.pack.len())
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Pickles the path and the options; unpickling opens the pack again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (PathBuf, bool))> {
        let path = slf.get().path.clone();
        Ok((slf.get_type().getattr("open")?, (path, slf.get().checksums)))
    }

    fn kind(&self, index: i64) -> PyResult<&'static str> {
        Ok(match self.pack.kind(self.place(index)?)? {
            RunKind::V1 => "v1",
            RunKind::V2 => "v2",
        })
    }

    fn decode(&self, py: Python<'_>, index: i64) -> PyResult<PyRun> {
        let index = self.place(index)?;
        Ok(self.run(index, py.detach(|| self.pack.decode_auto_v2(index))?))
    }

    fn __getitem__(&self, py: Python<'_>, index: i64) -> PyResult<PyRun> {
        self.decode(py, index)
    }

    fn decode_batch(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Vec<PyRun>> {
        let places = self.places(indices)?;
        let runs = if places.len() <= BATCH_RUNS {
            py.detach(|| decode_all(&self.pack, &places, None, CancellationToken::never()))?
        } else {
            interruptible(py, Some(false), |_, cancel| decode_all(&self.pack, &places, None, cancel))?
        };
        places.iter().zip(runs).map(|(&place, run)| Ok(self.run(place, run?))).collect()
    }

    fn __iter__(&self) -> PyPackIterator {
        self.iter()
    }

    fn iter(&self) -> PyPackIterator {
        PyPackIterator::new(&self.pack, None)
    }

    fn iter_indices(&self, indices: &Bound<'_, PyAny>) -> PyResult<PyPackIterator> {
        Ok(PyPackIterator::new(&self.pack, Some(self.places(indices)?)))
    }

    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None, on_error="raise"))]
    fn iter_batches(
        &self,
        batch_size: u64,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
        indices: Option<&Bound<'_, PyAny>>,
        on_error: &str,
    ) -> PyResult<PyPackBatchIterator> {
        let (batch_size, skip_errors) = (positive(batch_size)?, skips_errors(on_error)?);
        let chosen = indices.map(|indices| self.places(indices)).transpose()?;
        Ok(PyPackBatchIterator::new(&self.pack, batch_size, chosen, shuffle, seed, workers, skip_errors)?)
    }

    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None, on_error="raise"))]
    #[allow(clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn iter_step_batches(
        &self,
        py: Python<'_>,
        batch_size: u64,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
        indices: Option<&Bound<'_, PyAny>>,
        on_error: &str,
    ) -> PyResult<PyPackStepIterator> {
        let batch_size = positive(batch_size)?;
        let table = self.table(py, workers, on_error)?;
        let chosen = indices.map(|indices| row_indices(py, indices, table.num_rows())).transpose()?;
        if let Some(&index) = chosen.iter().flatten().find(|&&index| index >= table.num_rows()) {
            let error = Error::from(ErrorKind::IndexOutOfBounds { index: index.into(), len: table.num_rows() });
            return Err(error.into());
        }
        Ok(PyPackStepIterator::new(table, batch_size, chosen, shuffle, seed)?)
    }

    #[pyo3(signature = (*, workers=None, on_error="raise"))]
    fn to_table(&self, py: Python<'_>, workers: Option<usize>, on_error: &str) -> PyResult<PyStepTable> {
        Ok(PyStepTable::new(self.table(py, workers, on_error)?))
    }

    /// Splits the indices of runs or of steps at random.
    #[pyo3(signature = (unit="run", *, test_pct=None, test_size=None, seed=0))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        unit: &str,
        test_pct: Option<f64>,
        test_size: Option<u64>,
        seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let total = match unit {
            "run" => self.pack.len() as u64,
            "step" => self.total_steps(py)?,
            other => return Err(Error::argument("unit", "run or step", other).into()),
        };
        let test_size = match (test_pct, test_size) {
            // At least one, unless there is none.
            (Some(part), None) if part > 0.0 && part < 1.0 => ((total as f64 * part) as u64).max(1).min(total),
            (Some(part), None) => {
                return Err(Error::argument("test_pct", "a fraction between 0 and 1", part).into());
            }
            (None, Some(size)) if size <= total => size,
            (None, Some(size)) => {
                return Err(Error::argument("test_size", format!("at most {total}"), size).into());
            }
            _ => return Err(PyValueError::new_err("split: expected exactly one of test_pct and test_size")),
        };
        let (train, test) = py.detach(|| {
            let permutation = Permutation::new(total, seed, 0)?;
            let mut is_test = vec![false; total as usize];
            (0..test_size).filter_map(|position| permutation.get(position)).for_each(|i| is_test[i as usize] = true);
            let of = |part: bool| (0..total).filter(|&i| is_test[i as usize] == part).collect::<Vec<u64>>();
            Ok::<_, Error>((of(false), of(true)))
        })?;
        Ok((copied_array(py, &train, "<u8", None)?, copied_array(py, &test, "<u8", None)?))
    }

    #[pyo3(signature = (path, parallel=true, by_step=false, workers=None, progress=None, *, compact=false))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn to_jsonl(
        &self,
        py: Python<'_>,
        path: PathBuf,
        parallel: bool,
        by_step: bool,
        workers: Option<usize>,
        progress: Option<bool>,
        compact: bool,
    ) -> PyResult<PyJsonlReport> {
        let options = JsonlOptions { by_step, compact, parallel, workers };
        let report =
            interruptible(py, progress, |progress, cancel| self.pack.to_jsonl(&path, &options, progress, cancel))?;
        let JsonlReport { num_runs, num_steps, num_bytes, errors, .. } = report;
        let errors = errors.iter().map(ToString::to_string).collect();
        Ok(PyJsonlReport { num_runs, num_steps, num_bytes, errors })
    }

    #[pyo3(signature = (*, progress=None))]
    fn stats(&self, py: Python<'_>, progress: Option<bool>) -> PyResult<PyPackStats> {
        Ok(PyPackStats(interruptible(py, progress, |progress, cancel| self.pack.stats(progress, cancel))?))
    }

    #[pyo3(signature = (*, sample=None, workers=None, progress=None))]
    fn validate(
        &self,
        py: Python<'_>,
        sample: Option<usize>,
        workers: Option<usize>,
        progress: Option<bool>,
    ) -> PyResult<Vec<String>> {
        let options = ValidateOptions { sample, workers };
        let report = interruptible(py, progress, |progress, cancel| self.pack.validate(&options, progress, cancel))?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }
}

impl PyPackReader {
    /// Returns the indices of runs; negative ones count from the end.
    fn places(&self, indices: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        indices.try_iter()?.map(|index| self.place(index?.extract()?)).collect()
    }
}

fn positive(batch_size: u64) -> PyResult<u64> {
    match batch_size {
        0 => Err(Error::argument("batch_size", "at least 1", 0).into()),
        size => Ok(size),
    }
}

#[pymethods]
impl PyPackStats {
    #[getter]
    fn count(&self) -> u64 {
        self.0.count
    }

    #[getter]
    fn total_steps(&self) -> u64 {
        self.0.total_steps
    }

    #[getter]
    fn min_len(&self) -> u32 {
        self.0.min_len
    }

    #[getter]
    fn max_len(&self) -> u32 {
        self.0.max_len
    }

    #[getter]
    fn mean_len(&self) -> f64 {
        self.0.mean_len
    }

    #[getter]
    fn p50(&self) -> u32 {
        self.0.p50
    }

    #[getter]
    fn p90(&self) -> u32 {
        self.0.p90
    }

    #[getter]
    fn p99(&self) -> u32 {
        self.0.p99
    }

    // The names in older tools for packs.
    #[getter]
    fn p50_len(&self) -> u32 {
        self.0.p50
    }

    #[getter]
    fn p90_len(&self) -> u32 {
        self.0.p90
    }

    #[getter]
    fn p99_len(&self) -> u32 {
        self.0.p99
    }

    #[getter]
    fn highest_tile_hist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.highest_tiles(py)
    }

    #[getter]
    fn engine_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.engines(py)
    }

    #[getter]
    fn unreadable(&self) -> u64 {
        self.0.unreadable
    }

    #[getter]
    fn highest_tiles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tiles = PyDict::new(py);
        self.0.highest_tiles.iter().try_for_each(|(tile, runs)| tiles.set_item(tile, runs))?;
        Ok(tiles)
    }

    #[getter]
    fn engines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engines = PyDict::new(py);
        self.0.engines.iter().try_for_each(|(engine, runs)| engines.set_item(engine, runs))?;
        Ok(engines)
    }

    fn __repr__(&self) -> String {
        let PackStats { count, total_steps, min_len, max_len, mean_len, .. } = &self.0;
        format!(
            "PackStats(count={count}, total_steps={total_steps}, min_len={min_len}, max_len={max_len}, \
             mean_len={mean_len:.1})"
        )
    }
}
