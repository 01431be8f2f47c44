//! The subcommands that show games: `report`, `view`, `show` and `replay`.

use crate::args::{ArchiveArgs, check_output};
use crate::exit::UsageError;
use crate::output::{count, fitted, megabytes, print_warning};
use crate::progress::{interrupt, progress};
use a2store::archive::Archive;
use a2store::board::Move;
use a2store::system::cancellation::CancellationToken;
use a2store_explore::{
    MIN_LOSS, Position, Replay, Report, ReportGroups, ReportOptions, View, ViewOptions, replay_page, write_page,
};
use anyhow::{Result, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The file to write.
    #[arg(short, long, default_value = "report.html")]
    output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    overwrite: bool,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// The groups of runs to compare. For recordings and sessions, the engine is the tag of the model.
    #[arg(long, value_name = "GROUPS", default_value = "engine", value_parser = report_groups())]
    by: ReportGroups,
    /// Compare these two groups only.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    compare: Option<Vec<String>>,
}

/// Returns the parser of the groups of a report.
fn report_groups() -> impl TypedValueParser<Value = ReportGroups> {
    PossibleValuesParser::new(ReportGroups::ALL.map(ReportGroups::name)).try_map(|name| name.parse::<ReportGroups>())
}

pub(crate) fn report(args: &ReportArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    check_output(&args.output, args.overwrite, &archive)?;
    let cancel = interrupt()?;
    let started = Instant::now();
    let compare = args.compare.as_ref().and_then(|groups| <[String; 2]>::try_from(groups.clone()).ok());
    let options = ReportOptions { condition: args.condition.clone(), groups: args.by, compare, explorer: None };
    let report = Report::of(&archive, &options, &*progress(quiet), &cancel)?;
    write_page(&args.output, &report.to_html()?)?;
    if quiet {
        return Ok(0);
    }
    for table in &report.tables {
        if let Err(reason) = &table.rows {
            print_warning("a2store", &format!("table {} is left out: {reason}", table.query));
        }
    }
    let bytes = std::fs::metadata(&args.output)?.len();
    let seconds = started.elapsed().as_secs_f64();
    println!("{}: {} tables, {} in {seconds:.1} s", args.output.display(), report.tables.len(), megabytes(bytes));
    Ok(0)
}

#[derive(Args, Debug)]
pub(crate) struct ViewArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// Port on this machine [default: any free one].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Print the address only.
    #[arg(long)]
    no_browser: bool,
}

/// Serves the explorer until Ctrl-C.
pub(crate) fn view(args: &ViewArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    let follows = args.archive.version.is_none();
    let options = ViewOptions { port: args.port, follows, ..ViewOptions::from_environment()? };
    let cancel = interrupt()?;
    let mut view = View::start(archive, options)?;
    let mut out = stdout().lock();
    if !quiet {
        writeln!(out, "serving {} at the following address until Ctrl-C", args.archive.archive.display())?;
    }
    writeln!(out, "{}", view.url())?;
    out.flush()?;
    if !args.no_browser && !open_browser(&view.url()) && !quiet {
        print_warning("a2store", "no browser was found: open the address in a browser on this machine");
    }
    view.wait(&cancel);
    Ok(0)
}

/// Opens an address in the user's browser. Returns false if there is no browser.
fn open_browser(url: &str) -> bool {
    // A terminal browser would take over this terminal.
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let has_display = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(is_set);
    let mut command = Command::new("xdg-open");
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    has_display && command.spawn().is_ok()
}

/// A game of an archive.
#[derive(Args, Debug)]
struct GameArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The run's id: `run_id` of the tables `runs` and `steps`.
    #[arg(id = "run_id", value_name = "RUN")]
    run: u32,
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
    fn read(&self) -> Result<(Archive, Replay)> {
        let (archive, cancel) = (self.archive.open()?, CancellationToken::never());
        let run = archive.run(self.run, cancel)?.run;
        let replay = Replay::of_stored(&archive, self.run, &run, cancel)?;
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
    let (run, score, steps) = (args.game.run, count(replay.max_score), count(replay.num_steps() as u64));
    let engine = replay.engine.as_deref().unwrap_or("no engine");
    let (status, moves) = (status(position), moves(&replay, position).join("\n"));
    let board = position.board;
    let text = format!("run {run}  score {score}  {steps} steps  {engine}\n{status}\n\n{board:#}\n\n{moves}");
    writeln!(stdout().lock(), "{}", fitted(&text))?;
    Ok(0)
}

/// Returns the index of a step's position. The final board has the index after the last step.
fn place_of(replay: &Replay, step: u32) -> Result<usize> {
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

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    game: GameArgs,
    /// The step to begin at: `step_index` of the table `steps` [default: the first].
    #[arg(long)]
    step: Option<u32>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "replay.html")]
    output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    overwrite: bool,
}

/// Writes the page that replays a game.
pub(crate) fn replay(args: &ReplayArgs, quiet: bool) -> Result<u8> {
    let (archive, replay) = args.game.read()?;
    let at = args.step.map_or(Ok(0), |step| place_of(&replay, step))?;
    check_output(&args.output, args.overwrite, &archive)?;
    let page = replay_page(Some(&archive), &replay, at, MIN_LOSS, None, CancellationToken::never())?;
    write_page(&args.output, &page)?;
    if !quiet {
        println!("{}: {} positions", args.output.display(), count(replay.positions.len() as u64));
    }
    Ok(0)
}
