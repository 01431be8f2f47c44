//! The subcommand `show`: one position of a game, as text.

use crate::exit::UsageError;
use crate::open::ArchiveArgs;
use crate::print::count;
use crate::terminal::fitted;
use a2store::archive::Archive;
use a2store::board::Move;
use a2store::system::cancellation::CancellationToken;
use a2store_explore::{Position, Replay};
use anyhow::{Result, bail};
use clap::Args;
use std::io::{Write, stdout};

/// A game of an archive.
#[derive(Args, Debug)]
pub(crate) struct GameArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The run's id: `run_id` of the tables `runs` and `steps`.
    #[arg(id = "run_id", value_name = "RUN")]
    pub(crate) run: u32,
}

#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    game: GameArgs,
    /// The step to show: `step_index` of the table `steps` [default: the last position].
    #[arg(long)]
    step: Option<u32>,
}

impl GameArgs {
    pub(crate) fn read(&self) -> Result<(Archive, Replay)> {
        let archive = self.archive.open()?;
        let replay = Replay::of(&archive, self.run, CancellationToken::never())?;
        if replay.positions.is_empty() {
            bail!(UsageError(format!("run {}: expected at least one board, found none", self.run)));
        }
        Ok((archive, replay))
    }
}

/// Prints one position of a game.
pub(crate) fn show(args: &ShowArgs) -> Result<u8> {
    let (_, replay) = args.game.read()?;
    let last = replay.positions.len() - 1;
    let place = args.step.map_or(Ok(last), |step| place_of(&replay, step))?;
    let position = &replay.positions[place];
    let moves = moves(&replay, position).join("\n");
    let text = format!("{}\n{}\n\n{:#}\n\n{moves}", title(&replay), status(position), position.board);
    writeln!(stdout().lock(), "{}", fitted(&text))?;
    Ok(0)
}

/// Returns the index of a step's position. The final board has the index after the last step.
pub(crate) fn place_of(replay: &Replay, step: u32) -> Result<usize> {
    let steps: Vec<u32> = replay.positions.iter().filter_map(|position| position.step).collect();
    if let Some(place) = steps.iter().position(|&stored| stored == step) {
        return Ok(place);
    }
    match (steps.first(), steps.last()) {
        (_, Some(&last)) if last.checked_add(1) == Some(step) && steps.len() < replay.positions.len() => {
            Ok(steps.len())
        }
        (Some(first), Some(last)) => {
            bail!(UsageError(format!("--step: expected a stored step of the run, {first} to {last}, found {step}")))
        }
        _ => bail!(UsageError(format!("--step: expected none, because the run has no steps, found {step}"))),
    }
}

/// Returns the line about the run.
fn title(replay: &Replay) -> String {
    let run = replay.run_id.map_or_else(String::new, |run_id| format!("run {run_id}  "));
    let (score, steps) = (count(replay.max_score), count(replay.num_steps() as u64));
    let engine = replay.engine.as_deref().unwrap_or("no engine");
    format!("{run}score {score}  {steps} steps  {engine}")
}

/// Returns the line about a position.
fn status(position: &Position) -> String {
    let step = position.step.map_or("final board".into(), |step| format!("step {}", count(step.into())));
    let score = position.score.map_or_else(String::new, |score| format!("  score {}", count(score)));
    let (empty, largest) = (position.board.num_empty(), position.board.highest_tile());
    format!("{step}{score}  {empty} empty  largest {largest}")
}

/// Returns the lines of the four moves: the engine's values, and the predictions of models.
fn moves(replay: &Replay, position: &Position) -> Vec<String> {
    let mut head = format!("{:7}{:>9}{:>10}", "move", "value", "behind");
    for model in &replay.models {
        head += &format!(" {:>9}", model.chars().take(9).collect::<String>());
    }
    let mut lines = vec![head];
    let best = position.best();
    let best_value = best.and_then(|best| position.values[best as usize]);
    for direction in Move::ALL {
        let is_legal = position.board.legal_moves() & direction.bit() != 0;
        let is_played = position.played == Some(direction);
        let (value, behind) = match (position.values[direction as usize], best_value) {
            (Some(value), Some(_)) if best == Some(direction) => (number(value), "best".into()),
            (Some(value), Some(best)) => (number(value), number(best - value)),
            _ => (if is_legal { "unknown" } else { "illegal" }.into(), String::new()),
        };
        let mut line = format!("{}{:6}{value:>9}{behind:>10}", if is_played { '>' } else { ' ' }, direction.name());
        for model in 0..replay.models.len() {
            let prediction = position.predictions.iter().find(|prediction| prediction.model == model);
            let text = prediction.map_or_else(String::new, |prediction| {
                let is_preferred = prediction.preferred == Some(direction);
                let probability =
                    prediction.moves[direction as usize].or(prediction.probability.filter(|_| is_preferred));
                let text = probability.map_or_else(String::new, |probability| format!("{:.1} %", probability * 100.0));
                if is_preferred { format!("*{text}") } else { text }
            });
            line += &format!(" {text:>9}");
        }
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Formats a value with about five significant digits.
fn number(value: f32) -> String {
    match value.abs() {
        size if size >= 1e4 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
