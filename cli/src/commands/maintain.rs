//! The subcommands that maintain an archive: `annotate`, `verify`, `restore`, `tag`, `compact` and `expire`.

use crate::args::WorkArgs;
use crate::exit::{UsageError, status_after};
use crate::output::{count, megabytes, print_json, print_report};
use crate::progress::{interrupt, progress};
use a2store::Archive;
use a2store::archive::{AnnotateOptions, AnnotationInput, CompactOptions, ExpireOptions, StorageOptions, VersionName};
use anyhow::{Result, bail};
use clap::Args;
use humantime::parse_duration;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args, Debug)]
pub(crate) struct AnnotateArgs {
    /// The archive.
    archive: PathBuf,
    /// The model's name in the table `annotations`. Without a model, list the annotated models.
    model: Option<String>,
    /// A folder with annotations.npy or shards of it, and with the metadata.db of the annotated games.
    #[arg(value_name = "FOLDER")]
    annotations: Option<PathBuf>,
    /// Replace the model's annotations.
    #[arg(long, requires = "annotations")]
    replace: bool,
    /// Allow steps without annotations in annotated runs.
    #[arg(long, requires = "annotations")]
    partial: bool,
    /// Drop the model's annotations.
    #[arg(long, conflicts_with_all = ["annotations", "replace", "partial"])]
    drop: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The archive.
    archive: PathBuf,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The archive.
    archive: PathBuf,
    /// The version whose files to use: a number or a tag [default: the newest with an intact manifest].
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
    #[command(flatten)]
    work: WorkArgs,
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

pub(crate) fn annotate(args: &AnnotateArgs, quiet: bool) -> Result<u8> {
    let mut archive = Archive::open(&args.archive)?;
    let mut options = AnnotateOptions::default();
    (options.replace, options.partial) = (args.replace, args.partial);
    match (&args.model, &args.annotations) {
        (None, _) if args.drop => bail!(UsageError("--drop: expected a model".into())),
        (None, _) => list(&archive, args.json),
        (Some(model), None) if args.drop => {
            let dropped = archive.drop_annotations(model, &interrupt()?)?;
            let (rows, version) = (count(dropped.num_rows), archive.version());
            let text = format!("{model}: {rows} annotated steps dropped, version {version}");
            print_report(args.json, &dropped, [("version", json!(version))], &text)
        }
        (Some(_), None) => bail!(UsageError("expected a folder of annotations, or --drop".into())),
        (Some(model), Some(folder)) => {
            let input = AnnotationInput::Folder(folder);
            let report = archive.annotate(model, input, &options, &*progress(quiet), &interrupt()?)?;
            let version = archive.version();
            let text = format!(
                "{model}: {} steps of {} runs annotated ({} replaced, {} without annotations), version {version}",
                count(report.num_rows),
                count(report.num_runs),
                count(report.replaced_rows),
                count(report.missing_steps),
            );
            print_report(args.json, &report, [("version", json!(version))], &text)
        }
    }
}

fn list(archive: &Archive, is_json: bool) -> Result<u8> {
    let models = archive.annotations();
    if is_json {
        return print_json(&models, []);
    }
    let mut out = std::io::stdout().lock();
    if models.is_empty() {
        writeln!(out, "no annotations")?;
    }
    for model in models {
        let (rows, bytes) = (count(model.num_rows), megabytes(model.num_bytes));
        let (first, last) = (model.first_run_id, model.last_run_id);
        writeln!(out, "{}: {rows} annotated steps of runs {first}..={last} ({bytes})", model.model)?;
    }
    Ok(0)
}

pub(crate) fn verify(args: &VerifyArgs, quiet: bool) -> Result<u8> {
    let (storage, cancel) = (StorageOptions::default(), interrupt()?);
    let report = Archive::verify(&args.archive, args.work.workers, &storage, &*progress(quiet), &cancel)?;
    let mut text: String = report.problems.iter().map(|problem| format!("{problem}\n")).collect();
    match report.problems.len() {
        0 => text += "sound",
        1 => text += "1 problem",
        problems => text += &format!("{} problems", count(problems as u64)),
    }
    let (versions, files, bytes) = (count(report.num_versions), count(report.num_files), megabytes(report.num_bytes));
    let (runs, steps, version) = (count(report.num_runs), count(report.num_steps), report.version);
    text +=
        &format!(": {versions} versions, {files} files ({bytes}), {runs} runs and {steps} steps at version {version}");
    if report.unnamed_files > 0 {
        let files = count(report.unnamed_files);
        text +=
            &format!("\nunreferenced files: {files}; `expire` removes them, except the one with the highest run ids");
    }
    status_after(print_report(args.work.json, &report, [], &text), u8::from(!report.problems.is_empty()))
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<u8> {
    let (storage, cancel) = (StorageOptions::default(), interrupt()?);
    let report = Archive::restore(&args.archive, args.version.clone(), args.dry_run, &storage, &cancel)?;
    if args.json {
        return print_json(&report, []);
    }
    let mut out = std::io::stdout().lock();
    let (adopted, removed) =
        if args.dry_run { ("would be adopted", "would be removed") } else { ("adopted", "removed") };
    for path in &report.adopted {
        writeln!(out, "{path}: {adopted}, because no manifest lists it")?;
    }
    for path in &report.lost {
        writeln!(out, "{path}: gone or truncated, so the new version does not have these annotations")?;
    }
    for path in &report.damaged {
        writeln!(out, "{path}: {removed}, because it is damaged")?;
    }
    let (version, runs) = (report.version, count(report.adopted_runs));
    match report.new_version {
        None => writeln!(
            out,
            "nothing to restore: version {version} is the newest and has all of its files; `verify` checks their content"
        )?,
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
    if args.json {
        return print_json(&tags, []);
    }
    let mut out = std::io::stdout().lock();
    for (name, version) in &tags {
        writeln!(out, "{version:>7}  {name}")?;
    }
    Ok(0)
}

pub(crate) fn compact(args: &CompactArgs, quiet: bool) -> Result<u8> {
    let mut options = CompactOptions::default();
    options.file_rows = args.file_rows;
    options.workers = args.work.workers;
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
    print_report(args.work.json, &report, [("version", json!(version))], &text)
}

pub(crate) fn expire(args: &ExpireArgs) -> Result<u8> {
    let dry_run = !args.yes;
    let mut archive = Archive::open(&args.archive)?;
    let mut options = ExpireOptions::default();
    (options.older_than, options.grace, options.dry_run) = (args.older_than, args.grace, dry_run);
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
