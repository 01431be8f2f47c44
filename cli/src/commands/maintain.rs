//! The maintenance commands `verify`, `restore`, `tag`, `compact` and `expire`.

use crate::print::{count, megabytes, print_json, print_report};
use crate::progress::{interrupt, progress};
use a2store::Archive;
use a2store::archive::{CompactOptions, ExpireOptions, StorageOptions, VersionName};
use anyhow::Result;
use clap::Args;
use humantime::parse_duration;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
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
pub(crate) struct RestoreArgs {
    /// The archive.
    archive: PathBuf,
    /// The version whose files to use: a number or a tag [default: the newest intact version].
    #[arg(long)]
    version: Option<VersionName>,
    /// Only print what would change.
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TagArgs {
    /// The archive.
    archive: PathBuf,
    /// The new tag [default: list the tags].
    name: Option<String>,
    /// The version to tag [default: the newest].
    #[arg(long, value_name = "N", requires = "name")]
    version: Option<u64>,
    /// Remove this tag.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    remove: Option<String>,
    /// Print the tags as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CompactArgs {
    /// The archive.
    archive: PathBuf,
    /// Target number of rows per data file. A file with at least half of them is left alone.
    #[arg(long, default_value_t = a2store::archive::CompactOptions::default().file_rows, value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ExpireArgs {
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

pub(crate) fn verify(args: &VerifyArgs, quiet: bool) -> Result<u8> {
    let (storage, cancel) = (StorageOptions::default(), interrupt()?);
    let report = Archive::verify(&args.archive, args.workers, &storage, &*progress(quiet), &cancel)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
        return Ok(u8::from(!report.problems.is_empty()));
    }
    for problem in &report.problems {
        writeln!(out, "{problem}")?;
    }
    let (versions, files) = (count(report.num_versions), count(report.num_files));
    let (runs, steps) = (count(report.num_runs), count(report.num_steps));
    writeln!(
        out,
        "{}: {versions} versions, {files} files ({}), {runs} runs and {steps} steps at version {}",
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

pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let (storage, cancel) = (StorageOptions::default(), interrupt()?);
    let report = Archive::restore(&args.archive, args.version.clone(), args.dry_run, &storage, &cancel)?;
    if args.json {
        print_json(&report, [])?;
        return Ok(0);
    }
    let mut out = std::io::stdout().lock();
    let (adopted, removed) =
        if args.dry_run { ("would be adopted", "would be removed") } else { ("adopted", "removed") };
    for path in &report.adopted {
        writeln!(out, "{path}: {adopted}, because no manifest lists it")?;
    }
    for path in &report.damaged {
        writeln!(out, "{path}: {removed}, because it is damaged")?;
    }
    let (version, runs) = (report.version, count(report.adopted_runs));
    match report.new_version {
        None => writeln!(out, "nothing to restore: version {version} is the newest and intact")?,
        Some(new) if report.done => {
            writeln!(out, "version {new} continues from version {version}, and adopts {runs} runs")?
        }
        Some(new) => writeln!(
            out,
            "nothing was changed; without --dry-run, version {new} would continue from version {version}, and adopt {runs} runs"
        )?,
    }
    Ok(0)
}

pub(crate) fn tag(args: &TagArgs) -> Result<u8> {
    let archive = Archive::open(&args.archive)?;
    if let Some(name) = &args.name {
        archive.tag(name, args.version)?;
    }
    if let Some(name) = &args.remove {
        archive.untag(name)?;
    }
    let tags = archive.tags()?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&tags)?)?;
        return Ok(0);
    }
    for (name, version) in &tags {
        writeln!(out, "{version:>7}  {name}")?;
    }
    Ok(0)
}

pub(crate) fn compact(args: &CompactArgs, quiet: bool) -> Result<u8> {
    let mut options = CompactOptions::default();
    options.file_rows = args.file_rows;
    options.workers = args.workers;
    let mut archive = Archive::open(&args.archive)?;
    let report = archive.compact(&options, &*progress(quiet), &interrupt()?)?;
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

pub(crate) fn expire(args: &ExpireArgs) -> Result<u8> {
    let (older_than, grace, dry_run) = (args.older_than, args.grace, !args.yes);
    let mut archive = Archive::open(&args.archive)?;
    let mut options = ExpireOptions::default();
    options.older_than = older_than;
    options.grace = grace;
    options.dry_run = dry_run;
    let report = archive.expire(&options, &interrupt()?)?;
    let verb = if dry_run { "would be removed" } else { "removed" };
    let mut text = format!(
        "{} versions and {} data files ({}) {verb}; version {} is the oldest",
        count(report.num_versions),
        count(report.num_files),
        megabytes(report.num_bytes),
        report.first_version,
    );
    if !report.tags.is_empty() {
        text += &format!("\ntags keep older versions: {}", report.tags.join(", "));
    }
    if dry_run && report.num_versions + report.num_files > 0 {
        text += "\nnothing was changed; --yes removes them";
    }
    print_report(args.json, &report, [("version", json!(archive.version())), ("dry_run", json!(dry_run))], &text)
}
