//! Iterators over the runs and steps of a pack.

use super::batch::PyBatch;
use super::interrupt::signals;
use super::run::PyRun;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{PackIter, PackReader, RunKind};
use crate::loader::Permutation;
use crate::random;
use crate::run::Run;
use crate::table::StepTable;
use crate::workers;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// An iterator over runs of a pack, in order.
#[pyclass(frozen, name = "PackIterator", module = "a2store")]
pub(super) struct PyPackIterator {
    pack: PackReader,
    /// The indices of the runs; `None` means all.
    places: Option<Vec<usize>>,
    /// The inner iterator, and the number of runs that it has returned.
    runs: Mutex<(PackIter<'static>, usize)>,
}

/// An iterator over lists of runs of a pack.
#[pyclass(frozen, name = "PackBatchIterator", module = "a2store")]
pub(super) struct PyPackBatchIterator {
    pack: PackReader,
    order: IndexOrder,
    batch_size: u64,
    workers: Option<usize>,
    next: Mutex<u64>,
}

/// An iterator over batches of steps of a pack.
#[pyclass(frozen, name = "PackStepIterator", module = "a2store")]
pub(super) struct PyPackStepIterator {
    table: StepTable,
    order: IndexOrder,
    batch_size: u64,
    next: Mutex<u64>,
}

/// A selection of indices, with their order.
struct IndexOrder {
    /// The selected indices; `None` means all.
    chosen: Option<Vec<u64>>,
    len: u64,
    permutation: Option<Permutation>,
}

impl IndexOrder {
    fn new(total: u64, chosen: Option<Vec<u64>>, shuffle: bool, seed: Option<u64>) -> Result<IndexOrder> {
        let len = chosen.as_ref().map_or(total, |chosen| chosen.len() as u64);
        let permutation = match shuffle {
            true => Some(Permutation::new(len, seed.map_or_else(random::seed, Ok)?, 0)?),
            false => None,
        };
        Ok(IndexOrder { chosen, len, permutation })
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

    /// Takes the next `len` indices; none at the end.
    fn take(&self, next: &Mutex<u64>, len: u64) -> Vec<u64> {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        let end = self.len.min(next.saturating_add(len));
        let taken = (*next..end).filter_map(|position| self.get(position)).collect();
        *next = end;
        taken
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

impl PyPackBatchIterator {
    /// Iterates over the runs at `chosen`, or over all.
    pub(super) fn new(
        pack: &PackReader,
        batch_size: u64,
        chosen: Option<Vec<usize>>,
        shuffle: bool,
        seed: Option<u64>,
        workers: Option<usize>,
    ) -> Result<PyPackBatchIterator> {
        workers::check(workers)?;
        let chosen = chosen.map(|places| places.into_iter().map(|place| place as u64).collect());
        let order = IndexOrder::new(pack.len() as u64, chosen, shuffle, seed)?;
        Ok(PyPackBatchIterator { pack: pack.clone(), order, batch_size, workers, next: Mutex::new(0) })
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
            let runs = decode_all(&self.pack, &places, self.workers, &signals())?;
            Ok::<_, Error>((places, runs))
        })?;
        let (places, runs) = decoded;
        let runs: Vec<PyRun> = places.iter().zip(runs).map(|(&place, run)| pyrun(&self.pack, place, run)).collect();
        Ok((!runs.is_empty()).then_some(runs))
    }
}

impl PyPackStepIterator {
    /// Iterates over the rows at `chosen`, or over all.
    pub(super) fn new(
        table: StepTable,
        batch_size: u64,
        chosen: Option<Vec<u64>>,
        shuffle: bool,
        seed: Option<u64>,
    ) -> Result<PyPackStepIterator> {
        let order = IndexOrder::new(table.num_rows(), chosen, shuffle, seed)?;
        Ok(PyPackStepIterator { table, order, batch_size, next: Mutex::new(0) })
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

/// Returns a decoded run with the format of its index entry.
pub(super) fn pyrun(pack: &PackReader, index: usize, run: Run) -> PyRun {
    PyRun::new(run, pack.kind(index).map_or(RunKind::V2, |kind| kind).format())
}

/// The number of runs between two checks for cancellation.
pub(super) const BATCH_RUNS: usize = 512;

/// Decodes runs on the shared threads, or on `workers` threads of a separate pool.
pub(super) fn decode_all(
    pack: &PackReader,
    places: &[usize],
    workers: Option<usize>,
    cancel: &CancellationToken,
) -> Result<Vec<Run>> {
    let decode = || {
        let mut runs = Vec::with_capacity(places.len());
        for places in places.chunks(BATCH_RUNS) {
            cancel.check()?;
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
