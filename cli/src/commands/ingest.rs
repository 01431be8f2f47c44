//! The subcommand `ingest`.

use crate::exit::UsageError;
use crate::print::{count, print_json, rate};
use crate::progress::{interrupt, progress};
use crate::terminal::{print_error, print_warning};
use a2store::archive::StorageOptions;
use a2store::error::Error;
use a2store::format::is_archive;
use a2store::{Archive, IngestOptions, Phases};
use anyhow::{Result, bail};
use clap::Args;
use humantime::parse_duration;
use serde_json::json;
use std::io::Write;
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
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// New archives only: the highest tile at which the middle game begins.
    #[arg(long, default_value_t = a2store::Phases::default().mid)]
    mid: u32,
    /// New archives only: the highest tile at which the late game begins.
    #[arg(long, default_value_t = a2store::Phases::default().late)]
    late: u32,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// The maximum number of ignored files that are listed by name.
const MAX_SHOWN_IGNORED: usize = 10;

pub(crate) fn ingest(args: &IngestArgs, quiet: bool) -> Result<u8> {
    let IngestArgs { inputs, archive, .. } = args;
    for input in inputs {
        // A missing input must fail before the archive is created.
        std::fs::metadata(input).map_err(|source| Error::io(input, source))?;
        if is_archive(input) {
            let (input, archive) = (input.display(), archive.display());
            let hint = format!("the archive comes last, as in `a2store ingest {archive} {input}`");
            bail!(UsageError(format!("{input}: expected files or folders of runs, found an archive; {hint}")));
        }
    }
    let cancel = interrupt()?;
    let phases = Phases { mid: args.mid, late: args.late };
    let mut archive = Archive::open_or_create(archive, phases, &StorageOptions::default(), &cancel)?;
    let mut options = IngestOptions::default();
    options.workers = args.workers;
    options.wait = args.wait;
    options.strict = args.strict;
    let start = Instant::now();
    let report = archive.ingest(inputs, &options, &*progress(quiet), &cancel)?;
    let secs = start.elapsed().as_secs_f64();
    for rejected in &report.errors {
        print_error("a2store", &rejected.error);
    }
    for path in report.ignored.iter().take(MAX_SHOWN_IGNORED) {
        print_warning("a2store", &format!("{}: ignored, because its content is unknown", path.display()));
    }
    let more = report.ignored.len().saturating_sub(MAX_SHOWN_IGNORED);
    if more > 0 {
        print_warning("a2store", &format!("{more} more files ignored; --json lists all of them"));
    }
    if report.accepted + report.duplicates + report.rejected == 0 {
        print_warning("a2store", "no runs found in the inputs");
    }
    let status = u8::from(report.rejected > 0);
    if args.json {
        print_json(&report, [("version", json!(archive.version())), ("secs", json!(secs))])?;
        return Ok(status);
    }
    let mut out = std::io::stdout().lock();
    let (accepted, duplicates) = (count(report.accepted), count(report.duplicates));
    write!(out, "{accepted} runs added")?;
    if report.twins > 0 {
        write!(out, " ({} have the same game as another run)", count(report.twins))?;
    }
    write!(out, ", {duplicates} duplicates, {} rejected", count(report.rejected))?;
    if !report.ignored.is_empty() {
        write!(out, ", {} other files ignored", count(report.ignored.len() as u64))?;
    }
    let (steps, speed) = (count(report.num_steps), rate(report.num_steps, secs));
    writeln!(out, "; {steps} steps in {secs:.1} s: {speed} steps/s")?;
    Ok(status)
}
