//! The position of a loader in the rows that all ranks read, and one rank's share of them.
//!
//! All loaders share this state machine:
//!
//! | state | a saved state has | the next iteration serves |
//! | --- | --- | --- |
//! | ready | the row at which the next iteration begins | the epoch, from that row |
//! | ended | the end of the epoch | the next epoch |
//! | serving | the row after the newest batch | the next epoch |
//!
//! | call | ready | ended | serving |
//! | --- | --- | --- | --- |
//! | an iteration returns a batch, or ends | serving | | serving |
//! | `set_epoch` with the same epoch | unchanged | ready at the end: an iteration without batches | ready at row 0 |
//! | `set_epoch` with another epoch | ready at row 0 | ready at row 0 | ready at row 0 |
//! | `skip` | ready after the skipped batches, or ended | the same in the next epoch | the same, after the newest batch |
//! | `load` | ready at the loaded row, or ended | the same | the same |

use crate::system::process::lock;
use std::sync::Mutex;

/// One rank's share of a stream of rows.
#[derive(Clone, Copy, Debug)]
pub struct RankShare {
    /// Rows of an epoch, over all ranks.
    pub num_rows: u64,
    /// The number of rows per batch and rank.
    pub batch_size: u64,
    /// The rank, from 0.
    pub rank: u64,
    /// The number of ranks.
    pub world_size: u64,
    /// Whether the last batch is left out if it is not full.
    pub drop_last: bool,
}

impl RankShare {
    /// Rows that all ranks take together in a step.
    pub(in crate::loader) fn rows_per_step(&self) -> u64 {
        self.batch_size * self.world_size
    }

    /// Returns the number of steps from a position to the end of the epoch.
    pub(in crate::loader) fn num_steps(&self, position: u64) -> u64 {
        let rest = self.num_rows.saturating_sub(position);
        match self.drop_last {
            true => rest / self.rows_per_step(),
            false => rest.div_ceil(self.rows_per_step()),
        }
    }

    /// Returns the positions that this rank takes of the step at a position.
    pub(in crate::loader) fn positions(&self, position: u64) -> std::ops::Range<u64> {
        let step = self.rows_per_step().min(self.num_rows.saturating_sub(position));
        // Every rank gets `batch_size` rows of a full step. The rows of the last step are divided as evenly as
        // possible.
        let bound = |rank: u64| position + (u128::from(step) * u128::from(rank) / u128::from(self.world_size)) as u64;
        bound(self.rank)..bound(self.rank + 1)
    }
}

/// The position of a loader.
#[derive(Debug)]
pub struct LoaderPosition(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    share: RankShare,
    epoch: u64,
    /// Rows of the epoch before this position, over all ranks.
    row: u64,
    phase: Phase,
    /// The number of iterations and jumps. Only the newest iteration moves the position.
    iteration: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Ready,
    Ended,
    Serving,
}

/// The beginning of an iteration.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// The epoch.
    pub epoch: u64,
    /// Rows of the epoch before the first batch, over all ranks.
    pub row: u64,
    /// The number of the iteration, for [`LoaderPosition::serve`].
    pub iteration: u64,
}

impl LoaderPosition {
    /// Returns the beginning of an epoch.
    #[must_use]
    pub fn new(share: RankShare, epoch: u64) -> LoaderPosition {
        LoaderPosition(Mutex::new(State { share, epoch, row: 0, phase: Phase::Ready, iteration: 0 }))
    }

    /// Returns the epoch and the row at which the next iteration begins.
    pub fn next(&self) -> (u64, u64) {
        lock(&self.0).next()
    }

    /// Returns the epoch and the row of a saved state.
    pub fn newest(&self) -> (u64, u64) {
        let state = lock(&self.0);
        (state.epoch, state.row)
    }

    /// Begins an iteration. Until it returns a batch or ends, the next iteration begins at the same row.
    pub fn begin(&self) -> Start {
        let mut state = lock(&self.0);
        let (epoch, row) = state.next();
        state.jump(epoch, row, Phase::Ready);
        Start { epoch, row, iteration: state.iteration }
    }

    /// Records that an iteration has returned the batch before `row`, or has ended there. Does nothing if the position
    /// has jumped since, or if another iteration has begun.
    pub fn serve(&self, iteration: u64, row: u64) {
        let mut state = lock(&self.0);
        if state.iteration == iteration {
            (state.row, state.phase) = (row, Phase::Serving);
        }
    }

    /// Sets the epoch of the next iteration.
    pub fn set_epoch(&self, epoch: u64) {
        let mut state = lock(&self.0);
        if state.epoch != epoch {
            state.jump(epoch, 0, Phase::Ready);
        } else if state.phase == Phase::Serving {
            // A running iteration goes on, and its next batch moves the position again.
            state.row = 0;
        }
        state.phase = Phase::Ready;
    }

    /// Skips batches of the epoch.
    pub fn skip(&self, num_batches: u64) {
        let mut state = lock(&self.0);
        let is_over = match state.phase {
            Phase::Ready => false,
            Phase::Ended => true,
            Phase::Serving => state.share.num_steps(state.row) == 0,
        };
        let (epoch, row) = if is_over { state.next() } else { (state.epoch, state.row) };
        let skipped = num_batches.saturating_mul(state.share.rows_per_step());
        let row = row.saturating_add(skipped).min(state.share.num_rows);
        state.land(epoch, row);
    }

    /// Restores a position.
    pub fn load(&self, epoch: u64, row: u64) {
        lock(&self.0).land(epoch, row);
    }

    /// Returns the number of batches of a whole epoch, which is the same on every rank.
    pub fn num_batches(&self) -> u64 {
        lock(&self.0).share.num_steps(0)
    }

    /// Returns the row after some batches.
    pub fn row_after(&self, row: u64, num_batches: u64) -> u64 {
        let share = lock(&self.0).share;
        row.saturating_add(num_batches.saturating_mul(share.rows_per_step())).min(share.num_rows)
    }

    /// Sets the number of rows of an epoch.
    pub fn set_num_rows(&self, num_rows: u64) {
        lock(&self.0).share.num_rows = num_rows;
    }

    pub(crate) fn share(&self) -> RankShare {
        lock(&self.0).share
    }
}

impl State {
    fn next(&self) -> (u64, u64) {
        match self.phase {
            Phase::Ready => (self.epoch, self.row),
            Phase::Ended | Phase::Serving => (self.epoch.wrapping_add(1), 0),
        }
    }

    fn jump(&mut self, epoch: u64, row: u64, phase: Phase) {
        *self = State { epoch, row, phase, iteration: self.iteration + 1, ..*self };
    }

    fn land(&mut self, epoch: u64, row: u64) {
        let is_at_end = row > 0 && self.share.num_steps(row) == 0;
        self.jump(epoch, row, if is_at_end { Phase::Ended } else { Phase::Ready });
    }
}
