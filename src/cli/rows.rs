//! Query rows as a table, CSV, JSON, Parquet or Arrow.

use super::terminal::fitted;
use crate::cancellation::CancellationToken;
use crate::publish::Output;
use crate::query::{FirstError, Preview, QueryStream, RowFormat};
use anyhow::Result;
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
                    rows.write_to(RowFormat::ArrowFile, output.file(), CancellationToken::never())?;
                }
                format => write_to(rows, format, output.file(), max_rows, str::to_owned)?,
            }
            Ok(output.publish()?)
        }
        None => {
            let mut stdout = FirstError::new(io::stdout());
            match write_to(rows, format, &mut stdout, max_rows, fitted) {
                Err(_) if stdout.kind() == Some(io::ErrorKind::BrokenPipe) => Ok(()),
                outcome => outcome,
            }
        }
    }
}

/// Writes rows. `fit` shortens the lines of a table.
fn write_to(
    rows: QueryStream,
    format: OutputFormat,
    mut out: impl Write + Send,
    max_rows: usize,
    fit: fn(&str) -> String,
) -> Result<()> {
    let format = match format {
        OutputFormat::Table => {
            let table = Preview::of_batches(rows.schema(), rows, max_rows)?;
            writeln!(out, "{}", fit(&table.to_string()))?;
            return Ok(out.flush()?);
        }
        OutputFormat::Csv => RowFormat::Csv,
        OutputFormat::Json => RowFormat::Json,
        OutputFormat::Parquet => RowFormat::Parquet,
        OutputFormat::Arrow => RowFormat::ArrowStream,
    };
    rows.write_to(format, out, CancellationToken::never())?;
    Ok(())
}
