//! The rows of a query that one of several ranks copies, for training on several machines.
//!
//! The query must read one table row by row. It is divided by row groups. A rank reads its own row groups, and
//! columns of strings whole.

use crate::error::{Error, Result};
use derive_setters::Setters;
use std::ops::Range;

/// The share of one rank: the rows that [`Query::materialize`](crate::Query::materialize) copies with this option.
///
/// The shares of a round are disjoint and complete, and their sizes differ by at most one row. `seed` and `round`
/// determine them, so another round has other shares. All ranks must read the same version of the archive.
///
/// The query may only filter and select rows of `steps`. A round puts the row groups in a random order and cuts the
/// whole sequence into `world_size` shares. If there are fewer than 4 row groups for each rank, they are first divided
/// into about 4 parts for each rank. The rows of a share are in the order of `steps`. For any other query, materialize
/// the query once, [save](crate::StepTable::save) the table, and map the file on each rank. The
/// [`rank`](crate::LoaderOptions::rank) and the world size of its loader divide the rows.
///
#[cfg_attr(feature = "sql", doc = "```")]
#[cfg_attr(not(feature = "sql"), doc = "```ignore")]
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// # let cancel = a2store::CancellationToken::new();
/// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
/// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
/// use a2store::MaterializeOptions;
/// use a2store::table::Shard;
/// let query = archive.sql("SELECT * FROM steps", a2store::query::no_params())?;
/// let mut num_rows = 0;
/// for rank in 0..2 {
///     let shard = Shard::new(rank, 2)?.with_round(7);
///     let table = query.materialize(&MaterializeOptions::default().with_shard(shard), &(), &cancel)?;
///     assert_eq!(table.shard().unwrap().total_rows, Some(query.count(&cancel)?));
///     num_rows += table.num_rows();
/// }
/// assert_eq!(num_rows, query.count(&cancel)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Setters)]
#[setters(prefix = "with_")]
#[non_exhaustive]
pub struct Shard {
    /// The rank of the process, from 0.
    #[setters(skip)]
    pub rank: u32,
    /// The number of ranks.
    #[setters(skip)]
    pub world_size: u32,
    /// The seed of the orders of all rounds, 0 by default.
    pub seed: u64,
    /// The number of the round, 0 by default.
    pub round: u64,
    /// The number of rows of all shares; `None` before a table was made.
    #[setters(skip)]
    pub total_rows: Option<u64>,
}

impl Shard {
    /// Returns the share of a rank in round 0 of seed 0.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless `rank` is less than `world_size`.
    pub fn new(rank: u32, world_size: u32) -> Result<Shard> {
        if rank >= world_size {
            return Err(Error::argument("shard", format!("a rank below the world size {world_size}"), rank));
        }
        Ok(Shard { rank, world_size, seed: 0, round: 0, total_rows: None })
    }

    /// Returns the share's places in a sequence of `total` rows.
    fn range(&self, total: u64) -> Range<u64> {
        let cut = |rank: u32| (u128::from(total) * u128::from(rank) / u128::from(self.world_size)) as u64;
        cut(self.rank)..cut(self.rank + 1)
    }

    /// Returns the share of blocks with these numbers of rows, as ranges of rows of each block, in order.
    pub(in crate::table) fn rows_of(&self, blocks: &[u64]) -> Vec<(usize, Vec<Range<u64>>)> {
        let share = self.range(blocks.iter().sum());
        // Hashes are random numbers that are the same on each machine.
        let hashed = |(index, part): (usize, (usize, Range<u64>))| {
            let numbers = [self.seed, self.round, index as u64].map(u64::to_le_bytes);
            (*blake3::hash(numbers.as_flattened()).as_bytes(), part)
        };
        let parts = divided(blocks, MIN_PARTS * u64::from(self.world_size));
        let mut order: Vec<_> = parts.into_iter().enumerate().map(hashed).collect();
        order.sort_unstable_by_key(|(hash, _)| *hash);
        let mut parts: Vec<(usize, Range<u64>)> = Vec::new();
        let mut start = 0;
        for (_, (block, rows)) in order {
            let end = start + (rows.end - rows.start);
            let (first, last) = (share.start.max(start), share.end.min(end));
            if first < last {
                parts.push((block, rows.start + (first - start)..rows.start + (last - start)));
            }
            start = end;
        }
        parts.sort_unstable_by_key(|(block, rows)| (*block, rows.start));
        let mut found: Vec<(usize, Vec<Range<u64>>)> = Vec::new();
        for (block, rows) in parts {
            match found.last_mut() {
                Some((newest, ranges)) if *newest == block => match ranges.last_mut() {
                    Some(range) if range.end == rows.start => range.end = rows.end,
                    _ => ranges.push(rows),
                },
                _ => found.push((block, vec![rows])),
            }
        }
        found
    }
}

/// The minimum number of parts for each rank that a round puts in order. If there are fewer row groups, they are
/// divided, so that the shares of a small archive also change from round to round.
const MIN_PARTS: u64 = 4;

/// Returns the blocks, or equal parts of them if there are fewer than `min_parts` blocks.
fn divided(blocks: &[u64], min_parts: u64) -> Vec<(usize, Range<u64>)> {
    let most = match blocks.len() as u64 >= min_parts {
        true => u64::MAX,
        false => blocks.iter().sum::<u64>().div_ceil(min_parts).max(1),
    };
    let parts_of = |(block, &num_rows): (usize, &u64)| {
        let num_parts = num_rows.div_ceil(most);
        let bound = move |part: u64| (u128::from(num_rows) * u128::from(part) / u128::from(num_parts)) as u64;
        (0..num_parts).map(move |part| (block, bound(part)..bound(part + 1)))
    };
    blocks.iter().enumerate().flat_map(parts_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_complete_and_equal() {
        let blocks = [5, 1, 0, 1000, 7, 300, 1, 1, 64];
        let total: u64 = blocks.iter().sum();
        for world_size in [1, 2, 3, 8, 200, 1379, 2000] {
            for round in 0..3 {
                let mut seen = blocks.map(|rows| vec![0; rows as usize]);
                for rank in 0..world_size {
                    let shard = Shard::new(rank, world_size).unwrap().with_seed(9).with_round(round);
                    let pieces = shard.rows_of(&blocks);
                    assert!(pieces.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    assert!(pieces.iter().all(|(_, rows)| rows.windows(2).all(|pair| pair[0].end < pair[1].start)));
                    let len: u64 = pieces.iter().flat_map(|(_, rows)| rows).map(|rows| rows.end - rows.start).sum();
                    let least = total / u64::from(world_size);
                    assert!(
                        (least..=least + 1).contains(&len)
                            && len * u64::from(world_size) < total + u64::from(world_size)
                    );
                    for (block, rows) in pieces {
                        rows.into_iter().flatten().for_each(|row| seen[block][row as usize] += 1);
                    }
                }
                assert!(seen.iter().flatten().all(|&count| count == 1));
            }
        }
    }

    #[test]
    fn another_round_or_seed_has_another_order() {
        let blocks = [10; 100];
        let pieces = |seed, round| Shard::new(0, 2).unwrap().with_seed(seed).with_round(round).rows_of(&blocks);
        assert_eq!(pieces(1, 2), pieces(1, 2));
        assert_ne!(pieces(1, 2), pieces(1, 3));
        assert_ne!(pieces(1, 2), pieces(2, 2));
        assert_ne!(pieces(1, 2), pieces(2, 1));
        // A resumed training expects the same pieces from a later build.
        let first: Vec<usize> = pieces(1, 2).iter().map(|(block, _)| *block).take(8).collect();
        assert_eq!(first, [0, 1, 3, 5, 7, 9, 11, 12]);
        assert!(Shard::new(2, 2).is_err() && Shard::new(0, 0).is_err());
    }
}
