//! The subcommand `annotate`.

use crate::exit::UsageError;
use crate::print::{count, megabytes, print_report};
use crate::progress::{interrupt, progress};
use a2store::Archive;
use a2store::archive::{AnnotateOptions, AnnotationInput};
use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

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
    #[arg(long)]
    replace: bool,
    /// Allow steps without annotations in annotated runs.
    #[arg(long)]
    partial: bool,
    /// Drop the model's annotations.
    #[arg(long, conflicts_with_all = ["annotations", "replace", "partial"])]
    drop: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn annotate(args: &AnnotateArgs, quiet: bool) -> Result<u8> {
    let mut archive = Archive::open(&args.archive)?;
    let mut options = AnnotateOptions::default();
    options.replace = args.replace;
    options.partial = args.partial;
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
    let mut out = std::io::stdout().lock();
    if is_json {
        writeln!(out, "{}", serde_json::to_string(&models)?)?;
        return Ok(0);
    }
    for model in models {
        let (rows, bytes) = (count(model.num_rows), megabytes(model.num_bytes));
        let (first, last) = (model.first_run_id, model.last_run_id);
        writeln!(out, "{}: {rows} annotated steps of runs {first}..={last} ({bytes})", model.model)?;
    }
    Ok(0)
}
