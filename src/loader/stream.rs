//! The stream of rows that all ranks read, and one rank's share of it.

/// One rank's share of a stream of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankShare {
    /// Rows of an epoch, over all ranks.
    pub(crate) num_rows: u64,
    pub(crate) batch_size: u64,
    pub(crate) rank: u64,
    pub(crate) world_size: u64,
    pub(crate) drop_last: bool,
}

impl RankShare {
    /// Rows that all ranks take together in a step.
    pub(super) fn rows_per_step(&self) -> u64 {
        self.batch_size * self.world_size
    }

    /// Returns the number of steps from a position to the end of the epoch.
    pub(super) fn num_steps(&self, position: u64) -> u64 {
        let rest = self.num_rows.saturating_sub(position);
        match self.drop_last {
            true => rest / self.rows_per_step(),
            false => rest.div_ceil(self.rows_per_step()),
        }
    }

    /// Returns the positions that this rank takes of the step at a position.
    pub(super) fn positions(&self, position: u64) -> std::ops::Range<u64> {
        let step = self.rows_per_step().min(self.num_rows.saturating_sub(position));
        // Every rank gets `batch_size` rows of a full step. The rows of the last step are divided as evenly as
        // possible.
        let bound = |rank: u64| position + (u128::from(step) * u128::from(rank) / u128::from(self.world_size)) as u64;
        bound(self.rank)..bound(self.rank + 1)
    }
}
