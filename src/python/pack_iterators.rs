//! Iterators over the runs and steps of a pack.

use super::batch::PyBatch;
use super::interrupt::signals;
use super::lock;
use super::results::instances;
use super::run::PyRun;
use crate::archive::Rejected;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::format::{PackIter, PackReader, RunFormat, RunSource};
use crate::loader::Permutation;
use crate::random;
use crate::run::Run;
use crate::table::StepTable;
use crate::workers;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

/// Runs with their indices in the pack.
type RunBatch = Vec<(usize, Run)>;

/// An iterator over runs of a pack, which ``PackReader.iter`` and ``PackReader.iter_indices`` return.
///
/// ``next`` raises ``DecodeError`` at a damaged run; the call after it continues with the following run.
///
/// >>> runs = a2store.PackReader.open("games.a2pack").iter()
/// >>> next(runs).meta.num_steps
/// 646
#[pyclass(frozen, name = "PackIterator", module = "a2store")]
pub(super) struct PyPackIterator {
    pack: PackReader,
    /// The indices of the runs; `None` means all.
    places: Option<Vec<usize>>,
    /// The inner iterator, and the number of runs that it has returned.
    runs: Mutex<(PackIter<'static>, usize)>,
}

/// An iterator over lists of runs of a pack. ``len`` is the total number of lists; it never decreases.
///
/// A list whose runs are all skipped is left out, although ``len`` counts it.
///
/// >>> batches = a2store.PackReader.open("games.a2pack").iter_batches(8, on_error="skip")
/// >>> len(batches), len(next(batches)), batches.errors
/// (3, 8, [])
#[pyclass(frozen, name = "PackBatchIterator", module = "a2store")]
pub(super) struct PyPackBatchIterator {
    pack: PackReader,
    runs: BatchOrder,
    workers: Option<usize>,
    skip_errors: bool,
    /// Decoded batches that were not returned yet, and errors that were not raised yet.
    ready: Mutex<VecDeque<Result<RunBatch>>>,
    /// The errors of the runs that were skipped.
    errors: Mutex<Vec<Rejected>>,
}

/// An iterator over batches of steps of a pack. ``len`` is the total number of batches; it never decreases.
///
/// >>> batches = a2store.PackReader.open("games.a2pack").iter_step_batches(4096)
/// >>> len(batches), len(next(batches))
/// (8, 4096)
#[pyclass(frozen, name = "PackStepIterator", module = "a2store")]
pub(super) struct PyPackStepIterator {
    table: StepTable,
    rows: BatchOrder,
}

/// The order in which runs or rows are taken, one batch at a time.
pub(super) struct BatchOrder {
    /// The indices to take; `None` means all.
    chosen: Option<Vec<u64>>,
    len: u64,
    permutation: Option<Permutation>,
    batch_size: u64,
    /// The number of indices that were taken.
    taken: Mutex<u64>,
}

impl BatchOrder {
    /// Takes the indices `chosen`, or all below `total`. Without a seed, a shuffled order has a random one.
    pub(super) fn new(
        total: u64,
        chosen: Option<Vec<u64>>,
        shuffle: bool,
        seed: Option<u64>,
        batch_size: u64,
    ) -> Result<BatchOrder> {
        let len = chosen.as_ref().map_or(total, |chosen| chosen.len() as u64);
        let permutation =
            if shuffle { Some(Permutation::new(len, seed.map_or_else(random::seed, Ok)?, 0)?) } else { None };
        Ok(BatchOrder { chosen, len, permutation, batch_size, taken: Mutex::new(0) })
    }

    fn num_batches(&self) -> usize {
        self.len.div_ceil(self.batch_size) as usize
    }

    /// Takes the indices of the next batch; none at the end.
    fn take(&self) -> Vec<u64> {
        let mut taken = lock(&self.taken);
        let end = self.len.min(taken.saturating_add(self.batch_size));
        let index = |position| {
            let place = match &self.permutation {
                Some(permutation) => permutation.get(position)?,
                None => position,
            };
            match &self.chosen {
                Some(chosen) => chosen.get(place as usize).copied(),
                None => Some(place),
            }
        };
        let indices = (*taken..end).filter_map(index).collect();
        *taken = end;
        indices
    }
}

impl PyPackIterator {
    /// Iterates over the runs at `places`, or over all.
    pub(super) fn new(pack: &PackReader, places: Option<Vec<usize>>) -> PyPackIterator {
        let runs = places.clone().map_or_else(|| pack.iter(), |places| pack.iter_indices(places));
        PyPackIterator { pack: pack.clone(), places, runs: Mutex::new((runs, 0)) }
    }
}

#[pymethods]
impl PyPackIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyRun>> {
        let next = py.detach(|| {
            let mut runs = lock(&self.runs);
            let next = runs.0.next();
            runs.1 += 1;
            next.map(|run| (runs.1 - 1, run))
        });
        let Some((position, run)) = next else { return Ok(None) };
        let place = self.places.as_ref().map_or(Some(position), |places| places.get(position).copied());
        Ok(Some(pyrun(&self.pack, place.unwrap_or(position), run?)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let len = self.places.as_ref().map_or(self.pack.len(), Vec::len);
        let returned = py.detach(|| lock(&self.runs).1.min(len));
        format!("PackIterator({len} runs, {returned} returned)")
    }
}

impl PyPackBatchIterator {
    pub(super) fn new(pack: PackReader, runs: BatchOrder, workers: Option<usize>, skip_errors: bool) -> Self {
        PyPackBatchIterator { pack, runs, workers, skip_errors, ready: Mutex::default(), errors: Mutex::default() }
    }

    /// Returns the next batch with sound runs. The error of a damaged run comes before its batch.
    fn next_batch(&self, cancel: &CancellationToken) -> Result<Option<RunBatch>> {
        loop {
            if let Some(ready) = lock(&self.ready).pop_front() {
                return ready.map(Some);
            }
            let places: Vec<usize> = self.runs.take().into_iter().map(|place| place as usize).collect();
            if places.is_empty() {
                return Ok(None);
            }
            let runs = decode_all(&self.pack, &places, self.workers, cancel)?;
            let (mut sound, mut ready) = (Vec::with_capacity(runs.len()), VecDeque::new());
            for (&place, run) in places.iter().zip(runs) {
                match run {
                    Ok(run) => sound.push((place, run)),
                    // A removed run is not an error.
                    Err(_) if self.skip_errors && self.pack.is_absent(place) => {}
                    Err(error) if self.skip_errors => {
                        let path = self.pack.path().unwrap_or(Path::new("")).to_path_buf();
                        lock(&self.errors).push(Rejected::new(path, error));
                    }
                    Err(error) => ready.push_back(Err(error)),
                }
            }
            if !sound.is_empty() {
                ready.push_back(Ok(sound));
            }
            lock(&self.ready).append(&mut ready);
        }
    }
}

#[pymethods]
impl PyPackBatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.runs.num_batches()
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<PyRun>>> {
        let batch = py.detach(|| self.next_batch(&signals()))?;
        Ok(batch.map(|batch| batch.into_iter().map(|(place, run)| pyrun(&self.pack, place, run)).collect()))
    }

    fn __repr__(&self) -> String {
        format!("PackBatchIterator({} batches of {} runs)", self.__len__(), self.runs.batch_size)
    }

    /// The runs that were skipped so far with ``on_error="skip"``, in order.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        instances(py, &*lock(&self.errors))
    }
}

impl PyPackStepIterator {
    pub(super) fn new(table: StepTable, rows: BatchOrder) -> PyPackStepIterator {
        PyPackStepIterator { table, rows }
    }
}

#[pymethods]
impl PyPackStepIterator {
    /// The runs that were skipped with ``on_error="skip"``, in order.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        instances(py, self.table.errors())
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __len__(&self) -> usize {
        self.rows.num_batches()
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        let batch = py.detach(|| {
            let rows = self.rows.take();
            if rows.is_empty() { Ok(None) } else { self.table.take(&rows).map(Some) }
        })?;
        Ok(batch.map(PyBatch::new))
    }

    fn __repr__(&self) -> String {
        format!("PackStepIterator({} batches of {} rows)", self.__len__(), self.rows.batch_size)
    }
}

/// Returns a decoded run with the format of its index entry.
pub(super) fn pyrun(pack: &PackReader, index: usize, run: Run) -> PyRun {
    PyRun::new(run, pack.format(index).unwrap_or(RunFormat::A2run2))
}

/// The number of runs between two checks for cancellation.
pub(super) const BATCH_RUNS: usize = 512;

/// Decodes runs on the shared threads, or on `workers` threads of a separate pool. Fails only if cancelled or without
/// threads.
pub(super) fn decode_all(
    pack: &PackReader,
    places: &[usize],
    workers: Option<usize>,
    cancel: &CancellationToken,
) -> Result<Vec<Result<Run>>> {
    let decode = || {
        let mut runs = Vec::with_capacity(places.len());
        for places in places.chunks(BATCH_RUNS) {
            cancel.check()?;
            runs.extend(pack.decode_batch(places));
        }
        Ok(runs)
    };
    match workers {
        None => decode(),
        Some(_) => workers::pool("pack", workers)?.install(decode),
    }
}
