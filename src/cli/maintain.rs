//! The maintenance commands `verify`, `repair`, `compact` and `expire`.

use super::print::{count, megabytes, print_json, print_report};
use super::progress::{Interrupt, progress};
use crate::{Archive, CancellationToken, CompactOptions, ExpireOptions, StorageOptions};
use anyhow::Result;
use clap::Args;
use humantime::parse_duration;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// The archive.
    archive: PathBuf,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct RepairArgs {
    /// The archive.
    archive: PathBuf,
    /// Change the archive. Versions that this removes cannot be restored.
    #[arg(long)]
    yes: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct CompactArgs {
    /// The archive.
    archive: PathBuf,
    /// Target number of rows per data file. A file with at least half of them is left alone.
    #[arg(long, default_value_t = crate::CompactOptions::default().file_rows, value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExpireArgs {
    /// The archive.
    archive: PathBuf,
    /// Remove versions that were replaced longer ago than this, such as 12h or 30d. The newest version always stays.
    #[arg(long, default_value = "30d", value_parser = parse_duration)]
    older_than: Duration,
    /// How long unreferenced files stay. They may belong to another machine's commit in progress.
    #[arg(long, default_value = "1d", value_parser = parse_duration)]
    grace: Duration,
    /// Change the archive. Versions that this removes cannot be restored.
    #[arg(long)]
    yes: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn verify(args: &VerifyArgs, quiet: bool) -> Result<u8> {
    let (storage, interrupt) = (StorageOptions::default(), Interrupt::new()?);
    let report = Archive::verify(&args.archive, args.workers, &storage, &*progress(quiet), interrupt.token())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(u8::from(!report.problems.is_empty()));
    }
    for problem in &report.problems {
        writeln!(out, "{problem}")?;
    }
    let (commits, files) = (count(report.num_commits), count(report.num_files));
    let (runs, steps) = (count(report.num_runs), count(report.num_steps));
    writeln!(
        out,
        "{}: {commits} commits, {files} files ({}), {runs} runs and {steps} steps at version {}",
        if report.problems.is_empty() {
            "sound".into()
        } else {
            format!("{} problems", count(report.problems.len() as u64))
        },
        megabytes(report.num_bytes),
        report.version,
    )?;
    if report.unnamed_files > 0 {
        writeln!(out, "unreferenced files: {}; `expire` removes them", count(report.unnamed_files))?;
    }
    Ok(u8::from(!report.problems.is_empty()))
}

pub(super) fn repair(args: &RepairArgs) -> Result<u8> {
    let (storage, cancel) = (StorageOptions::default(), CancellationToken::new());
    let report = Archive::repair(&args.archive, !args.yes, &storage, &cancel)?;
    if args.json {
        print_json(&report, [])?;
        return Ok(0);
    }
    let mut out = std::io::stdout().lock();
    if report.steps.is_empty() {
        writeln!(out, "nothing to repair: version {} can be read", report.version)?;
        return Ok(0);
    }
    for step in &report.steps {
        writeln!(out, "{}: {} ({})", step.path, step.action, step.reason)?;
    }
    match report.done {
        true => writeln!(out, "done: the archive continues from version {}", report.version)?,
        false => {
            writeln!(out, "nothing was changed; with --yes the archive would continue from version {}", report.version)?
        }
    }
    Ok(0)
}

pub(super) fn compact(args: &CompactArgs, quiet: bool) -> Result<u8> {
    let options = CompactOptions { file_rows: args.file_rows, workers: args.workers };
    let mut archive = Archive::open(&args.archive)?;
    let report = archive.compact(&options, &*progress(quiet), Interrupt::new()?.token())?;
    let version = archive.version();
    let text = format!(
        "{} files ({}) became {} ({}); {} rows rewritten, version {version}",
        count(report.files_before),
        megabytes(report.bytes_before),
        count(report.files_after),
        megabytes(report.bytes_after),
        count(report.num_rows),
    );
    print_report(args.json, &report, [("version", json!(version))], &text)
}

pub(super) fn expire(args: &ExpireArgs) -> Result<u8> {
    let (older_than, grace, dry_run) = (args.older_than, args.grace, !args.yes);
    let mut archive = Archive::open(&args.archive)?;
    let options = ExpireOptions { older_than, grace, dry_run };
    let report = archive.expire(&options, Interrupt::new()?.token())?;
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!(
        "{} versions and {} data files ({}) {verb}; version {} is the oldest",
        count(report.num_versions),
        count(report.num_files),
        megabytes(report.num_bytes),
        report.first_version,
    );
    if dry_run && report.num_versions + report.num_files > 0 {
        text += "\nnothing was changed; --yes removes them";
    }
    print_report(args.json, &report, [("version", json!(archive.version())), ("dry_run", json!(dry_run))], &text)
}
