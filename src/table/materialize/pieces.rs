//! The rows of a query's partitions that a table gets: all, or those of a share.

use crate::error::{Error, Result};
use crate::query::{Execution, Partition, Query, Rows};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::table::materialize::shard::Shard;
use crate::table::rows::threads::in_parts;
use arrow::array::RecordBatch;
use std::ops::Range;

/// Some rows of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::table) struct Piece {
    pub(in crate::table) partition: usize,
    /// The rows, ascending.
    pub(in crate::table) rows: Vec<Range<u64>>,
    /// Whether they reach to the end of the partition.
    pub(in crate::table) to_end: bool,
}

impl Piece {
    /// Returns all rows of each partition.
    pub(in crate::table) fn all(num_rows: &[usize]) -> Vec<Piece> {
        let piece = |(partition, &num_rows)| {
            let rows = std::iter::once(0..num_rows as u64).collect();
            Piece { partition, rows, to_end: true }
        };
        num_rows.iter().enumerate().map(piece).collect()
    }

    pub(in crate::table) fn num_rows(&self) -> u64 {
        self.rows.iter().map(|rows| rows.end - rows.start).sum()
    }
}

/// The rows of a piece in the batches of its partition.
pub(in crate::table) struct PieceRows {
    rows: Vec<Range<u64>>,
    /// The number of rows of the batches so far.
    seen: u64,
}

impl PieceRows {
    pub(in crate::table) fn of(piece: &Piece) -> PieceRows {
        let mut rows = piece.rows.clone();
        // A partition with more rows than it should have is an error, so they are not cut off.
        if let Some(last) = rows.last_mut().filter(|_| piece.to_end) {
            last.end = u64::MAX;
        }
        PieceRows { rows, seen: 0 }
    }

    /// Returns whether no later batch has rows of the piece.
    pub(in crate::table) fn is_complete(&self) -> bool {
        self.rows.last().is_none_or(|last| self.seen >= last.end)
    }

    /// Returns the rows of the piece in the next batch.
    pub(in crate::table) fn of_batch(&mut self, batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> {
        let start = self.seen;
        let end = start + batch.num_rows() as u64;
        self.seen = end;
        let ranges = &self.rows[self.rows.partition_point(|range| range.end <= start)..];
        ranges.iter().map_while(move |range| {
            let rows = range.start.max(start)..range.end.min(end);
            (!rows.is_empty()).then(|| batch.slice((rows.start - start) as usize, (rows.end - rows.start) as usize))
        })
    }
}

impl Shard {
    /// Returns the shard's rows of a query, and the shard with the number of all rows. Counts the rows first, unless
    /// the plan states their number.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the query does not read one table row by row, or uses
    /// random numbers or the time.
    pub(in crate::table) fn of_query(
        self,
        query: &Query,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<(Shard, Vec<Piece>)> {
        Shard::new(self.rank, self.world_size)?;
        if query.is_volatile()? {
            let expected = "a query without random numbers or the time, so that all ranks have the same rows";
            return Err(Error::argument("shard", expected, "another query"));
        }
        let limits = query.limits();
        let execution = query.execution(&limits, cancel)?;
        let (max_rows, is_exact) = match &execution.rows {
            Rows::InOrder { skip: 0, fetch: None, max_rows, is_exact } => (max_rows, *is_exact),
            // A loader of a query checks its options with a table without rows.
            Rows::InOrder { fetch: Some(0), .. } => {
                return Ok((Shard { total_rows: Some(0), ..self }, Vec::new()));
            }
            _ => {
                let expected = "a query that only filters and selects rows of one table";
                let found = "another query; instead, materialize the query once, save the table, load the file with \
                             mmap on each rank, and pass rank and world_size to the table's loader";
                return Err(Error::argument("shard", expected, found));
            }
        };
        let mut blocks: Vec<u64> = max_rows.iter().map(|&rows| rows as u64).collect();
        if !is_exact {
            let _work = ReportedWork::begin(progress, "count", Unit::Rows, blocks.iter().sum());
            blocks = count_partitions(query, &execution, max_rows, progress, cancel)?;
        }
        let piece = |(partition, rows): (usize, Vec<Range<u64>>)| {
            let to_end = rows.last().is_some_and(|last| last.end == blocks[partition]);
            Piece { partition, rows, to_end }
        };
        let pieces = self.rows_of(&blocks).into_iter().map(piece).collect();
        let total_rows = Some(blocks.iter().sum());
        Ok((Shard { total_rows, ..self }, pieces))
    }
}

/// Counts the rows of each partition of a plan. Reads the columns of the query's conditions only, if a plan for these
/// has the same partitions.
fn count_partitions(
    query: &Query,
    execution: &Execution,
    max_rows: &[usize],
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Vec<u64>> {
    let limits = query.limits();
    let bare = query.select(&[])?.execution(&limits, cancel)?;
    let Execution { plan, context, .. } = match &bare.rows {
        Rows::InOrder { max_rows: found, .. } if found == max_rows => &bare,
        _ => execution,
    };
    let count = |number: usize| {
        let mut partition = Partition::start(plan, context, Some(number), Partition::AHEAD)?;
        let mut num_rows = 0;
        while let Some(batch) = partition.next(|| cancel.check().and_then(|()| limits.check(cancel)))? {
            num_rows += batch.num_rows() as u64;
        }
        progress.advance(max_rows[number] as u64);
        Ok(num_rows)
    };
    in_parts(max_rows.len(), cancel, count).map_err(|error| limits.explain(query.archive().blame(error)))
}
