//! Iterators over the runs and steps of a pack.

use super::interrupt::signals;
use super::results::instances;
use super::run::PyRun;
use crate::archive::Rejected;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::format::{PackIter, PackReader, RunKind, RunSource};
use crate::loader::Permutation;
use crate::random;
use crate::run::Run;
use crate::workers;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs with their indices in the pack.
type RunBatch = Vec<(usize, Run)>;

/// An iterator over runs of a pack, which ``PackReader.iter`` returns.
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
    /// The indices of the runs, in order.
    places: Vec<usize>,
    batch_size: u64,
    workers: Option<usize>,
    skip_errors: bool,
    /// The number of runs that were decoded.
    next: Mutex<usize>,
    /// Decoded batches that were not returned yet, and errors that were not raised yet.
    ready: Mutex<VecDeque<Result<RunBatch>>>,
    /// The errors of the runs that were skipped.
    errors: Mutex<Vec<Rejected>>,
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
    /// Iterates over the runs at `chosen`, or over all.
    pub(super) fn new(
        pack: &PackReader,
        batch_size: u64,
        chosen: Option<Vec<usize>>,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
        skip_errors: bool,
    ) -> Result<PyPackBatchIterator> {
        workers::check(workers)?;
        let mut places = chosen.unwrap_or_else(|| (0..pack.len()).collect());
        if shuffle {
            let len = places.len() as u64;
            let permutation = Permutation::new(len, seed.map_or_else(random::seed, Ok)?, 0)?;
            places = (0..len).filter_map(|position| Some(places[permutation.get(position)? as usize])).collect();
        }
        Ok(PyPackBatchIterator {
            pack: pack.clone(),
            places,
            batch_size,
            workers,
            skip_errors,
            next: Mutex::new(0),
            ready: Mutex::default(),
            errors: Mutex::default(),
        })
    }

    /// Returns the next batch with sound runs. The error of a damaged run comes before its batch.
    fn next_batch(&self, cancel: &CancellationToken) -> Result<Option<RunBatch>> {
        loop {
            if let Some(ready) = lock(&self.ready).pop_front() {
                return ready.map(Some);
            }
            let places = {
                let mut next = lock(&self.next);
                let rest = self.places.get(*next..).unwrap_or_default();
                let places = rest.get(..self.batch_size as usize).unwrap_or(rest);
                *next += places.len();
                places
            };
            if places.is_empty() {
                return Ok(None);
            }
            let runs = decode_all(&self.pack, places, self.workers, cancel)?;
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
        (self.places.len() as u64).div_ceil(self.batch_size) as usize
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<PyRun>>> {
        let batch = py.detach(|| self.next_batch(&signals()))?;
        Ok(batch.map(|batch| batch.into_iter().map(|(place, run)| pyrun(&self.pack, place, run)).collect()))
    }

    fn __repr__(&self) -> String {
        format!("PackBatchIterator({} batches of {} runs)", self.__len__(), self.batch_size)
    }

    /// The runs that were skipped so far with ``on_error="skip"``, in order.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        instances(py, &*lock(&self.errors))
    }
}

/// Returns a decoded run with the format of its index entry.
pub(super) fn pyrun(pack: &PackReader, index: usize, run: Run) -> PyRun {
    PyRun::new(run, pack.kind(index).map_or(RunKind::V2, |kind| kind).format())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            runs.extend(pack.decode_batch_auto_v2(places));
        }
        Ok(runs)
    };
    match workers {
        None => decode(),
        Some(_) => workers::pool("pack", workers)?.install(decode),
    }
}
