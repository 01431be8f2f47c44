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

/// A step of the built-in player: the board, the move made on it, and the values of the four moves.
type Step = (Board, Move, Branches);

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
            let mut steps = Vec::new();
            let on_step = |step| {
                if recorder.is_some() {
                    steps.push(step)
                }
            };
            let game = play_game(player, options.seed, number, options.max_steps, cancel, on_step)?;
            // A thread that failed with this lock held has also stopped the other threads.
            let Ok(mut ended) = ended.lock() else { break };
            if ended.add(game, steps, options, progress)? {
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

/// Plays a game of the built-in player, and calls `on_step` with each step.
pub(super) fn play_game(
    player: Player,
    seed: u64,
    number: u64,
    max_steps: Option<u32>,
    cancel: &CancellationToken,
    mut on_step: impl FnMut(Step),
) -> Result<PlayedGame> {
    let mut spawner = Spawner::of_game(seed, number);
    let mut game = PlayedGame { number, score: 0, num_steps: 0, final_board: spawner.first_board() };
    while max_steps.is_none_or(|most| game.num_steps < most)
        && let Some((chosen, branches)) = player.choose(game.final_board)
    {
        cancel.check()?;
        on_step((game.final_board, chosen, branches));
        let (after, reward) = game.final_board.slide_with_reward(chosen);
        game.final_board = spawner.spawn(after);
        game.score += reward;
        game.num_steps += 1;
    }
    Ok(game)
}

/// The finished games of all threads, put in order.
struct OrderedGames<'a> {
    recorder: Option<&'a Recorder>,
    /// Games that wait for an earlier game.
    waiting: BTreeMap<u64, (PlayedGame, Vec<Step>)>,
    report: PlayReport,
}

impl OrderedGames<'_> {
    /// Adds a game, and returns whether to stop.
    fn add(
        &mut self,
        game: PlayedGame,
        steps: Vec<Step>,
        options: &PlayOptions,
        progress: &dyn Progress,
    ) -> Result<bool> {
        self.report.num_steps += u64::from(game.num_steps);
        self.waiting.insert(game.number, (game, steps));
        while self.report.stopped.is_none()
            && let Some((game, steps)) = self.waiting.remove(&(self.report.games.len() as u64))
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

fn record(recorder: &Recorder, game: &PlayedGame, steps: Vec<Step>, seed: u64) -> Result<()> {
    let mut recorded = recorder.begin(Some(Spawner::seed_of(seed, game.number)))?;
    for (board, chosen, branches) in steps {
        recorded.push(board, Some(chosen), Some(branches))?;
    }
    recorded.end(Some(game.final_board))?;
    Ok(())
}
