//! One rank's share of a query's rows, for training on several machines.
//!
//! The rows of a query come in blocks: the row groups that it reads or, for a query that does not read row by row,
//! parts of its result. A round puts the blocks in a random order and cuts the whole sequence into shares.

use super::threads::on_cores;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::query::{Execution, Partition, Query};
use arrow::array::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use derive_setters::Setters;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The share of one rank: the rows that [`Query::materialize`] copies with this option.
///
/// A round puts the row groups that the query reads in a random order, which depends on `seed` and `round` only. If a
/// query reads fewer than 4 row groups for each rank, they are first divided into about 4 parts for each rank. The
/// round cuts the sequence into `world_size` shares, whose sizes differ by at most one row. So the shares of a round
/// are disjoint and complete, and the shares of another round have other rows. The rows of a share are in the order of
/// the query.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// # let cancel = a2store::CancellationToken::new();
/// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
/// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
/// use a2store::{MaterializeOptions, Shard};
/// let query = archive.sql("SELECT * FROM steps", a2store::no_params())?;
/// let mut num_rows = 0;
/// for rank in 0..2 {
///     let shard = Shard::new(rank, 2)?.with_round(7);
///     num_rows += query.materialize(&MaterializeOptions::default().with_shard(shard), &(), &cancel)?.num_rows();
/// }
/// assert_eq!(num_rows, query.count()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Setters)]
#[setters(prefix = "with_")]
pub struct Shard {
    #[setters(skip)]
    rank: u32,
    #[setters(skip)]
    world_size: u32,
    /// The seed of the orders of all rounds, 0 by default.
    seed: u64,
    /// The number of the round, 0 by default.
    round: u64,
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
        Ok(Shard { rank, world_size, seed: 0, round: 0 })
    }

    /// Returns the rank of the process, from 0.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn world_size(&self) -> u32 {
        self.world_size
    }

    /// Returns the seed of the orders of all rounds.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of the round.
    #[must_use]
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Returns the share of blocks with these numbers of rows, as ranges of rows of each block, in order.
    fn rows_of(&self, blocks: &[u64]) -> Vec<(usize, Vec<Range<u64>>)> {
        let total: u64 = blocks.iter().sum();
        let cut = |rank: u32| (u128::from(total) * u128::from(rank) / u128::from(self.world_size)) as u64;
        let share = cut(self.rank)..cut(self.rank + 1);
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

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let numbers = [u64::from(self.rank), u64::from(self.world_size), self.seed, self.round];
        numbers.map(u64::to_le_bytes).concat()
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

/// The rows of a query that form a share.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) shard: Shard,
    /// The number of rows of all shares.
    pub(super) total_rows: u64,
    pub(super) rows: ShareRows,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShareRows {
    /// Rows of the partitions of a plan that reads them in order.
    Partitions(Vec<Piece>),
    /// Rows of the whole result, ascending.
    Result(Vec<Range<u64>>),
}

/// Some rows of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) partition: usize,
    /// The rows, ascending. The last end is an upper bound if the number of rows is not known in advance.
    pub(super) rows: Vec<Range<u64>>,
    /// Whether they reach to the end of the partition.
    pub(super) to_end: bool,
}

impl Piece {
    /// Returns all rows of each partition.
    pub(super) fn all(num_rows: &[usize]) -> Vec<Piece> {
        let piece = |(partition, &num_rows)| {
            let rows = std::iter::once(0..num_rows as u64).collect();
            Piece { partition, rows, to_end: true }
        };
        num_rows.iter().enumerate().map(piece).collect()
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.rows.iter().map(|rows| rows.end - rows.start).sum()
    }
}

/// The part of a table's rows that it has of all ranks' rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableShard {
    /// The share.
    pub shard: Shard,
    /// The number of rows of all shares.
    pub total_rows: u64,
}

/// The rows of a piece in the batches of its partition.
pub(super) struct PieceRows {
    rows: Vec<Range<u64>>,
    /// The number of rows of the batches so far.
    seen: u64,
}

impl PieceRows {
    pub(super) fn of(piece: &Piece) -> PieceRows {
        let mut rows = piece.rows.clone();
        // A partition with more rows than it should have is an error, so they are not cut off.
        if let Some(last) = rows.last_mut().filter(|_| piece.to_end) {
            last.end = u64::MAX;
        }
        PieceRows { rows, seen: 0 }
    }

    /// Returns whether no later batch has rows of the piece.
    pub(super) fn is_complete(&self) -> bool {
        self.rows.last().is_none_or(|last| self.seen >= last.end)
    }

    /// Returns the rows of the piece in the next batch.
    pub(super) fn of_batch(&mut self, batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
        let start = self.seen;
        self.seen += batch.num_rows() as u64;
        rows_within(batch, start, &self.rows)
    }
}

/// Returns the rows of a batch that are in ascending ranges. `start` is the number of the batch's first row.
pub(super) fn rows_within(batch: &RecordBatch, start: u64, ranges: &[Range<u64>]) -> impl Iterator<Item = RecordBatch> {
    let end = start + batch.num_rows() as u64;
    let ranges = &ranges[ranges.partition_point(|range| range.end <= start)..];
    ranges.iter().map_while(move |range| {
        let rows = range.start.max(start)..range.end.min(end);
        (!rows.is_empty()).then(|| batch.slice((rows.start - start) as usize, (rows.end - rows.start) as usize))
    })
}

/// The number of rows of a block of a result.
const RESULT_BLOCK: u64 = 1 << 16;

impl Share {
    /// Returns the share of a query's rows. Counts the rows first, unless the plan states their number.
    pub(super) fn of(
        query: &Query,
        shard: Shard,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Share> {
        if query.is_volatile() {
            let expected = "a query without random numbers and the time, so that all ranks have the same rows";
            return Err(Error::argument("shard", expected, "another query"));
        }
        let limits = query.limits();
        let execution = query.execution(true, &limits, cancel)?;
        if let Execution::InOrder { plan, context, skip: 0, fetch: None, max_rows } = &execution {
            let blocks = match exact_rows(plan, max_rows.len()) {
                Some(exact) => exact.into_iter().map(|rows| rows as u64).collect(),
                None => {
                    let num_rows = max_rows.iter().map(|&rows| rows as u64).sum();
                    progress.begin("count", Unit::Rows, num_rows);
                    let counts = count_partitions(query, plan, context, max_rows, progress, cancel);
                    progress.end();
                    counts?
                }
            };
            let piece = |(partition, rows): (usize, Vec<Range<u64>>)| {
                let to_end = rows.last().is_some_and(|last| last.end == blocks[partition]);
                Piece { partition, rows, to_end }
            };
            let rows = ShareRows::Partitions(shard.rows_of(&blocks).into_iter().map(piece).collect());
            return Ok(Share { shard, total_rows: blocks.iter().sum(), rows });
        }
        progress.begin("count", Unit::Rows, 0);
        let total_rows = query.count_definite(cancel);
        progress.end();
        let total_rows = total_rows?;
        let starts = (0..total_rows).step_by(RESULT_BLOCK as usize);
        let blocks: Vec<u64> = starts.map(|start| RESULT_BLOCK.min(total_rows - start)).collect();
        let ranges = |(block, rows): (usize, Vec<Range<u64>>)| {
            let start = block as u64 * RESULT_BLOCK;
            rows.into_iter().map(move |rows| start + rows.start..start + rows.end)
        };
        let rows = ShareRows::Result(shard.rows_of(&blocks).into_iter().flat_map(ranges).collect());
        Ok(Share { shard, total_rows, rows })
    }

    pub(super) fn num_rows(&self) -> u64 {
        match &self.rows {
            ShareRows::Partitions(pieces) => pieces.iter().map(Piece::num_rows).sum(),
            ShareRows::Result(ranges) => ranges.iter().map(|range| range.end - range.start).sum(),
        }
    }
}

/// Returns the number of rows of each partition if the plan states all of them exactly.
pub(super) fn exact_rows(plan: &Arc<dyn ExecutionPlan>, num_partitions: usize) -> Option<Vec<usize>> {
    let statistics = StatisticsContext::new();
    (0..num_partitions)
        .map(|partition| {
            let of_partition = StatisticsArgs::new().with_partition(Some(partition));
            match statistics.compute(plan.as_ref(), &of_partition).ok()?.num_rows {
                Precision::Exact(num_rows) => Some(num_rows),
                _ => None,
            }
        })
        .collect()
}

/// Counts the rows of each partition of a plan. Reads the columns of the query's conditions only, if a plan for these has
/// the same partitions.
fn count_partitions(
    query: &Query,
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    max_rows: &[usize],
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Vec<u64>> {
    let limits = query.limits();
    let bare = query.select(&[])?.execution(true, &limits, cancel)?;
    let (plan, context) = match &bare {
        Execution::InOrder { plan, context, max_rows: found, .. } if found == max_rows => (plan, context),
        _ => (plan, context),
    };
    let counts: Vec<AtomicU64> = max_rows.iter().map(|_| AtomicU64::new(0)).collect();
    let next = AtomicUsize::new(0);
    on_cores(context.session_config().target_partitions(), |stop| {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(count) = counts.get(place) else { return Ok(()) };
            let mut partition = Partition::start(plan, context, place)?;
            while let Some(batch) = partition.next(|| stop.check(cancel).and_then(|()| limits.check(cancel)))? {
                count.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            }
            progress.advance(max_rows[place] as u64);
        }
    })
    .map_err(|error| limits.explain(query.archive().blame(error)))?;
    Ok(counts.into_iter().map(AtomicU64::into_inner).collect())
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
