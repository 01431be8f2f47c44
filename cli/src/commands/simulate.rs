//! The subcommand `simulate`.

use crate::args::{WorkArgs, check_outside_archives};
use crate::output::{count, megabytes, print_report, rate};
use crate::progress::progress;
use a2store::SimulateOptions;
use a2store::system::cancellation::CancellationToken;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// Number of games to play.
    #[arg(long, default_value_t = 100)]
    runs: u32,
    /// Random seed. Equal seeds produce equal files.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output folder. Existing files are never overwritten.
    #[arg(short, long, alias = "out")]
    output: PathBuf,
    /// File format: a2run2 (with the player's values) or a2t1 (without).
    #[arg(long, default_value = "a2run2", value_parser = ["a2run2", "a2t1"])]
    format: String,
    /// Search depth in tile spawns, 0 to 3.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    depth: u8,
    /// Same as --depth 0: weaker play, but millions of steps per second.
    #[arg(long, conflicts_with = "depth")]
    fast: bool,
    /// Engine name to store in the files. It does not change how the built-in player plays.
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn simulate(args: &SimulateArgs, quiet: bool) -> Result<u8> {
    check_outside_archives(&args.output)?;
    let mut options = SimulateOptions::default();
    options.runs = args.runs;
    options.seed = args.seed;
    options.format = args.format.parse()?;
    options.depth = if args.fast { 0 } else { args.depth };
    options.engine = args.label.clone();
    options.workers = args.work.workers;
    let start = Instant::now();
    let report = a2store::simulate(&args.output, &options, &*progress(quiet), CancellationToken::never())?;
    let secs = start.elapsed().as_secs_f64();
    let (runs, steps, speed) = (count(report.runs), count(report.num_steps), rate(report.num_steps, secs));
    let size = megabytes(report.num_bytes);
    let text = format!("{runs} runs, {steps} steps, {size} in {secs:.1} s: {speed} steps/s");
    print_report(args.work.json, &report, [("secs", json!(secs))], &text)
}
