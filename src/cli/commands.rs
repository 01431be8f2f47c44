//! The subcommand dispatcher, and `simulate`, `ingest`, `info` and `history`.

use super::interrupt::Interrupt;
use super::output::{self, count, megabytes, rate};
use super::{Archived, Cli, Command, Ingest, Simulate, bench, maintain, sql, transfer};
use crate::error::{Error, ErrorKind};
use crate::{
    Archive, IngestOptions, IngestReport, OnError, Phases, Progress, ProgressBar, SeenFiles, SimulateOptions,
    TableName, no_params,
};
use anyhow::{Result, bail};
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Runs the subcommand of a parsed command line.
///
/// `program` is the command line that starts `a2store` again. `None` means that this executable is `a2store`.
pub(super) fn run(cli: Cli, program: Option<&[OsString]>) -> Result<u8> {
    let quiet = cli.quiet;
    match cli.command {
        Command::Simulate(args) => simulate(&args, quiet),
        Command::Ingest(args) => ingest(&args, quiet),
        Command::Info(args) => info(&args),
        Command::History(args) => history(&args),
        Command::Sql(args) => sql::sql(&args, program, quiet),
        Command::Query(args) => sql::named(&args),
        Command::Queries(args) => sql::queries(&args),
        Command::Functions(args) => sql::functions(&args),
        Command::Export(args) => transfer::export(&args, quiet),
        Command::Convert(args) => transfer::convert(&args, quiet),
        Command::Verify(args) => maintain::verify(&args, quiet),
        Command::Repair(args) => maintain::repair(&args),
        Command::Compact(args) => maintain::compact(&args, quiet),
        Command::Expire(args) => maintain::expire(&args, quiet),
        Command::Bench(args) => bench::run(&args, quiet),
    }
}

pub(super) fn progress(quiet: bool) -> Box<dyn Progress> {
    if quiet { Box::new(ProgressBar::hidden()) } else { Box::new(ProgressBar::for_terminal()) }
}

pub(super) fn open(path: &Path, version: Option<u64>, checksums: Option<bool>) -> Result<Archive> {
    let archive = match version {
        Some(version) => Archive::open_at(path, version)?,
        None => Archive::open(path)?,
    };
    let checksums = checksums.unwrap_or(archive.has_checksums());
    Ok(archive.with_checksums(checksums))
}

fn simulate(args: &Simulate, quiet: bool) -> Result<u8> {
    let options = SimulateOptions {
        runs: args.runs,
        seed: args.seed,
        format: args.format.parse()?,
        depth: if args.fast { 0 } else { args.depth },
        engine: args.engine.clone(),
        workers: args.workers,
    };
    let start = Instant::now();
    let report = crate::simulate(&args.out, &options, &*progress(quiet))?;
    let secs = start.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    if args.json {
        let report =
            json!({"runs": report.runs, "num_steps": report.num_steps, "num_bytes": report.num_bytes, "secs": secs});
        writeln!(out, "{report}")?;
    } else {
        let (runs, steps, speed) = (count(report.runs), count(report.num_steps), rate(report.num_steps, secs));
        writeln!(out, "{runs} runs, {steps} steps, {} in {secs:.1} s: {speed} steps/s", megabytes(report.num_bytes))?;
    }
    Ok(0)
}

fn ingest(args: &Ingest, quiet: bool) -> Result<u8> {
    let Some((archive, inputs)) = args.paths.split_last() else { bail!("expected inputs and an archive") };
    for input in inputs {
        // A missing input must fail before the archive is created.
        std::fs::metadata(input).map_err(|source| Error::io(input, source))?;
    }
    let mut archive = match Archive::open(archive) {
        Err(error) if is_absent(&error) => match Archive::create(archive, Phases { mid: args.mid, late: args.late }) {
            // Another process has created it in the meantime.
            Err(error) if matches!(error.kind(), ErrorKind::ArchiveExists { .. }) => Archive::open(archive)?,
            created => created?,
        },
        opened => opened?,
    };
    let on_error = if args.strict { OnError::Raise } else { OnError::Report };
    let options = IngestOptions { workers: args.workers, wait: args.wait, on_error };
    let interrupt = Interrupt::new()?;
    let Some(period) = args.watch else {
        let start = Instant::now();
        let report = archive.ingest(inputs, &options, &interrupt.watch(&*progress(quiet)))?;
        return report_ingest(&report, &archive, start, args.json);
    };
    let mut seen = SeenFiles::default();
    let mut status = 0;
    let mut first = true;
    loop {
        let start = Instant::now();
        let outcome = archive.ingest_unseen(inputs, &mut seen, &options, &interrupt.watch(&*progress(quiet)));
        match outcome {
            Ok(report) if report.accepted + report.rejected > 0 || first => {
                status |= report_ingest(&report, &archive, start, args.json)?;
                first = false;
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Cancelled) => return Ok(status),
            // Another writer or a full disk is a temporary obstacle, so the next period tries again.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Conflict { .. } | ErrorKind::Io { .. } | ErrorKind::Unconfirmed { .. }
                ) =>
            {
                eprintln!("a2store: {error}; trying again in {}", humantime::format_duration(period));
                status = 1;
            }
            Err(error) => return Err(error.into()),
        }
        if interrupt.sleep(period).is_err() {
            return Ok(status);
        }
    }
}

/// Prints the report of an ingest and returns the exit status.
fn report_ingest(report: &IngestReport, archive: &Archive, start: Instant, as_json: bool) -> Result<u8> {
    let secs = start.elapsed().as_secs_f64();
    for rejected in &report.errors {
        eprintln!("a2store: {}", rejected.error);
    }
    let mut out = std::io::stdout().lock();
    if as_json {
        let errors: Vec<_> = report.errors.iter().map(output::rejected_json).collect();
        let report = json!({
            "accepted": report.accepted, "duplicates": report.duplicates, "rejected": report.rejected,
            "ignored": report.ignored, "unchanged": report.unchanged, "num_steps": report.num_steps,
            "num_bytes": report.num_bytes, "version": archive.version(), "secs": secs, "errors": errors,
        });
        writeln!(out, "{report}")?;
    } else {
        let (accepted, duplicates) = (count(report.accepted), count(report.duplicates));
        let (rejected, ignored) = (count(report.rejected), count(report.ignored));
        let speed = rate(report.num_steps, secs);
        write!(out, "{accepted} runs added, {duplicates} already there, {rejected} rejected")?;
        if report.ignored > 0 {
            write!(out, ", {ignored} other files ignored")?;
        }
        if report.unchanged > 0 {
            write!(out, ", {} unchanged files", count(report.unchanged))?;
        }
        writeln!(out, "; {} steps in {secs:.1} s: {speed} steps/s", count(report.num_steps))?;
    }
    out.flush()?;
    Ok(u8::from(report.rejected > 0))
}

/// Returns whether an archive can be created where opening one failed: nothing else is stored there.
fn is_absent(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Io { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        ErrorKind::NotAnArchive { path, .. } => is_url(path) || is_empty(path),
        _ => false,
    }
}

/// Returns whether a folder is empty, or holds only what an interrupted creation of an archive leaves.
fn is_empty(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names.is_empty() || names.iter().zip(["_log", "runs", "steps"]).all(|(name, own)| name == own) && names.len() <= 3
}

/// Returns whether an archive's path is a URL, such as `s3://bucket/games.a2`.
pub(super) fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

fn info(args: &Archived) -> Result<u8> {
    let archive = open(&args.archive, args.version, None)?;
    let engines = "SELECT coalesce(engine, '(none)') AS engine, count(*) AS runs, sum(num_steps) AS steps, \
                   max(max_score) AS best_score, max(highest_tile) AS best_tile \
                   FROM runs GROUP BY engine ORDER BY runs DESC, engine LIMIT 20";
    let engines = archive.sql(engines, no_params())?.stream()?.collect::<crate::Result<Vec<_>>>()?;
    let bytes = TableName::ALL.map(|table| archive.num_bytes(table));
    let (runs, steps) = (archive.num_runs(), archive.num_steps());
    let mut out = std::io::stdout().lock();
    if args.json {
        let files = TableName::ALL.map(|table| archive.files(table).len());
        let info = json!({
            "path": archive.path().to_string_lossy(), "version": archive.version(), "num_runs": runs, "num_steps": steps,
            "runs_bytes": bytes[0], "steps_bytes": bytes[1], "runs_files": files[0], "steps_files": files[1],
            "phases": archive.phases(), "engines": output::json_rows(&engines)?,
        });
        writeln!(out, "{info}")?;
        return Ok(0);
    }
    let phases = archive.phases();
    writeln!(out, "archive   {}", args.archive.display())?;
    writeln!(out, "version   {}", archive.version())?;
    writeln!(out, "runs      {}", count(runs))?;
    writeln!(out, "steps     {}", count(steps))?;
    write!(out, "on disk   {}", megabytes(bytes[0] + bytes[1]))?;
    if steps > 0 {
        write!(out, ", {:.1} bytes a step", bytes[1] as f64 / steps as f64)?;
    }
    writeln!(out, "\nphases    mid from {}, late from {}", phases.mid, phases.late)?;
    if runs > 0 {
        writeln!(out, "{}", output::pretty(&engines)?)?;
    }
    Ok(0)
}

fn history(args: &Archived) -> Result<u8> {
    let history = open(&args.archive, args.version, None)?.history();
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&history)?)?;
        return Ok(0);
    }
    writeln!(out, "{:>7}  {:24}  {:9}  {:>12}  {:>15}", "version", "time", "operation", "runs", "steps")?;
    for commit in history {
        let operation = commit.operation.name();
        let (runs, steps) = (format!("+{}", count(commit.added_runs)), format!("+{}", count(commit.added_steps)));
        writeln!(out, "{:>7}  {:24}  {operation:9}  {runs:>12}  {steps:>15}", commit.version, commit.time)?;
    }
    Ok(0)
}
