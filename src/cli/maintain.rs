//! The maintenance commands `verify`, `repair`, `compact` and `expire`.

use super::args::{CompactArgs, ExpireArgs, RepairArgs, VerifyArgs};
use super::print::{count, megabytes, print_json};
use super::progress::{Interrupt, progress};
use crate::{Archive, CompactOptions, ExpireOptions, VerifyOptions};
use anyhow::Result;
use serde_json::json;
use std::io::Write;

pub(super) fn verify(args: &VerifyArgs, quiet: bool) -> Result<u8> {
    let options = VerifyOptions { deep: args.deep, workers: args.workers };
    let report = Archive::verify(&args.archive, &options, &*progress(quiet), Interrupt::new()?.token())?;
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
    let report = Archive::repair(&args.archive, !args.consent.yes)?;
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
    let options =
        CompactOptions { file_rows: args.file_rows, workers: args.workers, dry_run: args.dry_run, wait: args.wait };
    let mut archive = Archive::open(&args.archive)?;
    let report = archive.compact(&options, &*progress(quiet), Interrupt::new()?.token())?;
    if args.json {
        print_json(&report, [("version", json!(archive.version())), ("dry_run", json!(args.dry_run))])?;
        return Ok(0);
    }
    if args.dry_run {
        writeln!(
            std::io::stdout().lock(),
            "{} files ({}) would become {}; {} rows would be rewritten, version {}",
            count(report.files_before),
            megabytes(report.bytes_before),
            count(report.files_after),
            count(report.num_rows),
            archive.version(),
        )?;
        return Ok(0);
    }
    writeln!(
        std::io::stdout().lock(),
        "{} files ({}) became {} ({}); {} rows rewritten, version {}",
        count(report.files_before),
        megabytes(report.bytes_before),
        count(report.files_after),
        megabytes(report.bytes_after),
        count(report.num_rows),
        archive.version(),
    )?;
    Ok(0)
}

pub(super) fn expire(args: &ExpireArgs) -> Result<u8> {
    let (older_than, grace, dry_run, wait) = (args.older_than, args.grace, !args.consent.yes, args.wait);
    let mut archive = Archive::open(&args.archive)?;
    let options = ExpireOptions { older_than, grace, dry_run, wait };
    let report = archive.expire(&options, Interrupt::new()?.token())?;
    if args.json {
        print_json(&report, [("version", json!(archive.version())), ("dry_run", json!(dry_run))])?;
        return Ok(0);
    }
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} versions and {} data files ({}) {verb}; version {} is the oldest",
        count(report.num_versions),
        count(report.num_files),
        megabytes(report.num_bytes),
        report.first_version,
    )?;
    if dry_run && report.num_versions + report.num_files > 0 {
        writeln!(out, "nothing was changed; --yes removes them")?;
    }
    Ok(0)
}
