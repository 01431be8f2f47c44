//! [`FinishedGame`]: a game that ended, with its kept steps. [`SessionBuffer`]: the games that the next rotation writes.

use super::rows::GameRows;
use crate::board::{Board, WideBoard};
use crate::error::Result;
use crate::run::{Run, RunMeta};
use std::time::Instant;

/// The memory of a game in addition to its blocks, in bytes.
pub(super) const GAME_COST: u64 = 384;

/// A game with its kept steps, which ended or is being recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinishedGame {
    /// The number of games of the recorder that ended before it.
    pub(super) id: u64,
    pub(super) seed: Option<u64>,
    /// The number of steps, including steps that are not kept.
    pub(super) num_steps: u32,
    pub(super) sample_rate: u32,
    /// The last pushed board.
    pub(super) last: Option<Board>,
    /// The board after the last move, if it is known.
    pub(super) final_board: Option<Board>,
    pub(super) start_unix_s: u64,
    pub(super) elapsed_s: f32,
    pub(super) rows: GameRows,
}

/// Ended games that are not written yet.
#[derive(Debug, Default)]
pub(super) struct SessionBuffer {
    pub(super) games: Vec<FinishedGame>,
    /// The number of kept steps.
    pub(super) steps: u64,
    /// The memory of the games, in bytes.
    pub(super) ram: u64,
    /// An upper bound of the disk space of the games, in bytes.
    pub(super) disk: u64,
    /// The time at which the first of these games ended.
    pub(super) since: Option<Instant>,
}

impl FinishedGame {
    /// Converts the game to a run. The engine comes from `like`, everything else from the game. The values are raw if one
    /// is outside 0..=1. The score and the largest tile are those of the final board, or else of the last pushed board.
    pub(crate) fn to_run(&self, like: &RunMeta) -> Result<Run> {
        let mut run = Run::builder(self.rows.len as usize);
        let mut raw_evs = like.raw_evs;
        for step in self.rows.steps(self.sample_rate) {
            let is_raw = |value: &f32| !(0.0..=1.0).contains(value);
            raw_evs |= step.branches.is_some_and(|branches| branches.values.iter().any(is_raw));
            run.push_step(step)?;
        }
        let last = self.final_board.or(self.last).unwrap_or_default();
        let meta = RunMeta {
            start_unix_s: self.start_unix_s,
            elapsed_s: self.elapsed_s,
            max_score: last.score(),
            highest_tile: last.highest_tile(),
            seed: self.seed,
            raw_evs,
            ..like.clone()
        };
        run.finish(meta, self.final_board.map(WideBoard::from))
    }
}

impl SessionBuffer {
    /// Adds a game that takes at most `disk` bytes of disk space.
    pub(super) fn push(&mut self, game: FinishedGame, disk: u64) {
        self.steps += u64::from(game.rows.len);
        self.ram += GAME_COST + game.rows.ram();
        self.disk += disk;
        self.since.get_or_insert_with(Instant::now);
        self.games.push(game);
    }

    /// Adds the games of a buffer that began later.
    pub(super) fn append(&mut self, mut later: SessionBuffer) {
        self.games.append(&mut later.games);
        self.steps += later.steps;
        self.ram += later.ram;
        self.disk += later.disk;
        self.since = self.since.or(later.since);
    }
}
