//! Whole games of the built-in player, on several threads.

use super::play::{PlayOptions, PlayReport, PlayedGame};
use super::player::Player;
use super::recorder::Recorder;
use super::spawner::Spawner;
use crate::board::{Board, Move};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::run::Branches;
use crate::workers::pool;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Plays games of the built-in player on several threads. The recorder also gets the player's values of the moves.
///
/// Game `g` of a seed is the same as in [`simulate`](crate::simulate). Games are recorded in the order of their
/// numbers.
///
/// # Errors
/// The errors of [`play`](crate::play).
pub fn play_games(
    player: Player,
    options: &PlayOptions,
    recorder: Option<&Recorder>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<PlayReport> {
    options.check()?;
    if options.temperature != 0.0 {
        return Err(Error::argument("temperature", "0 for the built-in player", options.temperature));
    }
    let pool = pool("play", options.workers)?;
    let start = Instant::now();
    progress.begin("play", Unit::Runs, options.num_games);
    let next = AtomicU64::new(0);
    let is_stopped = AtomicBool::new(false);
    let ended = Mutex::new(OrderedGames { recorder, waiting: BTreeMap::new(), report: PlayReport::default() });
    let work = || -> Result<()> {
        while !is_stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= options.num_games {
                break;
            }
            let game = WholeGame::play(player, number, options, recorder.is_some(), cancel)?;
            // A thread that failed with this lock held has also stopped the other threads.
            let Ok(mut ended) = ended.lock() else { break };
            if ended.add(game, options, progress)? {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    let outcomes = pool.broadcast(|_| work().inspect_err(|_| is_stopped.store(true, Ordering::Relaxed)));
    progress.end();
    outcomes.into_iter().collect::<Result<()>>()?;
    let mut report = ended.into_inner().map(|ended| ended.report).unwrap_or_default();
    report.elapsed = start.elapsed();
    Ok(report)
}

/// A whole game of the built-in player.
struct WholeGame {
    game: PlayedGame,
    /// Empty if nothing is recorded.
    steps: Vec<(Board, Move, Branches)>,
}

impl WholeGame {
    fn play(
        player: Player,
        number: u64,
        options: &PlayOptions,
        is_recorded: bool,
        cancel: &CancellationToken,
    ) -> Result<WholeGame> {
        let mut spawner = Spawner::of_game(options.seed, number);
        let mut board = spawner.first_board();
        let (mut score, mut num_steps) = (0, 0);
        let mut steps = Vec::new();
        while options.max_steps.is_none_or(|most| num_steps < most)
            && let Some((chosen, branches)) = player.choose(board)
        {
            cancel.check()?;
            if is_recorded {
                steps.push((board, chosen, branches));
            }
            let (after, reward) = board.slide_with_reward(chosen);
            board = spawner.spawn(after);
            score += reward;
            num_steps += 1;
        }
        Ok(WholeGame { game: PlayedGame { number, score, num_steps, final_board: board }, steps })
    }
}

/// The finished games of all threads, put in order.
struct OrderedGames<'a> {
    recorder: Option<&'a Recorder>,
    /// Games that wait for an earlier game.
    waiting: BTreeMap<u64, WholeGame>,
    report: PlayReport,
}

impl OrderedGames<'_> {
    /// Adds a game, and returns whether to stop.
    fn add(&mut self, game: WholeGame, options: &PlayOptions, progress: &dyn Progress) -> Result<bool> {
        self.report.num_steps += u64::from(game.game.num_steps);
        self.waiting.insert(game.game.number, game);
        while self.report.stopped.is_none()
            && let Some(WholeGame { game, steps }) = self.waiting.remove(&(self.report.games.len() as u64))
        {
            let recorded = self.recorder.map_or(Ok(()), |recorder| record(recorder, &game, steps, options.seed));
            if self.report.stops_at(recorded)? {
                break;
            }
            self.report.games.push(game);
            progress.advance(1);
        }
        Ok(self.report.stopped.is_some())
    }
}

fn record(recorder: &Recorder, game: &PlayedGame, steps: Vec<(Board, Move, Branches)>, seed: u64) -> Result<()> {
    let mut recorded = recorder.begin(Some(Spawner::seed_of(seed, game.number)))?;
    for (board, chosen, branches) in steps {
        recorded.push(board, Some(chosen), Some(branches))?;
    }
    recorded.end(Some(game.final_board))?;
    Ok(())
}
