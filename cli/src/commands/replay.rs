//! The subcommand `replay`: a page that replays a game.

use super::show::{GameArgs, place_of};
use crate::open::check_output;
use crate::print::count;
use a2store::system::cancellation::CancellationToken;
use a2store::system::publish::Output;
use a2store_explore::{MIN_LOSS, ReplayPage};
use anyhow::Result;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;

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
    let predictions = ReplayPage::predictions(&archive, args.game.run, CancellationToken::never())?;
    let page = ReplayPage { replay: &replay, at, min_loss: MIN_LOSS, predictions, policy: None };
    let output = Output::create(&args.output)?;
    output.file().write_all(page.to_html().as_bytes())?;
    output.publish()?;
    if !quiet {
        println!("{}: {} positions", args.output.display(), count(replay.positions.len() as u64));
    }
    Ok(0)
}
