//! The subcommand `report`.

use crate::open::{ArchiveArgs, check_output};
use crate::print::megabytes;
use crate::progress::{interrupt, progress};
use crate::terminal::print_warning;
use crate::values::report_groups;
use a2store_explore::{Report, ReportGroups, ReportOptions};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    archive: ArchiveArgs,
    /// The file to write.
    #[arg(short, long, default_value = "report.html")]
    output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    overwrite: bool,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    /// The groups of runs to compare. For recordings and sessions, the engine is the tag of the model.
    #[arg(long, value_name = "GROUPS", default_value = "engine", value_parser = report_groups())]
    by: ReportGroups,
    /// Compare these two groups only.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    compare: Option<Vec<String>>,
}

pub(crate) fn report(args: &ReportArgs, quiet: bool) -> Result<u8> {
    let archive = args.archive.open()?;
    check_output(&args.output, args.overwrite, &archive)?;
    let cancel = interrupt()?;
    let started = Instant::now();
    let compare = args.compare.as_ref().and_then(|groups| <[String; 2]>::try_from(groups.clone()).ok());
    let mut options = ReportOptions::default().with_groups(args.by);
    (options.condition, options.compare) = (args.condition.clone(), compare);
    let report = Report::of(&archive, &options, &*progress(quiet), &cancel)?;
    report.save(&args.output)?;
    if quiet {
        return Ok(0);
    }
    for table in &report.tables {
        if let Err(reason) = &table.rows {
            print_warning("a2store", &format!("table {} is left out: {reason}", table.query));
        }
    }
    let bytes = std::fs::metadata(&args.output)?.len();
    let seconds = started.elapsed().as_secs_f64();
    println!("{}: {} tables, {} in {seconds:.1} s", args.output.display(), report.tables.len(), megabytes(bytes));
    Ok(0)
}
