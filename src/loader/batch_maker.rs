//! Making one batch: its positions, their rows, and the gather.

use crate::error::Result;
use crate::loader::orders::order::EpochOrder;
use crate::loader::position::RankShare;
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::table::{Arena, BatchSchema, MixBuffers, SymmetryKey, TableMix};
use std::sync::Arc;

/// Fills batches. Each thread has its own maker.
#[derive(Clone)]
pub(in crate::loader) struct BatchMaker {
    share: RankShare,
    /// The position at which the first batch begins.
    pub(in crate::loader) start: u64,
    rows: Arc<TableMix>,
    pub(in crate::loader) schema: Arc<BatchSchema>,
    order: EpochOrder,
    symmetries: Option<SymmetryKey>,
    /// Scratch memory.
    positions: Vec<u64>,
    buffers: MixBuffers,
}

impl BatchMaker {
    /// Returns a maker of the batches from position `start` of an epoch on.
    pub(in crate::loader) fn new(
        rows: &Arc<TableMix>,
        order: EpochOrder,
        symmetries: Option<SymmetryKey>,
        share: RankShare,
        start: u64,
    ) -> BatchMaker {
        let (rows, schema) = (Arc::clone(rows), Arc::clone(rows.schema()));
        let (positions, buffers) = (Vec::new(), MixBuffers::default());
        BatchMaker { share, start, rows, schema, order, symmetries, positions, buffers }
    }

    /// Returns the number of batches to make.
    pub(in crate::loader) fn num_steps(&self) -> u64 {
        self.share.num_steps(self.start)
    }

    /// Returns the maximum number of rows of a batch.
    pub(in crate::loader) fn capacity(&self) -> usize {
        self.share.batch_size.min(self.share.num_rows) as usize
    }

    /// Returns the position at which a batch's step begins.
    pub(in crate::loader) fn position(&self, step: u64) -> u64 {
        (self.start + step * self.share.rows_per_step()).min(self.share.num_rows)
    }

    /// Makes a batch and returns its number of rows.
    pub(in crate::loader) fn fill(
        &mut self,
        step: u64,
        arena: &mut Arena,
        cancel: &CancellationToken,
    ) -> Result<usize> {
        let positions = self.share.positions(self.position(step));
        let num_rows = (positions.end - positions.start) as usize;
        let at_once = self.schema.rows_at_once();
        // Reserves the capacity that any batch needs, so that no later batch allocates.
        self.positions.clear();
        reserve(&mut self.positions, arena.capacity.min(at_once))?;
        self.buffers.reserve(arena.capacity.min(at_once))?;
        let mut columns = arena.columns_mut(&self.schema, num_rows);
        for start in (0..num_rows).step_by(at_once) {
            if start > 0 {
                cancel.check()?;
            }
            self.positions.resize(at_once.min(num_rows - start), 0);
            self.order.fill(&self.rows, positions.start + start as u64, &mut self.positions)?;
            let part = self.schema.split_front(&mut columns, self.positions.len());
            self.rows.gather(&self.positions, &mut self.buffers, part, self.symmetries)?;
        }
        Ok(num_rows)
    }
}
