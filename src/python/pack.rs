use super::batch::PyBatch;
use super::interrupt::{Signals, interruptible};
use super::memory::copied_array;
use super::run::PyRun;
use super::table::{PyStepTable, row_indices};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{JsonlOptions, JsonlReport, PackIter, PackReader, PackStats, RunKind, ValidateOptions};
use crate::loader::Permutation;
use crate::progress::{Progress, check};
use crate::random;
use crate::run::Run;
use crate::table::{FromRunsOptions, StepTable};
use crate::workers;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A pack of run files.
#[pyclass(frozen, name = "PackReader", module = "a2store")]
pub(super) struct PyPackReader {
    pack: PackReader,
    path: PathBuf,
    checksums: bool,
}

/// What a pack holds.
#[pyclass(frozen, name = "PackStats", module = "a2store")]
pub(super) struct PyPackStats(PackStats);

/// What became JSON Lines.
#[pyclass(frozen, get_all, name = "JsonlReport", module = "a2store")]
pub(super) struct PyJsonlReport {
    num_runs: u64,
    num_steps: u64,
    num_bytes: u64,
    errors: Vec<String>,
}

/// Runs of a pack, in order.
#[pyclass(frozen, name = "PackIterator", module = "a2store")]
pub(super) struct PyPackIterator {
    pack: PackReader,
    /// The runs that come; `None` = all of them.
    places: Option<Vec<usize>>,
    /// The iterator, and how many it has given.
    runs: Mutex<(PackIter<'static>, usize)>,
}

/// Runs of a pack, some at a time.
#[pyclass(frozen, name = "PackBatchIterator", module = "a2store")]
pub(super) struct PyPackBatchIterator {
    pack: PackReader,
    order: Order,
    batch_size: u64,
    workers: Option<usize>,
    next: Mutex<u64>,
}

/// Steps of a pack, some at a time.
#[pyclass(frozen, name = "PackStepIterator", module = "a2store")]
pub(super) struct PyPackStepIterator {
    table: StepTable,
    order: Order,
    batch_size: u64,
    next: Mutex<u64>,
}

/// Which of many come, and in which order.
struct Order {
    /// `None` = all of them.
    chosen: Option<Vec<u64>>,
    len: u64,
    permutation: Option<Permutation>,
}

impl Order {
    fn new(total: u64, chosen: Option<Vec<u64>>, shuffle: bool, seed: Option<u64>) -> Result<Order> {
        let len = chosen.as_ref().map_or(total, |chosen| chosen.len() as u64);
        let permutation = match shuffle {
            true => Some(Permutation::new(len, seed.map_or_else(random::seed, Ok)?, 0)?),
            false => None,
        };
        Ok(Order { chosen, len, permutation })
    }

    fn get(&self, position: u64) -> Option<u64> {
        let place = match &self.permutation {
            Some(permutation) => permutation.get(position)?,
            None => position,
        };
        match &self.chosen {
            Some(chosen) => chosen.get(usize::try_from(place).ok()?).copied(),
            None => (place < self.len).then_some(place),
        }
    }

    /// The next so many; none at the end.
    fn take(&self, next: &Mutex<u64>, len: u64) -> Vec<u64> {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.len.min(next.saturating_add(len));
        let taken = (*next..end).filter_map(|position| self.get(position)).collect();
        *next = end;
        taken
    }
}

impl PyPackReader {
    /// A run's place, counted from the end if it is negative.
    fn place(&self, index: i64) -> PyResult<usize> {
        let len = self.pack.len();
        let place = if index < 0 { index.checked_add_unsigned(len as u64) } else { Some(index) };
        let place = place.and_then(|place| usize::try_from(place).ok()).filter(|&place| place < len);
        place.ok_or_else(|| PyIndexError::new_err(format!("index {index} is out of bounds for a pack of {len} runs")))
    }

    fn run(&self, index: usize, run: Run) -> PyRun {
        pyrun(&self.pack, index, run)
    }

    /// The rows of all runs.
    fn table(&self, py: Python<'_>, workers: Option<usize>) -> PyResult<StepTable> {
        let options = FromRunsOptions { workers, ..FromRunsOptions::default() };
        interruptible(py, Some(false), |progress| StepTable::from_pack(&self.pack, &options, progress))
    }

    fn total_steps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(interruptible(py, Some(false), |progress| self.pack.stats(progress))?.total_steps)
    }
}

fn pyrun(pack: &PackReader, index: usize, run: Run) -> PyRun {
    PyRun::new(run, pack.kind(index).map_or(RunKind::V2, |kind| kind).format())
}

#[pymethods]
impl PyPackReader {
    #[staticmethod]
    #[pyo3(signature = (path, checksums=true))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn open(py: Python<'_>, path: PathBuf, checksums: bool) -> PyResult<PyPackReader> {
        // Whoever unpickles it may be elsewhere.
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

    /// A pack is opened again in the process that unpickles it.
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
            py.detach(|| decode_all(&self.pack, &places, None, &()))?
        } else {
            interruptible(py, Some(false), |progress| decode_all(&self.pack, &places, None, progress))?
        };
        Ok(places.iter().zip(runs).map(|(&place, run)| self.run(place, run)).collect())
    }

    fn __iter__(&self) -> PyPackIterator {
        self.iter()
    }

    fn iter(&self) -> PyPackIterator {
        PyPackIterator { pack: self.pack.clone(), places: None, runs: Mutex::new((self.pack.iter(), 0)) }
    }

    fn iter_indices(&self, indices: &Bound<'_, PyAny>) -> PyResult<PyPackIterator> {
        let places = self.places(indices)?;
        let runs = Mutex::new((self.pack.iter_indices(places.clone()), 0));
        Ok(PyPackIterator { pack: self.pack.clone(), places: Some(places), runs })
    }

    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None))]
    fn iter_batches(
        &self,
        batch_size: u64,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
        indices: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPackBatchIterator> {
        let batch_size = positive(batch_size)?;
        workers::check(workers)?;
        let chosen = indices.map(|indices| self.places(indices)).transpose()?;
        let chosen = chosen.map(|places| places.into_iter().map(|place| place as u64).collect());
        let order = Order::new(self.pack.len() as u64, chosen, shuffle, seed)?;
        Ok(PyPackBatchIterator { pack: self.pack.clone(), order, batch_size, workers, next: Mutex::new(0) })
    }

    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None))]
    fn iter_step_batches(
        &self,
        py: Python<'_>,
        batch_size: u64,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
        indices: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyPackStepIterator> {
        let batch_size = positive(batch_size)?;
        let table = self.table(py, workers)?;
        let chosen = indices.map(|indices| row_indices(py, indices, table.num_rows())).transpose()?;
        if let Some(&index) = chosen.iter().flatten().find(|&&index| index >= table.num_rows()) {
            let error = Error::from(ErrorKind::IndexOutOfBounds { index: index.into(), len: table.num_rows() });
            return Err(error.into());
        }
        let order = Order::new(table.num_rows(), chosen, shuffle, seed)?;
        Ok(PyPackStepIterator { table, order, batch_size, next: Mutex::new(0) })
    }

    #[pyo3(signature = (*, workers=None))]
    fn to_table(&self, py: Python<'_>, workers: Option<usize>) -> PyResult<PyStepTable> {
        Ok(PyStepTable::new(self.table(py, workers)?))
    }

    /// Indices of runs or of steps, divided in two by chance.
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
            (Some(pct), None) if (0.0..=100.0).contains(&pct) => (total as f64 * pct / 100.0).round() as u64,
            (Some(pct), None) => return Err(Error::argument("test_pct", "0 to 100", pct).into()),
            (None, Some(size)) if size <= total => size,
            (None, Some(size)) => {
                return Err(Error::argument("test_size", format!("at most {total}"), size).into());
            }
            _ => return Err(PyValueError::new_err("split: expected test_pct or test_size, one of the two")),
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
        let report = interruptible(py, progress, |progress| self.pack.to_jsonl(&path, &options, progress))?;
        let JsonlReport { num_runs, num_steps, num_bytes, errors, .. } = report;
        let errors = errors.iter().map(ToString::to_string).collect();
        Ok(PyJsonlReport { num_runs, num_steps, num_bytes, errors })
    }

    #[pyo3(signature = (*, progress=None))]
    fn stats(&self, py: Python<'_>, progress: Option<bool>) -> PyResult<PyPackStats> {
        Ok(PyPackStats(interruptible(py, progress, |progress| self.pack.stats(progress))?))
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
        let report = interruptible(py, progress, |progress: &dyn Progress| self.pack.validate(&options, progress))?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }
}

impl PyPackReader {
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

/// Runs between two looks at whether to stop.
const BATCH_RUNS: usize = 512;

/// Decodes runs on the threads that all such work shares, or on their own.
fn decode_all(
    pack: &PackReader,
    places: &[usize],
    workers: Option<usize>,
    progress: &dyn Progress,
) -> Result<Vec<Run>> {
    let decode = || {
        let mut runs = Vec::with_capacity(places.len());
        for places in places.chunks(BATCH_RUNS) {
            check(progress)?;
            for run in pack.decode_batch_auto_v2(places) {
                runs.push(run?);
            }
        }
        Ok(runs)
    };
    match workers {
        None => decode(),
        Some(_) => workers::pool("pack", workers)?.install(decode),
    }
}

#[pymethods]
impl PyPackIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyRun>> {
        let next = py.detach(|| {
            let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
            let next = runs.0.next();
            runs.1 += 1;
            next.map(|run| (runs.1 - 1, run))
        });
        let Some((position, run)) = next else { return Ok(None) };
        let place = self.places.as_ref().map_or(Some(position), |places| places.get(position).copied());
        Ok(Some(pyrun(&self.pack, place.unwrap_or(position), run?)))
    }
}

#[pymethods]
impl PyPackBatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.order.len.div_ceil(self.batch_size) as usize
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<PyRun>>> {
        let decoded = py.detach(|| {
            let places: Vec<usize> =
                self.order.take(&self.next, self.batch_size).into_iter().map(|place| place as usize).collect();
            let runs = decode_all(&self.pack, &places, self.workers, &Signals)?;
            Ok::<_, Error>((places, runs))
        })?;
        let (places, runs) = decoded;
        let runs: Vec<PyRun> = places.iter().zip(runs).map(|(&place, run)| pyrun(&self.pack, place, run)).collect();
        Ok((!runs.is_empty()).then_some(runs))
    }
}

#[pymethods]
impl PyPackStepIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.order.len.div_ceil(self.batch_size) as usize
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let batch = py.detach(|| {
            let rows = self.order.take(&self.next, self.batch_size);
            if rows.is_empty() { Ok(None) } else { self.table.take(&rows).map(Some) }
        })?;
        Ok(batch.map(PyBatch::new))
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
