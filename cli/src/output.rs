//! What commands print: reports and query rows on standard output, errors and warnings on standard error.

use a2store::query::{Preview, QueryStream, RowFormat};
use a2store::system::cancellation::CancellationToken;
use a2store::system::publish::Output;
use anyhow::Result;
use clap::ValueEnum;
use console::{Term, style, truncate_str};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};
use std::path::Path;

/// Prints a report as one line of JSON with sorted keys, and returns the exit status 0. `extra` adds fields or replaces
/// them.
pub(crate) fn print_json<'a>(report: &impl Serialize, extra: impl IntoIterator<Item = (&'a str, Value)>) -> Result<u8> {
    let mut json = serde_json::to_value(report)?;
    for (name, value) in extra {
        json[name] = value;
    }
    writeln!(io::stdout().lock(), "{json}")?;
    Ok(0)
}

/// Prints a report as JSON or as lines of text, and returns the exit status 0.
pub(crate) fn print_report<'a>(
    is_json: bool,
    report: &impl Serialize,
    extra: impl IntoIterator<Item = (&'a str, Value)>,
    text: &str,
) -> Result<u8> {
    if is_json {
        return print_json(report, extra);
    }
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(0)
}

/// Formats a number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Formats a number of bytes with a decimal unit.
pub(crate) fn megabytes(bytes: u64) -> String {
    indicatif::DecimalBytes(bytes).to_string()
}

/// Formats `number` per second, rounded to the precision of such a measurement.
pub(crate) fn rate(number: u64, secs: f64) -> String {
    match number as f64 / secs.max(1e-9) {
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.0}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Cuts each line at the width of the terminal. Returns the whole text if standard output is no terminal.
pub(crate) fn fitted(text: &str) -> String {
    let width = Term::stdout().size_checked().map_or(usize::MAX, |(_, columns)| usize::from(columns));
    text.lines().map(|line| truncate_str(line, width, "…")).collect::<Vec<_>>().join("\n")
}

/// Prints an error on standard error, after the name of the command.
pub(crate) fn print_error(name: &str, error: impl std::fmt::Display) {
    print_on_stderr(format_args!("{} {error}", style(format_args!("{name}:")).red().bold().for_stderr()));
}

/// Prints a warning on standard error, after the name of the command.
pub(crate) fn print_warning(name: &str, warning: &str) {
    print_on_stderr(format_args!("{name}: {} {warning}", style("warning:").yellow().bold().for_stderr()));
}

/// Prints a line on standard error. Ignores a failure, because the work does not need the line.
pub(crate) fn print_on_stderr(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A format of query rows. The endings of its files are its name and its aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    #[value(alias = "txt")]
    Table,
    Csv,
    #[value(aliases = ["jsonl", "ndjson"])]
    Json,
    Parquet,
    #[value(alias = "arrows")]
    Arrow,
}

/// Writes a query's rows to a file or to standard output. The complete file replaces an existing one.
pub(crate) fn write_rows(rows: QueryStream, format: OutputFormat, path: Option<&Path>, max_rows: usize) -> Result<()> {
    let is_arrow_file = path.and_then(Path::extension).is_some_and(|ending| ending.eq_ignore_ascii_case("arrow"));
    let format = match format {
        OutputFormat::Table => None,
        OutputFormat::Csv => Some(RowFormat::Csv),
        OutputFormat::Json => Some(RowFormat::Json),
        OutputFormat::Parquet => Some(RowFormat::Parquet),
        OutputFormat::Arrow if is_arrow_file => Some(RowFormat::ArrowFile),
        OutputFormat::Arrow => Some(RowFormat::ArrowStream),
    };
    if let Some(path) = path {
        let output = Output::create(path)?;
        write_to(rows, format, output.file(), max_rows, str::to_owned).map_err(|error| error.with_path(path))?;
        return Ok(output.publish()?);
    }
    Ok(write_to(rows, format, io::stdout(), max_rows, fitted)?)
}

/// Writes rows in a format, or as a table. `fit` shortens the lines of a table.
fn write_to(
    rows: QueryStream,
    format: Option<RowFormat>,
    mut out: impl Write + Send,
    max_rows: usize,
    fit: fn(&str) -> String,
) -> Result<(), a2store::Error> {
    if let Some(format) = format {
        rows.write_to(format, out, CancellationToken::never())?;
        return Ok(());
    }
    let table = Preview::of_batches(rows.schema(), rows, max_rows)?;
    writeln!(out, "{}", fit(&table.to_string()))?;
    Ok(out.flush()?)
}
