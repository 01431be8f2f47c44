//! Query rows as a table, CSV, JSON, Parquet or Arrow.

use super::terminal::fitted;
use a2store::query::{FirstError, Preview, QueryStream, RowFormat};
use a2store::system::cancellation::CancellationToken;
use a2store::system::publish::Output;
use anyhow::Result;
use clap::ValueEnum;
use std::io::{self, Write};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Csv,
    Json,
    Parquet,
    Arrow,
}

/// Writes a query's rows to a file or to standard output. The complete file replaces an existing one.
pub(crate) fn write(rows: QueryStream, format: OutputFormat, path: Option<&Path>, max_rows: usize) -> Result<()> {
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
        write_to(rows, format, output.file(), max_rows, str::to_owned)?;
        return Ok(output.publish()?);
    }
    let mut stdout = FirstError::new(io::stdout());
    match write_to(rows, format, &mut stdout, max_rows, fitted) {
        Err(_) if stdout.kind() == Some(io::ErrorKind::BrokenPipe) => Ok(()),
        outcome => outcome,
    }
}

/// Writes rows in a format, or as a table. `fit` shortens the lines of a table.
fn write_to(
    rows: QueryStream,
    format: Option<RowFormat>,
    mut out: impl Write + Send,
    max_rows: usize,
    fit: fn(&str) -> String,
) -> Result<()> {
    if let Some(format) = format {
        rows.write_to(format, out, CancellationToken::never())?;
        return Ok(());
    }
    let table = Preview::of_batches(rows.schema(), rows, max_rows)?;
    writeln!(out, "{}", fit(&table.to_string()))?;
    Ok(out.flush()?)
}
