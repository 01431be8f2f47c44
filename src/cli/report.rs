//! The subcommand `report`.

use super::args::ReportArgs;
use super::open::{check_outside, check_overwrite, local_folder, open};
use super::print::{megabytes, path_text};
use super::progress::{Interrupt, progress};
use super::terminal::print_warning;
use crate::ReportOptions;
use anyhow::Result;
use std::time::Instant;

pub(super) fn report(args: &ReportArgs, quiet: bool) -> Result<u8> {
    let archive = open(&args.archive, args.version, None)?;
    if let Some(folder) = local_folder(&args.archive) {
        check_outside(&args.output, &folder)?;
    }
    check_overwrite(&args.output, args.overwrite)?;
    let interrupt = Interrupt::new()?;
    let started = Instant::now();
    let compare = args.compare.as_ref().and_then(|groups| <[String; 2]>::try_from(groups.clone()).ok());
    let mut options = ReportOptions::default().with_groups(args.by);
    (options.condition, options.compare) = (args.condition.clone(), compare);
    let report = archive.report(&options, &*progress(quiet), interrupt.token())?;
    report.save(&args.output)?;
    if quiet {
        return Ok(0);
    }
    for table in &report.tables {
        if let Err(reason) = &table.rows {
            print_warning("a2store", &format!("table {} is left out: {reason}", table.key));
        }
    }
    let bytes = std::fs::metadata(&args.output)?.len();
    let seconds = started.elapsed().as_secs_f64();
    println!("{}: {} tables, {} in {seconds:.1} s", path_text(&args.output), report.tables.len(), megabytes(bytes));
    Ok(0)
}
