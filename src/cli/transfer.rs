//! The commands `export` and `convert`.

use super::commands::{open, progress};
use super::interrupt::Interrupt;
use super::output::{count, rate, text};
use super::{Convert, Export, Target, Usage};
use crate::{ErrorKind, ExportOptions, ExportReport, no_params};
use anyhow::Result;
use serde_json::json;
use std::io::Write;
use std::time::Instant;

pub(super) fn export(args: &Export, quiet: bool) -> Result<u8> {
    let archive = open(&args.archive, args.version, args.checksums)?;
    // In parentheses and on a line by itself, so that neither an operator nor a comment in it affects the statement.
    let condition = args.condition.as_deref().unwrap_or("true");
    let query = archive.sql(&format!("SELECT run_id FROM runs WHERE (\n{condition}\n)"), no_params())?;
    let interrupt = Interrupt::new()?;
    let start = Instant::now();
    let report = query.export_runs(&args.target.out, &options(&args.target)?, &interrupt.watch(&*progress(quiet)))?;
    print(&report, start, args.target.json)
}

pub(super) fn convert(args: &Convert, quiet: bool) -> Result<u8> {
    let interrupt = Interrupt::new()?;
    let start = Instant::now();
    let options = options(&args.target)?;
    let report = crate::convert(&args.inputs, &args.target.out, &options, &interrupt.watch(&*progress(quiet)))?;
    print(&report, start, args.target.json)
}

fn options(target: &Target) -> Result<ExportOptions> {
    let mut options = ExportOptions::new(target.format);
    (options.by_step, options.compact, options.append) = (target.by_step, target.compact, target.append);
    (options.shard_rows, options.workers) = (target.shard_rows, target.workers);
    options.compression = target.compress.parse().map_err(|error: crate::Error| match error.kind() {
        ErrorKind::Argument { .. } => Usage(error.to_string()).into(),
        _ => anyhow::Error::from(error),
    })?;
    Ok(options)
}

fn print(report: &ExportReport, start: Instant, json: bool) -> Result<u8> {
    let secs = start.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    let ExportReport { path, runs, num_steps, num_files, .. } = report;
    if json {
        let report = json!({
            "path": text(path), "runs": runs, "num_steps": num_steps, "num_files": num_files, "secs": secs
        });
        writeln!(out, "{report}")?;
    } else {
        let (runs, steps, speed) = (count(*runs), count(*num_steps), rate(*num_steps, secs));
        writeln!(out, "{runs} runs, {steps} steps to {} in {secs:.1} s: {speed} steps/s", path.display())?;
    }
    Ok(0)
}
