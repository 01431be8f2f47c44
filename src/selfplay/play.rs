//! Whole games of a policy, in batches.
//!
//! Invariant: the seed, `g`, `max_steps` and the policy's answers to the boards of game `g` determine that game. The
//! batch size and the number of threads make no difference.

use super::choice::{Choices, Positions, choose};
use super::env::{EnvGame, IllegalMoves, MAX_ENVS, VectorEnv};
use super::recorder::{GameRecording, Recorder};
use super::spawner::Spawner;
use crate::board::{Board, Move};
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use derive_setters::Setters;
use std::time::{Duration, Instant};

/// Options of [`play`].
///
/// Set fields with the `with_*` methods: `PlayOptions::default().with_num_games(64)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct PlayOptions {
    /// The number of games.
    pub num_games: u64,
    /// The seed of the games.
    pub seed: u64,
    /// The largest number of boards that the policy gets at once.
    pub batch_size: usize,
    /// Truncates games after this many steps; `None` = no limit.
    pub max_steps: Option<u32>,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self { num_games: 1000, seed: 0, batch_size: 1024, max_steps: None }
    }
}

/// The result of [`play`].
#[derive(Clone, Debug, Default)]
pub struct PlayReport {
    /// The games, sorted by number.
    pub games: Vec<PlayedGame>,
    /// The number of steps, including steps of games that did not end.
    pub num_steps: u64,
    /// The recorder limit that was reached, if it stopped play before all games were played.
    pub stopped: Option<&'static str>,
    /// The elapsed time.
    pub elapsed: Duration,
}

/// A game that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedGame {
    /// The number of the game, from 0.
    pub number: u64,
    /// The sum of the rewards. [`Board::score`] of the final board exceeds it by 4 for each 4 that spawned.
    pub score: u32,
    /// The number of steps.
    pub num_steps: u32,
    /// The board after the last step. If the game was truncated at `max_steps`, it may have legal moves.
    pub final_board: Board,
}

/// Plays games of a policy side by side, in batches.
///
/// When a game ends, the next one begins in its slot. The batches shrink when no games are left to begin. Each step
/// goes to the recorder, which stores games in the order in which they end.
///
/// When the recorder reaches a limit, no more games begin, and the running games are played to their end. If the
/// recorder cannot accept these games, or after an error, `play` abandons them.
///
/// # Errors
/// Any error of the policy or of the recorder. [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an invalid
/// option, and for an answer with a wrong length, an illegal move or an invalid logit.
pub fn play<E: From<Error>>(
    mut policy: impl FnMut(Positions<'_>) -> Result<Choices, E>,
    options: &PlayOptions,
    recorder: Option<&Recorder>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<PlayReport, E> {
    Error::check_range("batch_size", 1..=MAX_ENVS, options.batch_size)?;
    if options.max_steps == Some(0) {
        return Err(Error::argument("max_steps", "at least 1", 0).into());
    }
    let start = Instant::now();
    let _work = ReportedWork::begin(progress, "play", Unit::Runs, options.num_games);
    let mut batch = PolicyGames::new(options, recorder)?;
    batch.play(&mut policy, progress, cancel)?;
    let mut report = batch.report;
    report.games.sort_unstable_by_key(|game| game.number);
    report.elapsed = start.elapsed();
    Ok(report)
}

impl PlayReport {
    /// Returns whether the recorder has reached a limit, and stores that limit. Any other error is returned.
    fn stops_at(&mut self, recorded: Result<()>) -> Result<bool> {
        let Err(error) = recorded else { return Ok(false) };
        match error.kind() {
            ErrorKind::RecorderLimit { limit, .. } => self.stopped = Some(limit),
            _ => return Err(error),
        }
        Ok(true)
    }
}

/// The games that are being played with a policy.
struct PolicyGames<'a> {
    options: &'a PlayOptions,
    env: VectorEnv,
    recorder: Option<&'a Recorder>,
    /// The recorder's game for each slot, if there is a recorder. Dropping a game abandons it.
    recorded: Vec<GameRecording>,
    report: PlayReport,
}

impl<'a> PolicyGames<'a> {
    /// Begins the first games.
    fn new(options: &'a PlayOptions, recorder: Option<&'a Recorder>) -> Result<PolicyGames<'a>> {
        let (env, recorded) = (VectorEnv::begun(0, options.seed), Vec::new());
        let mut batch = PolicyGames { options, env, recorder, recorded, report: PlayReport::default() };
        for number in 0..options.num_games.min(options.batch_size as u64) {
            if !batch.record_next(number)? {
                break;
            }
            batch.env.add_slot();
        }
        Ok(batch)
    }

    fn play<E: From<Error>>(
        &mut self,
        policy: &mut impl FnMut(Positions<'_>) -> Result<Choices, E>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<(), E> {
        let mut moves = Vec::new();
        let mut before = Vec::new();
        while self.env.len() > 0 {
            cancel.check()?;
            let positions = Positions { boards: self.env.boards(), legal: self.env.legal_moves() };
            let choices = policy(positions)?;
            choose(positions, &choices, &mut moves)?;
            before.clear();
            if self.recorder.is_some() {
                before.extend_from_slice(self.env.boards());
            }
            // `step` rejects illegal moves, so nothing is recorded before it succeeds.
            self.env.step(&moves, IllegalMoves::Refused)?;
            self.report.num_steps += moves.len() as u64;
            let recorded = self.record(&before, &moves).and_then(|()| self.end_games(progress));
            if self.report.stops_at(recorded)? {
                break;
            }
        }
        Ok(())
    }

    fn record(&mut self, boards: &[Board], moves: &[Move]) -> Result<()> {
        for (game, (&board, &direction)) in self.recorded.iter_mut().zip(boards.iter().zip(moves)) {
            game.push(board, Some(direction), None)?;
        }
        Ok(())
    }

    fn end_games(&mut self, progress: &dyn Progress) -> Result<()> {
        // Go from the last slot to the first. The slot that replaces a removed one has been visited already.
        for slot in (0..self.env.len()).rev() {
            let is_cut = |most: u32| self.env.games()[slot].num_steps >= most;
            if self.env.legal_moves()[slot] != 0 && !self.options.max_steps.is_some_and(is_cut) {
                continue;
            }
            let &EnvGame { number, score, num_steps, .. } = &self.env.games()[slot];
            let final_board = self.env.boards()[slot];
            if self.recorder.is_some() {
                self.recorded.swap_remove(slot).end(Some(final_board))?;
            }
            self.report.games.push(PlayedGame { number, score, num_steps, final_board });
            progress.advance(1);
            self.begin_next(slot)?;
        }
        Ok(())
    }

    /// Begins the next game in a slot without a game in the recorder, or removes the slot.
    fn begin_next(&mut self, slot: usize) -> Result<()> {
        let number = self.env.num_games();
        if number == self.options.num_games || !self.record_next(number)? {
            self.env.remove(slot);
            return Ok(());
        }
        self.env.restart(slot);
        if self.recorder.is_some() {
            let last = self.recorded.len() - 1;
            self.recorded.swap(slot, last);
        }
        Ok(())
    }

    /// Begins a game in the recorder, if there is one. Returns whether the game may be played.
    fn record_next(&mut self, number: u64) -> Result<bool> {
        if self.report.stopped.is_some() {
            return Ok(false);
        }
        let Some(recorder) = self.recorder else { return Ok(true) };
        let begun = recorder.begin(Some(Spawner::seed_of(self.options.seed, number)));
        let begun = begun.map(|game| self.recorded.push(game));
        Ok(!self.report.stops_at(begun)?)
    }
}

#[cfg(test)]
mod tests;
