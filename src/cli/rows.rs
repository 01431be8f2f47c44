//! Query rows as a table, CSV, JSON, Parquet or Arrow.

use super::print::count;
use super::query_args::RowFormat;
use super::table::table;
use super::terminal::Look;
use crate::error::Error;
use crate::publish::Destination;
use crate::query::QueryStream;
use anyhow::Result;
use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a query's rows to a file or to standard output.
pub(super) fn write(rows: QueryStream, format: RowFormat, path: Option<&Path>, max_rows: usize) -> Result<()> {
    match path {
        Some(path) => {
            let look = Look::default();
            into(path, |file| write_to(rows, format, BufWriter::new(file), max_rows, look).map(|()| 0))?;
            Ok(())
        }
        None => {
            let mut stdout = Stdout { closed: false };
            match write_to(rows, format, BufWriter::new(&mut stdout), max_rows, Look::of_stdout()) {
                Err(_) if stdout.closed => Ok(()),
                outcome => outcome,
            }
        }
    }
}

/// Calls `write` with a new file for `path` and returns the exit status of `write`.
///
/// With status 0 the complete new file replaces an existing one. Otherwise the existing file stays.
pub(super) fn into(path: &Path, write: impl FnOnce(&File) -> Result<u8>) -> Result<u8> {
    let (path, folder) = match Destination::of(path)? {
        Destination::File { path, folder } => (path, folder),
        Destination::Stream(path) => {
            let file = File::options().write(true).open(&path).map_err(|source| Error::io(&path, source))?;
            return write(&file);
        }
    };
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder).map_err(|source| Error::io(&path, source))?;
    let status = write(file.as_file())?;
    if status == 0 {
        file.persist(&path).map_err(|error| Error::io(&path, error.error))?;
    }
    Ok(status)
}

/// Standard output with a flag for a closed pipe.
///
/// The writers of some formats turn the I/O error into text, so the error itself cannot be recognized afterwards.
struct Stdout {
    closed: bool,
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).inspect_err(|error| self.closed |= error.kind() == io::ErrorKind::BrokenPipe)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().inspect_err(|error| self.closed |= error.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn write_to(
    rows: QueryStream,
    format: RowFormat,
    mut out: impl Write + Send,
    max_rows: usize,
    look: Look,
) -> Result<()> {
    let schema = rows.schema();
    match format {
        RowFormat::Table => write_table(rows, &mut out, max_rows, look)?,
        RowFormat::Csv => {
            let mut writer = arrow::csv::Writer::new(&mut out);
            writer.write(&RecordBatch::new_empty(schema))?;
            for batch in rows {
                writer.write(&batch?)?;
            }
        }
        RowFormat::Json => {
            let mut writer = arrow::json::LineDelimitedWriter::new(&mut out);
            for batch in rows {
                writer.write(&batch?)?;
            }
            writer.finish()?;
        }
        RowFormat::Parquet => {
            let mut writer = ArrowWriter::try_new(&mut out, schema, None)?;
            for batch in rows {
                writer.write(&batch?)?;
            }
            writer.close()?;
        }
        RowFormat::Arrow => {
            let mut writer = arrow::ipc::writer::StreamWriter::try_new(&mut out, &schema)?;
            for batch in rows {
                writer.write(&batch?)?;
            }
            writer.finish()?;
        }
    }
    out.flush()?;
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
    Ok(())
}

/// Returns each row as a JSON object.
pub(super) fn json_rows(batches: &[RecordBatch]) -> Result<Vec<serde_json::Value>> {
    let mut text = Vec::new();
    let mut writer = arrow::json::LineDelimitedWriter::new(&mut text);
    for batch in batches {
        writer.write(batch)?;
    }
    writer.finish()?;
    text.split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| Ok(serde_json::from_slice(line)?))
        .collect()
}
