//! Query rows as a table, CSV, JSON, Parquet or Arrow.

use super::print::count;
use super::table::table;
use super::terminal::Look;
use crate::cancellation::CancellationToken;
use crate::publish::Output;
use crate::query::{FirstError, QueryStream, RowFormat};
use anyhow::Result;
use arrow::array::RecordBatch;
use clap::ValueEnum;
use std::io::{self, Write};
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    Table,
    Csv,
    Json,
    Parquet,
    Arrow,
}

/// Writes a query's rows to a file or to standard output. The complete file replaces an existing one.
pub(super) fn write(rows: QueryStream, format: OutputFormat, path: Option<&Path>, max_rows: usize) -> Result<()> {
    match path {
        Some(path) => {
            let output = Output::create(path)?;
            match format {
                OutputFormat::Arrow if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("arrow")) => {
                    rows.write_to(&RowFormat::ArrowFile.into(), output.file(), CancellationToken::never())?;
                }
                format => write_to(rows, format, output.file(), max_rows, Look::default())?,
            }
            Ok(output.publish()?)
        }
        None => {
            let mut stdout = FirstError::new(io::stdout());
            match write_to(rows, format, &mut stdout, max_rows, Look::of_stdout()) {
                Err(_) if stdout.kind() == Some(io::ErrorKind::BrokenPipe) => Ok(()),
                outcome => outcome,
            }
        }
    }
}

fn write_to(
    rows: QueryStream,
    format: OutputFormat,
    mut out: impl Write + Send,
    max_rows: usize,
    look: Look,
) -> Result<()> {
    let format = match format {
        OutputFormat::Table => return write_table(rows, &mut out, max_rows, look),
        OutputFormat::Csv => RowFormat::Csv,
        OutputFormat::Json => RowFormat::Json,
        OutputFormat::Parquet => RowFormat::Parquet,
        OutputFormat::Arrow => RowFormat::ArrowStream,
    };
    rows.write_to(&format.into(), out, CancellationToken::never())?;
    Ok(())
}

fn write_table(rows: QueryStream, out: &mut impl Write, max_rows: usize, look: Look) -> Result<()> {
    let mut shown = vec![RecordBatch::new_empty(rows.schema())];
    let mut num_shown = 0;
    let mut num_rows = 0;
    for batch in rows {
        let batch = batch?;
        let take = batch.num_rows().min(max_rows - num_shown);
        if take > 0 {
            shown.push(batch.slice(0, take));
            num_shown += take;
        }
        num_rows += batch.num_rows() as u64;
    }
    let num_columns = shown.first().map_or(0, RecordBatch::num_columns);
    let table = table(&shown, look)?;
    writeln!(out, "{}", table.text)?;
    let more = if num_rows > num_shown as u64 { format!(", the first {num_shown} shown") } else { String::new() };
    let hidden = match table.num_hidden {
        0 => String::new(),
        hidden => format!("; {num_columns} columns, {} shown", num_columns - hidden),
    };
    writeln!(out, "{} {}{more}{hidden}", count(num_rows), if num_rows == 1 { "row" } else { "rows" })?;
    out.flush()?;
    Ok(())
}
