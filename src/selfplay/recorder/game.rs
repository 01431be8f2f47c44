//! [`GameRecording`]: a game that is being recorded.

use super::buffer::FinishedGame;
use super::rows::{BLOCK_COST, GameRows};
use super::shared::SharedRecorder;
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use crate::run::Branches;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// A game that is being recorded, with its buffer. Adding a step takes no lock and writes no file.
///
/// Dropping it abandons the game: nothing of it is kept.
#[derive(Debug)]
pub struct GameRecording {
    shared: Arc<SharedRecorder>,
    started: Instant,
    game: FinishedGame,
    /// The number of steps to skip before the next kept one.
    skip: u32,
    /// Whether the end of the game was reported to the recorder.
    over: bool,
}

impl GameRecording {
    /// Begins a game. If memory is used up, it waits for a rotation.
    pub(super) fn begin(shared: Arc<SharedRecorder>, seed: Option<u64>) -> Result<GameRecording> {
        shared.begin_game()?;
        let start_unix_s = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let (rows, sample_rate) = (GameRows::new(shared.format.with_evs), shared.options.sample_rate);
        let game = FinishedGame { seed, start_unix_s, sample_rate, rows, ..FinishedGame::default() };
        Ok(GameRecording { shared, started: Instant::now(), game, skip: 0, over: false })
    }

    /// Adds a step: the board, the move made on it, and the engine's values of the four moves, which only an
    /// archive stores. If memory is used up, it waits for a rotation.
    ///
    /// # Errors
    /// The step is not added, and may be pushed again:
    ///
    /// - [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the move is missing and the recorder stores moves, and beyond
    ///   2^32 - 1 steps.
    /// - [`ErrorKind::RecorderLimit`](crate::ErrorKind::RecorderLimit) if running games alone use up the memory.
    /// - The error of a failed rotation, if memory is used up.
    #[inline]
    pub fn push(&mut self, board: Board, action: Option<Move>, ev: Option<Branches>) -> Result<()> {
        self.push_all(std::iter::once((board, action, ev)))
    }

    /// Adds several steps, or none of them on an error: boards, moves and values, as [`push`](GameRecording::push)
    /// takes them.
    ///
    /// # Errors
    /// The errors of [`push`](GameRecording::push).
    pub fn push_all(
        &mut self,
        steps: impl ExactSizeIterator<Item = (Board, Option<Move>, Option<Branches>)> + Clone,
    ) -> Result<()> {
        let rate = self.shared.options.sample_rate;
        let Some(num_steps) = u32::try_from(steps.len()).ok().and_then(|len| self.game.num_steps.checked_add(len))
        else {
            return Err(Error::argument("steps", "at most 4294967295 per game", "more"));
        };
        if self.shared.format.with_action && steps.clone().any(|(_, action, _)| action.is_none()) {
            return Err(Error::argument("move", "a move, because the recorder stores moves", "none"));
        }
        self.make_room(steps.len())?;
        for (board, action, ev) in steps {
            if self.skip == 0 {
                self.game.rows.push(board, action, ev);
                self.skip = rate;
            }
            self.skip -= 1;
            self.game.last = Some(board);
        }
        self.game.num_steps = num_steps;
        Ok(())
    }

    /// Returns the number of steps, including steps that are not kept.
    #[must_use]
    pub fn num_steps(&self) -> u32 {
        self.game.num_steps
    }

    /// Returns whether this many steps can be pushed without waiting.
    #[must_use]
    #[inline]
    pub fn has_room(&self, steps: usize) -> bool {
        self.game.rows.missing_blocks(self.num_kept(steps)) == 0
    }

    /// Waits until this many steps can be pushed without waiting.
    ///
    /// # Errors
    /// The errors of [`push`](GameRecording::push) about memory, and [`Argument`](crate::ErrorKind::Argument).
    #[inline]
    pub fn make_room(&mut self, steps: usize) -> Result<()> {
        let missing = self.game.rows.missing_blocks(self.num_kept(steps));
        if missing > 0 {
            self.shared.charge(missing as u64 * BLOCK_COST)?;
            self.game.rows.add_blocks(missing);
        }
        Ok(())
    }

    /// Returns how many of the next `steps` are kept.
    #[inline]
    fn num_kept(&self, steps: usize) -> usize {
        steps.saturating_sub(self.skip as usize).div_ceil(self.shared.options.sample_rate as usize)
    }

    /// Ends the game, with the board after its last move if it is known, and returns the game's id. Ids count from
    /// 0 in the order in which games end. The score and the largest tile come from that board, or else from the
    /// last pushed board.
    ///
    /// The next rotation writes the game.
    ///
    /// # Errors
    /// The game is not kept: [`ErrorKind::RecorderLimit`](crate::ErrorKind::RecorderLimit) if it would exceed
    /// `max_disk_mb`, and [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the recorder is closed.
    pub fn end(mut self, final_board: impl Into<Option<Board>>) -> Result<u64> {
        self.over = true;
        self.game.final_board = final_board.into();
        self.game.elapsed_s = self.started.elapsed().as_secs_f32();
        self.shared.end_game(std::mem::take(&mut self.game))
    }
}

impl Drop for GameRecording {
    fn drop(&mut self) {
        if !self.over {
            self.shared.abandon_game(&self.game.rows);
        }
    }
}
