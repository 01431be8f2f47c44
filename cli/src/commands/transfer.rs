//! The subcommands `ingest`, `export` and `convert`.

use crate::args::{ArchiveArgs, WorkArgs, check_output, check_outside_archives};
use crate::exit::{UsageError, status_after};
use crate::output::{count, print_error, print_report, print_warning, rate};
use crate::progress::{interrupt, progress};
use a2store::archive::StorageOptions;
use a2store::error::Error;
use a2store::export::{ExportFormat, ExportOptions, ExportReport};
use a2store::format::{is_archive, is_named_as_unfinished};
use a2store::query::no_params;
use a2store::{Archive, IngestOptions, Phases};
use anyhow::{Result, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use humantime::parse_duration;
use serde_json::json;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args, Debug)]
pub(crate) struct IngestArgs {
    /// Run files, packs, datasets, sessions and logs, or folders of them. The archive comes last: like `cp`, this
    /// command has any number of sources and one target.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// The archive.
    archive: PathBuf,
    /// Add nothing if any file fails to decode.
    #[arg(long)]
    strict: bool,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    wait: Duration,
    /// New archives only: the highest tile at which the middle game begins.
    #[arg(long, default_value_t = a2store::Phases::default().mid)]
    mid: u32,
    /// New archives only: the highest tile at which the late game begins.
    #[arg(long, default_value_t = a2store::Phases::default().late)]
    late: u32,
    #[command(flatten)]
    work: WorkArgs,
}

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
    #[command(flatten)]
    work: WorkArgs,
}

/// Returns the parser of the allowed formats of an export or a conversion.
fn formats(is_allowed: fn(ExportFormat) -> bool) -> impl TypedValueParser<Value = ExportFormat> {
    let allowed = ExportFormat::ALL.into_iter().filter(|&format| is_allowed(format));
    PossibleValuesParser::new(allowed.map(ExportFormat::name)).try_map(|name| name.parse::<ExportFormat>())
}

/// The maximum number of ignored files that are listed by name.
const MAX_SHOWN_IGNORED: usize = 10;

pub(crate) fn ingest(args: &IngestArgs, quiet: bool) -> Result<u8> {
    let IngestArgs { inputs, archive, .. } = args;
    for input in inputs {
        // A missing input must fail before the archive is created.
        std::fs::metadata(input).map_err(|source| Error::io(input, source))?;
        if is_archive(input) {
            let (input, target) = (input.display(), archive.display());
            let hint = match is_archive(archive) {
                true => String::new(),
                false => format!("; the archive comes last, as in `a2store ingest {target} {input}`"),
            };
            bail!(UsageError(format!("{input}: expected files or folders of runs, found an archive{hint}")));
        }
    }
    if archive.is_file() {
        let (input, found) = (inputs[0].display(), archive.display());
        let hint = format!("the archive comes last, as in `a2store ingest {input} games.a2`");
        bail!(UsageError(format!("{found}: expected an archive, found a file; {hint}")));
    }
    let cancel = interrupt()?;
    let phases = Phases { mid: args.mid, late: args.late };
    let mut archive = Archive::open_or_create(archive, phases, &StorageOptions::default(), &cancel)?;
    let mut options = IngestOptions::default();
    options.workers = args.work.workers;
    options.wait = args.wait;
    options.strict = args.strict;
    let start = Instant::now();
    let report = archive.ingest(inputs, &options, &*progress(quiet), &cancel)?;
    let secs = start.elapsed().as_secs_f64();
    for rejected in &report.errors {
        print_error("a2store", &rejected.error);
    }
    let warn = |text: &str| {
        if !quiet {
            print_warning("a2store", text)
        }
    };
    for path in report.ignored.iter().take(MAX_SHOWN_IGNORED) {
        let is_unknown = !is_named_as_unfinished(path);
        let why = if is_unknown { "content is unknown" } else { "name begins with a dot or ends in .tmp" };
        warn(&format!("{}: ignored, because its {why}", path.display()));
    }
    let more = report.ignored.len().saturating_sub(MAX_SHOWN_IGNORED);
    if more > 0 {
        warn(&format!("{more} more files ignored; --json lists all of them"));
    }
    if report.accepted + report.duplicates + report.rejected == 0 {
        warn("no runs found in the inputs");
    }
    let (accepted, duplicates, rejected) = (count(report.accepted), count(report.duplicates), count(report.rejected));
    let mut text = format!("{accepted} runs added");
    if report.twins > 0 {
        text += &format!(" ({} have the same game as another run)", count(report.twins));
    }
    text += &format!(", {duplicates} duplicates, {rejected} rejected");
    if !report.ignored.is_empty() {
        text += &format!(", {} other files ignored", count(report.ignored.len() as u64));
    }
    let (steps, speed) = (count(report.num_steps), rate(report.num_steps, secs));
    text += &format!("; {steps} steps in {secs:.1} s: {speed} steps/s");
    let extra = [("version", json!(archive.version())), ("secs", json!(secs))];
    status_after(print_report(args.work.json, &report, extra, &text), u8::from(report.rejected > 0))
}

pub(crate) fn export(args: &ExportArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    // The export itself rejects existing files.
    check_output(&args.target.output, true, &archive)?;
    let condition = args.condition.as_deref().unwrap_or("true");
    // A condition such as `true) OR (true` is valid only in parentheses.
    archive.sql(&format!("SELECT run_id FROM runs WHERE {condition}"), no_params())?;
    // The condition is in parentheses and on a separate line. So its operators and comments do not affect the rest of
    // the statement.
    let query = archive.sql(&format!("SELECT run_id FROM runs WHERE (\n{condition}\n)"), no_params())?;
    let cancel = interrupt()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = query.export_runs(&args.target.output, &options, &*progress(quiet), &cancel)?;
    if report.runs == 0 && report.errors.is_empty() && !quiet {
        print_warning("a2store", "no runs to export");
    }
    print(&report, start, args.target.work.json)
}

pub(crate) fn convert(args: &ConvertArgs, quiet: bool) -> Result<u8> {
    check_outside_archives(&args.target.output)?;
    let cancel = interrupt()?;
    let start = Instant::now();
    let options = options(args.format, &args.target)?;
    let report = a2store::export::convert(&args.inputs, &args.target.output, &options, &*progress(quiet), &cancel)?;
    print(&report, start, args.target.work.json)
}

fn options(format: ExportFormat, target: &ExportTargetArgs) -> Result<ExportOptions> {
    let mut options = ExportOptions::new(format);
    (options.by_step, options.compact) = (target.by_step, target.compact);
    options.skip_errors = target.skip_errors;
    (options.shard_rows, options.moves, options.workers) = (target.shard_rows, target.moves, target.work.workers);
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
    let printed = print_report(json, report, [("secs", json!(secs))], &text);
    status_after(printed, u8::from(!report.errors.is_empty()))
}
