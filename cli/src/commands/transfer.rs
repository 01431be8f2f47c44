//! The commands `export` and `convert`.

use crate::open::ArchiveArgs;
use crate::print::{count, print_report, rate};
use crate::progress::{interrupt, progress};
use crate::terminal::{print_error, print_warning};
use crate::values::formats;
use a2store::export::{ExportFormat, ExportOptions, ExportReport};
use a2store::query::no_params;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// Output format. `original` restores the ingested run files.
    #[arg(long, value_parser = formats(|_| true))]
    format: ExportFormat,
    #[command(flatten)]
    target: ExportTargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ConvertArgs {
    /// Run files, packs, pack.dat files, datasets, sessions and logs, or folders of them.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_parser = formats(ExportFormat::is_of_conversions))]
    format: ExportFormat,
    #[command(flatten)]
    target: ExportTargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ExportTargetArgs {
    /// Output path: a folder for run files, npy, session and macroxue, a file or folder for the other formats.
    #[arg(short, long, alias = "out")]
    output: PathBuf,
    /// jsonl: write one line per step instead of per run.
    #[arg(long)]
    by_step: bool,
    /// jsonl: use the compact layout, which DuckDB and other tools read directly.
    #[arg(long)]
    compact: bool,
    /// a2pack: compression of runs.
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    compress: String,
    /// npy, session, macroxue: rows per file [default: all in one file].
    #[arg(long)]
    shard_rows: Option<u64>,
    /// session: whether to write the moves [default: true if the first run has all of its moves].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    moves: Option<bool>,
    /// Skip and list runs that the format cannot hold, instead of stopping at the first one. `convert` also skips runs
    /// and files that cannot be read.
    #[arg(long)]
    skip_errors: bool,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn export(args: &ExportArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    // The condition is in parentheses and on a separate line. So its operators and comments do not affect the rest of
    // the statement.
    let condition = args.condition.as_deref().unwrap_or("true");
    let query = archive.sql(&format!("SELECT run_id FROM runs WHERE (\n{condition}\n)"), no_params())?;
    let cancel = interrupt()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = query.export_runs(&args.target.output, &options, &*progress(quiet), &cancel)?;
    if report.runs == 0 && report.errors.is_empty() {
        print_warning("a2store", "no runs to export");
    }
    print(&report, start, args.target.json)
}

pub(crate) fn convert(args: &ConvertArgs, quiet: bool) -> Result<u8> {
    let cancel = interrupt()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = a2store::export::convert(&args.inputs, &args.target.output, &options, &*progress(quiet), &cancel)?;
    print(&report, start, args.target.json)
}

fn options(format: ExportFormat, target: &ExportTargetArgs) -> Result<ExportOptions> {
    let mut options = ExportOptions::new(format);
    (options.by_step, options.compact) = (target.by_step, target.compact);
    options.skip_errors = target.skip_errors;
    (options.shard_rows, options.moves, options.workers) = (target.shard_rows, target.moves, target.workers);
    options.compression = target.compress.parse()?;
    Ok(options)
}

fn print(report: &ExportReport, start: Instant, json: bool) -> Result<u8> {
    let secs = start.elapsed().as_secs_f64();
    for rejected in &report.errors {
        print_error("a2store", &rejected.error);
    }
    let ExportReport { path, runs, num_steps, .. } = report;
    let (runs, steps, speed) = (count(*runs), count(*num_steps), rate(*num_steps, secs));
    let text = format!("{runs} runs, {steps} steps to {} in {secs:.1} s: {speed} steps/s", path.display());
    print_report(json, report, [("secs", json!(secs))], &text)?;
    Ok(u8::from(!report.errors.is_empty()))
}
