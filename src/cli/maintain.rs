//! The maintenance commands `verify`, `repair`, `compact` and `expire`.

use super::commands::progress;
use super::interrupt::Interrupt;
use super::output::{count, megabytes};
use super::{Compact, Expire, Repair, Verify};
use crate::{Archive, CompactOptions, ExpireOptions, VerifyOptions};
use anyhow::Result;
use serde_json::json;
use std::io::Write;

pub(super) fn verify(args: &Verify, quiet: bool) -> Result<u8> {
    let options = VerifyOptions { deep: args.deep, workers: args.workers };
    let report = Archive::verify(&args.archive, &options, &Interrupt::new()?.watch(&*progress(quiet)))?;
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

pub(super) fn repair(args: &Repair) -> Result<u8> {
    let report = Archive::repair(&args.archive, !args.yes)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let step = |step: &crate::Repair| json!({"path": step.path, "action": step.action, "reason": step.reason});
        let steps: Vec<_> = report.steps.iter().map(step).collect();
        writeln!(out, "{}", json!({"version": report.version, "steps": steps, "done": report.done}))?;
        return Ok(0);
    }
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

pub(super) fn compact(args: &Compact, quiet: bool) -> Result<u8> {
    let options = CompactOptions { file_rows: args.file_rows, workers: args.workers, wait: args.wait };
    let mut archive = Archive::open(&args.archive)?;
    let report = archive.compact(&options, &Interrupt::new()?.watch(&*progress(quiet)))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let report = json!({
            "version": archive.version(), "files_before": report.files_before, "files_after": report.files_after,
            "bytes_before": report.bytes_before, "bytes_after": report.bytes_after, "num_rows": report.num_rows,
        });
        writeln!(out, "{report}")?;
        return Ok(0);
    }
    writeln!(
        out,
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

pub(super) fn expire(args: &Expire, quiet: bool) -> Result<u8> {
    let (older_than, grace, dry_run, wait) = (args.older_than, args.grace, args.dry_run, args.wait);
    let mut archive = Archive::open(&args.archive)?;
    let options = ExpireOptions { older_than, grace, dry_run, wait };
    let report = archive.expire(&options, &Interrupt::new()?.watch(&*progress(quiet)))?;
    let mut out = std::io::stdout().lock();
    if args.json {
        let report = json!({
            "version": archive.version(), "first_version": report.first_version, "num_versions": report.num_versions,
            "num_files": report.num_files, "num_bytes": report.num_bytes, "paths": report.paths, "dry_run": dry_run,
        });
        writeln!(out, "{report}")?;
        return Ok(0);
    }
    let verb = if dry_run { "would be removed" } else { "removed" };
    writeln!(
        out,
        "{} versions and {} data files ({}) {verb}; version {} is the oldest",
        count(report.num_versions),
        count(report.num_files),
        megabytes(report.num_bytes),
        report.first_version,
    )?;
    Ok(0)
}
