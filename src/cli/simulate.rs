//! The subcommand `simulate`.

use super::args::SimulateArgs;
use super::print::{count, megabytes, print_json, rate};
use super::progress::progress;
use crate::SimulateOptions;
use crate::cancellation::CancellationToken;
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::time::Instant;

pub(super) fn simulate(args: &SimulateArgs, quiet: bool) -> Result<u8> {
    let options = SimulateOptions {
        runs: args.runs,
        seed: args.seed,
        format: args.format.parse()?,
        depth: if args.fast { 0 } else { args.depth },
        engine: args.label.clone(),
        workers: args.workers,
    };
    let start = Instant::now();
    let report = crate::simulate(&args.output, &options, &*progress(quiet), CancellationToken::never())?;
    let secs = start.elapsed().as_secs_f64();
    if args.json {
        print_json(&report, [("secs", json!(secs))])?;
        return Ok(0);
    }
    let (runs, steps, speed) = (count(report.runs), count(report.num_steps), rate(report.num_steps, secs));
    let (size, mut out) = (megabytes(report.num_bytes), std::io::stdout().lock());
    writeln!(out, "{runs} runs, {steps} steps, {size} in {secs:.1} s: {speed} steps/s")?;
    Ok(0)
}
