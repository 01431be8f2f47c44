//! The stream of positions that all ranks read: one rank's share of it, and the position of a loader.

/// One rank's share of a stream of rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankShare {
    /// Rows of an epoch, over all ranks.
    pub(super) num_rows: u64,
    pub(super) batch_size: u64,
    pub(super) rank: u64,
    pub(super) world_size: u64,
    pub(super) drop_last: bool,
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

/// The position of a loader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor {
    pub(super) epoch: u64,
    /// The position at which the next iteration begins.
    pub(super) resume: u64,
    /// Rows of the epoch that the newest iteration has returned on all ranks together.
    pub(super) position: u64,
    /// The number of iterations and jumps. Older iterations no longer move the position.
    pub(super) generation: u64,
    /// Whether the next iteration serves the next epoch, because the newest one has served some of this epoch.
    pub(super) is_served: bool,
}

impl Cursor {
    /// Moves to a position of an epoch.
    pub(super) fn jump(&mut self, epoch: u64, position: u64) {
        *self = Cursor { epoch, resume: position, position, generation: self.generation + 1, is_served: false };
    }

    /// Returns the epoch and the position at which the next iteration begins.
    pub(super) fn next_start(&self) -> (u64, u64) {
        if self.is_served { (self.epoch.wrapping_add(1), 0) } else { (self.epoch, self.resume) }
    }
}
