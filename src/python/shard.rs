//! The share of one rank, `a2store.Shard`.

use super::integers::{AnyInt, WorldSize, shown};
use crate::error::Error;
use crate::table::Shard;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// The share of a query's rows that a table is, from ``Query.materialize``.
///
/// >>> archive.sql("SELECT * FROM steps").materialize(shard=(1, 2)).shard
/// Shard(rank=1, world_size=2, seed=0, round=0, total_rows=29320)
#[pyclass(frozen, name = "Shard", module = "a2store", eq, get_all)]
#[derive(PartialEq)]
pub(super) struct PyShard {
    /// The rank of the share, from 0.
    rank: u32,
    /// The number of ranks.
    world_size: u32,
    /// The seed of the orders of all rounds.
    seed: u64,
    /// The number of the round.
    round: u64,
    /// The number of rows of all shares. A share has this number divided by ``world_size``, rounded down or up.
    total_rows: u64,
}

impl PyShard {
    pub(super) fn new(shard: Shard) -> PyShard {
        let Shard { rank, world_size, seed, round, total_rows } = shard;
        PyShard { rank, world_size, seed, round, total_rows: total_rows.unwrap_or_default() }
    }
}

#[pymethods]
impl PyShard {
    fn __repr__(&self) -> String {
        let PyShard { rank, world_size, seed, round, total_rows } = self;
        format!("Shard(rank={rank}, world_size={world_size}, seed={seed}, round={round}, total_rows={total_rows})")
    }
}

/// Returns the share that the arguments `shard`, `seed` and `round` of a call describe.
pub(super) fn shard_from(shard: Option<&Bound<'_, PyAny>>, seed: u64, round: u64) -> PyResult<Option<Shard>> {
    let Some(shard) = shard else {
        let given = [("seed", seed), ("round", round)].into_iter().find(|(_, value)| *value != 0);
        return match given {
            Some((name, value)) => {
                Err(PyValueError::new_err(format!("{name}: expected 0 without a shard, found {value}")))
            }
            None => Ok(None),
        };
    };
    let pair: Vec<Bound<'_, PyAny>> = shard.try_iter().and_then(Iterator::collect).unwrap_or_default();
    let [rank, world_size] = &pair[..] else {
        let found = shard.repr()?;
        return Err(PyTypeError::new_err(format!("shard: expected a rank and a world size, found {found}")));
    };
    let world_size = WorldSize::part("shard: world_size", world_size)? as u32;
    let rank = AnyInt::part("shard: rank", rank)?;
    let outside = || Error::argument("shard: rank", format!("0..={}", world_size - 1), shown(rank));
    let rank = u32::try_from(rank).ok().filter(|&rank| rank < world_size).ok_or_else(outside)?;
    Ok(Some(Shard::new(rank, world_size)?.with_seed(seed).with_round(round)))
}
