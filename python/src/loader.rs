//! The loader of batches, `a2store.Loader`.

use super::batch::PyBatch;
use crate::error::OrRaise;
use crate::support::integers::U64;
use crate::support::interpreter::detached;
use crate::support::interrupt::checking;
use a2store::error::{Error, Result};
use a2store::loader::{Batches, Loader, LoaderPosition, LoaderState, RankShare, Sampling, Start};
use a2store::system::process::lock;
use a2store::table::ElementType;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString};
use std::sync::Mutex;

/// A loader that serves a table's rows in batches, one epoch per iteration.
///
/// All ranks share one stream of rows. Each step takes the next ``world_size * batch_size`` rows, and every rank gets
/// its part of them. A thread prepares batches ahead, so the loop rarely waits. Run one iteration of a loader at a
/// time. ``len(loader)`` is the number of batches in a whole epoch. To get a loader, call ``StepTable.loader`` or
/// ``a2store.mix``.
///
/// The first iteration serves the epoch of the option ``epoch``, and each further iteration serves the next epoch, in
/// another order. An iteration counts once it has returned a batch, even if the loop ends early. ``set_epoch`` chooses
/// an epoch.
///
/// Ctrl-C can interrupt a batch, and a failed allocation raises ``MemoryError``. In both cases the next call returns
/// the same batch, and the loader's position does not change.
///
/// >>> loader = table.loader(batch_size=4096, seed=1)
/// >>> len(loader)
/// 8
/// >>> sum(len(batch) for batch in loader)
/// 29320
#[pyclass(frozen, name = "Loader", module = "a2store")]
pub(crate) struct PyLoader(pub(super) Loader);

#[pymethods]
impl PyLoader {
    fn __len__(&self) -> usize {
        self.0.num_batches() as usize
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyBatchIterator> {
        Ok(PyBatchIterator { batches: Mutex::new(Some(detached(py, || self.0.batches()).or_raise()?)) })
    }

    /// The epoch that the next iteration serves.
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    /// The number of rows per batch and rank.
    #[getter]
    fn batch_size(&self) -> usize {
        self.0.options().batch_size
    }

    /// Set the epoch, which determines the order.
    ///
    /// The next iteration serves this epoch. If you have just loaded a state of this epoch, the iteration begins at the
    /// state's position. So a loop that calls ``set_epoch`` for each epoch can resume in the middle of an epoch.
    ///
    /// - ``epoch``: the number of the epoch, in ``0..2**64``.
    ///
    /// Raises ``ValueError`` for a number out of range.
    ///
    /// >>> loader = table.loader(seed=1)
    /// >>> loader.set_epoch(1)
    /// >>> loader.epoch
    /// 1
    fn set_epoch(&self, epoch: U64) {
        self.0.set_epoch(epoch.get());
    }

    /// Skip batches of the epoch: the next iteration begins after them.
    ///
    /// The skipped batches follow the loader's position, which ``state_dict`` returns. After a spike of the loss, load
    /// an older state, skip the batches that led to the spike, and continue. ``skip_batches(0)`` continues an iteration
    /// that the loop left early. If no more batches are left in the epoch, the next iteration serves the next epoch.
    ///
    /// - ``n``: the number of batches of this loader's size, in ``0..2**64``.
    ///
    /// Raises ``ValueError`` for a number out of range.
    ///
    /// >>> loader = table.loader(batch_size=1000)
    /// >>> loader.skip_batches(20)
    /// >>> sum(len(batch) for batch in loader)
    /// 9320
    fn skip_batches(&self, n: U64) {
        self.0.skip_batches(n.get());
    }

    /// Return the loader's position after the batches returned so far; prefetched batches do not count.
    ///
    /// The state is a dict of at most 512 bytes as JSON. After the same number of batches, all ranks have the same
    /// state.
    ///
    /// - ``version``: int, 1, the version of the dict and of the orders.
    /// - ``archive``, ``archive_version``: str and int, the archive's id and version.
    /// - ``query``: str, a hash of the query's text, parameters and limits. For rows of other origin, these three
    ///   values are ``""``, 0 and ``""``. ``load_state_dict`` does not compare them.
    /// - ``rows``: str, the table's ``fingerprint``.
    /// - ``num_rows``, ``num_samples``: ints, the numbers of rows of the table and of an epoch.
    /// - ``order``: str, the rows of an epoch and their order, such as ``"shuffled"`` or ``"weighted by age"``. Equal
    ///   orders have equal names: quotas of 2 and 4 have the same name as quotas of 1 and 2.
    /// - ``seed``, ``symmetries``: int and bool, the options.
    /// - ``epoch``: int.
    /// - ``position``: int, the number of rows of the epoch served so far to all ranks together, in
    ///   ``0..=num_samples``.
    ///
    /// Raises ``MemoryError`` if an allocation fails.
    ///
    /// >>> loader = table.loader(batch_size=100)
    /// >>> batch = next(iter(loader))
    /// >>> state = loader.state_dict()
    /// >>> state["epoch"], state["position"], state["order"]
    /// (0, 100, 'shuffled')
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = serde_json::to_string(&self.0.state()).map_err(Error::other).or_raise()?;
        py.import("json")?.call_method1("loads", (state,))
    }

    /// Let the next iteration begin at the epoch and the position of a state.
    ///
    /// Rows, order, ``num_samples``, ``seed`` and ``symmetries`` must equal those of the loader that made the state.
    /// The rows may come from another version of the archive, such as a compacted version, or from another archive.
    /// Batch size, rank, number of ranks, columns and tokens may differ. If the state is at the end of an epoch, the
    /// next iteration serves the next epoch. If you then call ``set_epoch`` with the state's epoch, that iteration has
    /// no batches.
    ///
    /// - ``state``: a dict that ``state_dict`` returned.
    ///
    /// Raises ``StateMismatchError``, with the name of the differing field, for a state of other rows or another order.
    /// Raises ``ValueError`` for an invalid state. The loader is then unchanged.
    ///
    /// >>> loader = table.loader(batch_size=1024, seed=1)
    /// >>> batch = next(iter(loader))
    /// >>> state = loader.state_dict()
    /// >>> loader = table.loader(batch_size=2048, seed=1)
    /// >>> loader.load_state_dict(state)
    /// >>> sum(len(batch) for batch in loader) == len(table) - 1024
    /// True
    fn load_state_dict(&self, state: &Bound<'_, PyDict>) -> PyResult<()> {
        fn field<'py, T: for<'a> FromPyObject<'a, 'py>>(state: &Bound<'py, PyDict>, name: &str) -> PyResult<T> {
            let wrong = |what: &str| PyValueError::new_err(format!("loader state: {name}: {what}"));
            let value = state.get_item(name)?.ok_or_else(|| wrong("missing"))?;
            value.extract().map_err(|_| wrong(&format!("unexpected type: {value}")))
        }
        let state = LoaderState {
            version: field(state, "version")?,
            archive: field(state, "archive")?,
            archive_version: field(state, "archive_version")?,
            query: field(state, "query")?,
            rows: field(state, "rows")?,
            num_rows: field(state, "num_rows")?,
            num_samples: field(state, "num_samples")?,
            order: field(state, "order")?,
            seed: field(state, "seed")?,
            symmetries: field(state, "symmetries")?,
            epoch: field(state, "epoch")?,
            position: field(state, "position")?,
        };
        self.0.load_state(&state).or_raise()
    }

    fn __repr__(&self) -> String {
        let options = self.0.options();
        format!(
            "Loader({} rows, {}, batch_size={}, seed={}, epoch={}, rank={}, world_size={})",
            self.0.num_rows(),
            self.0.order(),
            options.batch_size,
            options.seed,
            self.0.epoch(),
            options.rank,
            options.world_size,
        )
    }
}

/// Returns the type of tokens of this name.
pub(crate) fn token_type(name: &str) -> Result<ElementType> {
    match name {
        "uint8" => Ok(ElementType::UInt8),
        "int32" => Ok(ElementType::Int32),
        "int64" => Ok(ElementType::Int64),
        _ => Err(Error::argument("tokens", "uint8, int32 or int64", name)),
    }
}

/// Returns the sampling that the options of `StepTable.loader` select.
pub(crate) fn sampling(
    shuffle: bool,
    replacement: bool,
    weights: Option<String>,
    strata: Option<String>,
    quotas: Option<&Bound<'_, PyDict>>,
    window: Option<u64>,
) -> PyResult<Sampling> {
    let asked = [
        ("shuffle=False", !shuffle),
        ("weights", weights.is_some()),
        ("strata", strata.is_some()),
        ("window", window.is_some()),
        // Weighted rows are always drawn with replacement.
        ("replacement", replacement && weights.is_none()),
    ];
    let asked: Vec<&str> = asked.into_iter().filter(|(_, asked)| *asked).map(|(name, _)| name).collect();
    if asked.len() > 1 {
        return Err(PyValueError::new_err(format!("loader: {} cannot be combined", asked.join(" and "))));
    }
    if quotas.is_some() && strata.is_none() {
        return Err(PyValueError::new_err("loader: quotas: expected strata too, found none"));
    }
    Ok(match (weights, strata, window) {
        (Some(column), ..) => Sampling::Weighted { column },
        (_, Some(column), _) => {
            let quotas = quotas.map(|quotas| quotas.iter().map(quota).collect::<PyResult<_>>()).transpose()?;
            Sampling::Stratified { column, quotas }
        }
        (.., Some(window)) => Sampling::Windowed { window },
        _ if replacement => Sampling::Uniform,
        _ if shuffle => Sampling::Shuffled,
        _ => Sampling::Sequential,
    })
}

/// Returns a stratum's name and its share. The name may be a string, a number, a boolean or `None`.
fn quota((stratum, share): (Bound<'_, PyAny>, Bound<'_, PyAny>)) -> PyResult<(String, f64)> {
    let name = if stratum.is_none() {
        "null".to_owned()
    } else if let Ok(value) = stratum.extract::<bool>() {
        value.to_string()
    } else if stratum.is_instance_of::<PyString>() || stratum.is_instance_of::<PyFloat>() {
        stratum.str()?.extract()?
    } else {
        // The text of a NumPy float of 16 or 32 bits is rounded.
        let number = stratum.extract::<i128>().map(|value| value.to_string());
        number
            .or_else(|_| stratum.extract::<f64>().map(|value| value.to_string()))
            .or_else(|_| stratum.str()?.extract())?
    };
    match share.extract() {
        Ok(share) => Ok((name, share)),
        Err(error) if error.is_instance_of::<PyOverflowError>(share.py()) => Err(PyValueError::new_err(format!(
            "quotas: expected a number that a float can hold for {name}, found a larger"
        ))),
        Err(_) => Err(PyTypeError::new_err(format!("quotas: expected a number for {name}, found {share}"))),
    }
}

/// An iterator over the remaining batches of an epoch, which ``iter(loader)`` returns.
///
/// >>> batches = iter(table.loader(batch_size=4096))
/// >>> len(next(batches))
/// 4096
#[pyclass(frozen, name = "BatchIterator", module = "a2store")]
pub(crate) struct PyBatchIterator {
    batches: Mutex<Option<Batches>>,
}

#[pymethods]
impl PyBatchIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        if self.batches.is_poisoned() {
            return Err(PyRuntimeError::new_err("the loader has failed; create a new one"));
        }
        let next = checking(py, |cancel| {
            let mut batches = lock(&self.batches);
            let Some(open) = batches.as_mut() else { return Ok(None) };
            let next = open.next_batch(cancel)?;
            if next.is_none() {
                *batches = None;
            }
            Ok(next)
        })?;
        Ok(next.map(PyBatch::new))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("BatchIterator({} batches left)", self.__length_hint__(py))
    }

    /// Return the number of remaining batches.
    fn __length_hint__(&self, py: Python<'_>) -> usize {
        // Detach the interpreter, because the thread that makes a batch may attach to check for signals.
        detached(py, || {
            let batches = self.batches.lock();
            batches.ok().and_then(|batches| batches.as_ref().map(|batches| batches.size_hint().0)).unwrap_or(0)
        })
    }
}

/// The position of a loader written in Python, with the state machine of ``Loader``.
#[pyclass(frozen, name = "_Position", module = "a2store")]
pub(crate) struct PyPosition(LoaderPosition);

#[pymethods]
impl PyPosition {
    #[new]
    fn new(num_rows: u64, batch_size: u64, world_size: u64, drop_last: bool, epoch: u64) -> PyPosition {
        PyPosition(LoaderPosition::new(RankShare { num_rows, batch_size, rank: 0, world_size, drop_last }, epoch))
    }

    /// The epoch of the next iteration.
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.next().0
    }

    /// The row at which the next iteration begins.
    #[getter]
    fn start(&self) -> u64 {
        self.0.next().1
    }

    /// The epoch and the row of a saved state.
    #[getter]
    fn newest(&self) -> (u64, u64) {
        self.0.newest()
    }

    /// The number of batches of a whole epoch.
    #[getter]
    fn num_batches(&self) -> u64 {
        self.0.num_batches()
    }

    fn set_num_rows(&self, num_rows: u64) {
        self.0.set_num_rows(num_rows);
    }

    fn set_epoch(&self, epoch: u64) {
        self.0.set_epoch(epoch);
    }

    fn skip(&self, num_batches: u64) {
        self.0.skip(num_batches);
    }

    fn load(&self, epoch: u64, row: u64) {
        self.0.load(epoch, row);
    }

    /// Begin an iteration, and return its epoch, its first row and its number.
    fn begin(&self) -> (u64, u64, u64) {
        let Start { epoch, row, iteration } = self.0.begin();
        (epoch, row, iteration)
    }

    /// Record that an iteration has returned the batch before ``row``, or has ended at ``row``.
    fn serve(&self, iteration: u64, row: u64) {
        self.0.serve(iteration, row);
    }

    fn row_after(&self, row: u64, num_batches: u64) -> u64 {
        self.0.row_after(row, num_batches)
    }
}
