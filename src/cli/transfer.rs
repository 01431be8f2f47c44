//! The commands `export` and `convert`.

use super::args::{ConvertArgs, ExportArgs, ExportTargetArgs};
use super::exit::UsageError;
use super::open::open;
use super::print::{count, print_json, rate};
use super::progress::{Interrupt, progress};
use super::terminal::print_error;
use crate::{ErrorKind, ExportFormat, ExportOptions, ExportReport, no_params};
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::time::Instant;

pub(super) fn export(args: &ExportArgs, quiet: bool) -> Result<u8> {
    let archive = open(&args.archive, args.version, args.checksums)?;
    // The condition is in parentheses and on a separate line. So its operators and comments do not affect the rest of
    // the statement.
    let condition = args.condition.as_deref().unwrap_or("true");
    let query = archive.sql(&format!("SELECT run_id FROM runs WHERE (\n{condition}\n)"), no_params())?;
    let interrupt = Interrupt::new()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = query.export_runs(&args.target.output, &options, &*progress(quiet), interrupt.token())?;
    print(&report, start, args.target.json)
}

pub(super) fn convert(args: &ConvertArgs, quiet: bool) -> Result<u8> {
    let interrupt = Interrupt::new()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = crate::convert(&args.inputs, &args.target.output, &options, &*progress(quiet), interrupt.token())?;
    print(&report, start, args.target.json)
}

fn options(format: ExportFormat, target: &ExportTargetArgs) -> Result<ExportOptions> {
    let mut options = ExportOptions::new(format);
    (options.by_step, options.compact, options.append) = (target.by_step, target.compact, target.append);
    options.skip_errors = target.skip_errors;
    (options.shard_rows, options.moves, options.workers) = (target.shard_rows, target.moves, target.workers);
    options.compression = target.compress.parse().map_err(|error: crate::Error| match error.kind() {
        ErrorKind::Argument { .. } => UsageError(error.to_string()).into(),
        _ => anyhow::Error::from(error),
    })?;
    Ok(options)
}

fn print(report: &ExportReport, start: Instant, json: bool) -> Result<u8> {
    let secs = start.elapsed().as_secs_f64();
    for rejected in &report.errors {
        print_error("a2store", &rejected.error);
    }
    let status = u8::from(!report.errors.is_empty());
    if json {
        print_json(report, [("secs", json!(secs))])?;
        return Ok(status);
    }
    let ExportReport { path, runs, num_steps, .. } = report;
    let (runs, steps, speed) = (count(*runs), count(*num_steps), rate(*num_steps, secs));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{runs} runs, {steps} steps to {} in {secs:.1} s: {speed} steps/s", path.display())?;
    Ok(status)
}
