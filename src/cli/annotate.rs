//! The subcommand `annotate`.

use super::args::AnnotateArgs;
use super::exit::UsageError;
use super::print::{count, megabytes, print_json};
use super::progress::{Interrupt, progress};
use crate::{AnnotateOptions, AnnotationInput, Archive};
use anyhow::{Result, bail};
use serde_json::json;
use std::io::Write;

pub(super) fn annotate(args: &AnnotateArgs, quiet: bool) -> Result<u8> {
    let mut archive = Archive::open(&args.archive)?;
    let options = AnnotateOptions {
        source: args.source.clone(),
        replace: args.replace,
        partial: args.partial,
        dry_run: args.dry_run,
        wait: args.wait,
    };
    match (&args.model, &args.annotations) {
        (None, _) if args.drop => bail!(UsageError("--drop: expected a model".into())),
        (None, _) => list(&archive, args.json),
        (Some(model), None) if args.drop => {
            let dropped = archive.drop_annotations(model, &options, Interrupt::new()?.token())?;
            if args.json {
                let extra = [("version", json!(archive.version())), ("dry_run", json!(args.dry_run))];
                print_json(&dropped, extra)?;
                return Ok(0);
            }
            let verb = if args.dry_run { "would be dropped" } else { "dropped" };
            let (rows, version) = (count(dropped.num_rows), archive.version());
            writeln!(std::io::stdout().lock(), "{model}: {rows} annotated steps {verb}, version {version}")?;
            Ok(0)
        }
        (Some(_), None) => bail!(UsageError("expected a folder of annotations, or --drop".into())),
        (Some(model), Some(folder)) => {
            let input = AnnotationInput::Folder(folder);
            let report = archive.annotate(model, input, &options, &*progress(quiet), Interrupt::new()?.token())?;
            if args.json {
                print_json(&report, [("version", json!(archive.version())), ("dry_run", json!(args.dry_run))])?;
                return Ok(0);
            }
            let verb = if args.dry_run { "would be annotated" } else { "annotated" };
            writeln!(
                std::io::stdout().lock(),
                "{model}: {} steps of {} runs {verb} ({} replaced, {} without annotations), version {}",
                count(report.num_rows),
                count(report.num_runs),
                count(report.replaced_rows),
                count(report.missing_steps),
                archive.version(),
            )?;
            Ok(0)
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
