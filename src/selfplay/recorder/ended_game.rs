//! [`EndedGame`]: a game that ended, with its kept steps.

use super::game_rows::GameRows;
use crate::board::{Board, WideBoard};
use crate::error::Result;
use crate::run::{Run, RunMeta, RunStep};

/// A game that ended, as a [`Sink`](super::Sink) receives it.
#[derive(Debug)]
pub struct EndedGame {
    pub(super) id: u64,
    pub(super) seed: Option<u64>,
    pub(super) num_steps: u32,
    pub(super) sample_rate: u32,
    pub(super) last: Option<Board>,
    pub(super) final_board: Option<Board>,
    pub(super) start_unix_s: u64,
    pub(super) elapsed_s: f32,
    pub(super) rows: GameRows,
}

impl EndedGame {
    /// Returns the id of the game in its recording.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the seed that was passed to [`Recorder::begin`](super::Recorder::begin).
    #[must_use]
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// Returns the number of steps, including steps that are not kept.
    #[must_use]
    pub fn num_steps(&self) -> u32 {
        self.num_steps
    }

    /// Returns the number of kept steps.
    #[must_use]
    pub fn num_rows(&self) -> u32 {
        self.rows.len()
    }

    /// Returns the board after the last move, if it is known.
    #[must_use]
    pub fn final_board(&self) -> Option<Board> {
        self.final_board
    }

    /// Returns the score of the final board, or else of the last pushed board.
    #[must_use]
    pub fn max_score(&self) -> u64 {
        self.last_board().score()
    }

    /// Returns the largest tile of the final board, or else of the last pushed board.
    #[must_use]
    pub fn highest_tile(&self) -> u32 {
        self.last_board().highest_tile()
    }

    /// Returns the kept steps.
    pub fn steps(&self) -> impl Iterator<Item = RunStep> {
        self.rows.steps(self.sample_rate)
    }

    /// Converts the game to a run. The engine and `raw_evs` come from `like`, everything else from the game.
    ///
    /// # Errors
    /// The errors of [`RunBuilder::finish`](crate::RunBuilder::finish).
    pub fn to_run(&self, like: &RunMeta) -> Result<Run> {
        let mut run = Run::builder(self.rows.len() as usize);
        for step in self.steps() {
            run.push_step(step)?;
        }
        let meta = RunMeta {
            start_unix_s: self.start_unix_s,
            elapsed_s: self.elapsed_s,
            max_score: self.max_score(),
            highest_tile: self.highest_tile(),
            seed: self.seed,
            ..like.clone()
        };
        run.finish(meta, self.final_board.map(WideBoard::from))
    }

    fn last_board(&self) -> Board {
        self.final_board.or(self.last).unwrap_or_default()
    }
}
