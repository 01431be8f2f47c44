//! The subcommands `show` and `replay`: one position of a game, and a game in the terminal.
//!
//! | file | owns |
//! | --- | --- |
//! | `state.rs` | the state of a replay, and the effects of keys |
//! | `screen.rs` | the drawing of a replay |
//! | `pieces.rs` | boards, moves and charts as coloured text, for both subcommands |

mod pieces;
mod screen;
mod state;

use super::args::{GameArgs, ReplayArgs, ShowArgs};
use super::exit::UsageError;
use super::open::{check_outside, check_overwrite, local_folder, open};
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::explore::{Game, ReplayPage, Thresholds};
use crate::publish::Output;
use anyhow::{Result, bail};
use console::Term;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use state::{Replay, Step};
use std::io::{IsTerminal, Write, stdin, stdout};
use std::path::Path;
use std::time::Instant;

/// Prints one position of a game.
pub(super) fn show(args: &ShowArgs) -> Result<u8> {
    let (_, game) = read(&args.game)?;
    let last = game.positions.len() - 1;
    let place = args.step.map_or(Ok(last), |step| place(&game, step))?;
    let mut out = stdout().lock();
    let width = Term::stdout().size_checked().map_or(80, |(_, columns)| usize::from(columns));
    for line in pieces::position(&game, place, thresholds(&args.game), args.game.palette(), width) {
        writeln!(out, "{}", line.to_ansi())?;
    }
    Ok(0)
}

/// Shows a game in the terminal until the user quits.
pub(super) fn replay(args: &ReplayArgs) -> Result<u8> {
    let (archive, game) = read(&args.game)?;
    let place = args.step.map_or(Ok(0), |step| place(&game, step))?;
    if let Some(path) = &args.output {
        return save(args, path, &archive, &game, place);
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!(UsageError("replay: expected a terminal; `a2store show` prints one position".into()));
    }
    let mut replay = Replay::new(game, thresholds(&args.game), args.game.palette(), place);
    let mut terminal = ratatui::try_init()?;
    let outcome = run(&mut terminal, &mut replay);
    ratatui::try_restore()?;
    outcome.map(|()| 0)
}

/// Writes the page that replays a game.
fn save(args: &ReplayArgs, path: &Path, archive: &Archive, game: &Game, place: usize) -> Result<u8> {
    if let Some(folder) = local_folder(&args.game.archive) {
        check_outside(path, &folder)?;
    }
    check_overwrite(path, args.overwrite)?;
    let predictions = ReplayPage::predictions(archive, args.game.run, CancellationToken::never())?;
    let page = ReplayPage { game, at: place, thresholds: thresholds(&args.game), predictions, policy: None };
    let output = Output::create(path)?;
    output.file().write_all(page.to_html().as_bytes())?;
    output.publish()?;
    Ok(0)
}

fn run(terminal: &mut ratatui::DefaultTerminal, replay: &mut Replay) -> Result<()> {
    loop {
        terminal.draw(|frame| screen::draw(frame, replay))?;
        let next = match replay.wait(Instant::now()) {
            Some(time) if !event::poll(time)? => Step::Tick,
            _ => match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => Step::Key(key),
                _ => continue,
            },
        };
        if replay.advance(next, Instant::now()) {
            return Ok(());
        }
    }
}

fn read(args: &GameArgs) -> Result<(Archive, Game)> {
    let archive = open(&args.archive, args.version, None)?;
    let game = archive.game(args.run, CancellationToken::never())?;
    if game.positions.is_empty() {
        bail!(UsageError(format!("run {}: expected at least one board, found none", args.run)));
    }
    Ok((archive, game))
}

/// Returns the index of a step's position.
fn place(game: &Game, step: u32) -> Result<usize> {
    let found = game.positions.iter().position(|position| position.step == Some(step));
    let steps: Vec<u32> = game.positions.iter().filter_map(|position| position.step).collect();
    match (found, steps.first(), steps.last()) {
        (Some(place), ..) => Ok(place),
        // The final board has the index after the last step.
        (None, _, Some(&last)) if last.checked_add(1) == Some(step) && steps.len() < game.positions.len() => {
            Ok(steps.len())
        }
        (None, Some(first), Some(last)) => {
            bail!(UsageError(format!("--step: expected a stored step of the run, {first} to {last}, found {step}")))
        }
        _ => bail!(UsageError(format!("--step: expected none, because the run has no steps, found {step}"))),
    }
}

fn thresholds(args: &GameArgs) -> Thresholds {
    Thresholds { min_loss: args.min_loss, max_gap: args.max_gap }
}
