//! A loader of several tables, `a2store.mix`.

use super::loader::{PyLoader, token_type};
use super::table::PyStepTable;
use crate::error::OrRaise;
use crate::support::integers::{BatchSize, Bounded, NumSamples, Prefetch, Rank, U64, WorldSize};
use crate::support::interpreter::detached;
use crate::support::values::names_from;
use a2store::loader::{self, LoaderOptions, Sampling};
use a2store::table::StepTable;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyMapping;

/// Return a loader of several tables, each with its share of the rows.
///
/// Within a table, rows come in shuffled order, and no row repeats before all others have occurred. If an epoch serves
/// ``m`` rows from a table of ``k`` rows, each of the ``k`` rows occurs ``m / k`` times, rounded down or up. In any
/// window of the stream, each table's number of rows is exact to within one row (two rows for more than two tables).
/// The stream is the same for any batch size and number of ranks.
///
/// - ``tables``: pairs of a table and its share, or a dict from tables to shares. Shares are relative numbers of at
///   least 0: 7 and 3 are the same as 0.7 and 0.3. Shares are rounded to 1/65,536 of their sum, unless whole numbers
///   with a sum of at most 65,536 have the same ratios. All tables must have the columns of the first table, with the
///   same types and categories. To serve only common columns, name them in ``columns``.
/// - ``num_samples``: the number of rows per epoch over all ranks, in ``0..=2**62``; ``None`` = the rows of all tables.
/// - ``batch_size``, ``seed``, ``epoch``, ``drop_last``, ``rank``, ``world_size``, ``tokens``, ``symmetries``,
///   ``columns``, ``prefetch``: as in ``StepTable.loader``.
///
/// Raises ``ValueError`` for options and shares out of range, for tables with different columns, and for a share of a
/// table without rows. Raises ``TypeError`` for objects that are not tables.
///
/// >>> weak, strong = table.filter(max_score=30_000), table.filter(min_score=30_001)
/// >>> loader = a2store.mix([(weak, 0.25), (strong, 0.75)], batch_size=1000, seed=1)
/// >>> loader
/// Loader(29320 rows, mixed 1 3, batch_size=1000, seed=1, epoch=0, rank=0, world_size=1)
/// >>> import numpy as np
/// >>> int(np.isin(next(iter(loader)).run_id, strong["run_id"]).sum())
/// 750
#[pyfunction]
#[pyo3(signature = (
    tables, batch_size=4096, *, seed=0, epoch=0, num_samples=None, drop_last=false, rank=0, world_size=1,
    tokens="uint8", symmetries=false, columns=None, prefetch=2
))]
pub(crate) fn mix(
    py: Python<'_>,
    tables: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = BatchSize::int)] batch_size: usize,
    #[pyo3(from_py_with = U64::int)] seed: u64,
    #[pyo3(from_py_with = U64::int)] epoch: u64,
    num_samples: Option<NumSamples>,
    drop_last: bool,
    #[pyo3(from_py_with = Rank::int)] rank: usize,
    #[pyo3(from_py_with = WorldSize::int)] world_size: usize,
    tokens: &str,
    symmetries: bool,
    columns: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = Prefetch::int)] prefetch: usize,
) -> PyResult<PyLoader> {
    let pairs = match tables.cast::<PyMapping>() {
        Ok(shares) => shares.items()?.into_any(),
        Err(_) => tables.clone(),
    };
    let parts = pairs.try_iter().and_then(|pairs| pairs.map(|pair| pair?.extract()).collect());
    let parts: Vec<(Bound<'_, PyStepTable>, Bound<'_, PyAny>)> = parts.map_err(|error: PyErr| {
        let wrong = PyTypeError::new_err("tables: expected pairs of a StepTable and its share, or a dict");
        wrong.set_cause(py, Some(error));
        wrong
    })?;
    let part = |(table, share): (Bound<'_, PyStepTable>, Bound<'_, PyAny>)| match share.extract::<f64>() {
        Ok(share) => Ok((table.get().table.clone(), share)),
        Err(_) => {
            let found = share.repr()?;
            Err(PyTypeError::new_err(format!("tables: expected a number as a table's share, found {found}")))
        }
    };
    let parts: Vec<(StepTable, f64)> = parts.into_iter().map(part).collect::<PyResult<_>>()?;
    let mut options = LoaderOptions::default();
    options.batch_size = batch_size;
    options.sampling = Sampling::Shuffled;
    options.num_samples = num_samples.map(Bounded::get);
    options.seed = seed;
    options.epoch = epoch;
    options.drop_last = drop_last;
    options.rank = rank;
    options.world_size = world_size;
    options.tokens = token_type(tokens).or_raise()?;
    options.symmetries = symmetries;
    options.columns = columns.map(|names| names_from("columns", names)).transpose()?;
    options.prefetch = prefetch;
    Ok(PyLoader(detached(py, || loader::mix(&parts, options)).or_raise()?))
}
