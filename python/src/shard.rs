//! The share of one rank, from arguments.

use crate::error::OrRaise;
use crate::support::integers::{AnyInt, WorldSize, shown};
use a2store::error::Error;
use a2store::table::Shard;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Returns the share that the arguments `shard`, `seed` and `round` of a call describe.
pub(crate) fn shard_from(shard: Option<&Bound<'_, PyAny>>, seed: u64, round: u64) -> PyResult<Option<Shard>> {
    let Some(shard) = shard else {
        let given = [("seed", seed), ("round", round)].into_iter().find(|(_, value)| *value != 0);
        return given.map_or(Ok(None), |(name, value)| {
            Err(PyValueError::new_err(format!("{name}: expected 0 without a shard, found {value}")))
        });
    };
    let pair: Vec<Bound<'_, PyAny>> = shard.try_iter().and_then(Iterator::collect).unwrap_or_default();
    let [rank, world_size] = &pair[..] else {
        let found = shard.repr()?;
        return Err(PyTypeError::new_err(format!("shard: expected a rank and a world size, found {found}")));
    };
    let world_size = WorldSize::part("shard: world_size", world_size)? as u32;
    let rank = AnyInt::part("shard: rank", rank)?;
    let outside = || Error::argument("shard: rank", format!("0..={}", world_size - 1), shown(rank));
    let rank = u32::try_from(rank).ok().filter(|&rank| rank < world_size).ok_or_else(outside).or_raise()?;
    Ok(Some(Shard::new(rank, world_size).or_raise()?.with_seed(seed).with_round(round)))
}
