//! The formats of a file of rows: CSV, JSON Lines, Parquet, Arrow IPC.

use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::query::output::conform::conform;
use crate::query::output::stream::QueryStream;
use crate::system::cancellation::CancellationToken;
use arrow::array::{RecordBatch, RecordBatchWriter};
use arrow::datatypes::{DataType, FieldRef, Fields, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::json::writer::LineDelimited;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

/// The format of a file of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum RowFormat {
    /// Text, with the names of the columns in the first line.
    Csv,
    /// One JSON object per line. NaN and infinities are null.
    Json,
    /// Parquet, compressed with zstd.
    Parquet,
    /// The Arrow IPC file format. It has no dictionaries.
    ArrowFile,
    /// The Arrow IPC stream format.
    ArrowStream,
}

impl RowFormat {
    /// Returns the end of the names of such files.
    pub(in crate::query) fn extension(self) -> &'static str {
        match self {
            RowFormat::Csv => "csv",
            RowFormat::Json => "jsonl",
            RowFormat::Parquet => "parquet",
            RowFormat::ArrowFile => "arrow",
            RowFormat::ArrowStream => "arrows",
        }
    }
}

impl QueryStream {
    /// Writes all rows, and returns their number.
    ///
    /// # Errors
    /// Those of the query, and [`ErrorKind::Io`](crate::ErrorKind::Io) without a path for those of `out`.
    pub fn write_to(self, format: RowFormat, out: impl Write + Send, cancel: &CancellationToken) -> Result<u64> {
        let mut out = FirstError { inner: BufWriter::new(out), error: None };
        let written = self.write_all(format, &mut out, cancel);
        if written.is_ok() {
            let flushed = out.inner.flush();
            let _ = out.keep(flushed);
        }
        let FirstError { inner, error } = out;
        // After an error, the buffer is dropped unwritten, so that a caller can write the error instead.
        let _ = inner.into_parts();
        error.map_or(written, |error| Err(error.into()))
    }

    fn write_all(mut self, format: RowFormat, mut out: impl Write + Send, cancel: &CancellationToken) -> Result<u64> {
        let schema = self.schema();
        let num_rows = match format {
            RowFormat::Csv => {
                let mut writer = arrow::csv::Writer::new(&mut out);
                writer.write(&RecordBatch::new_empty(Arc::clone(&schema))).map_err(of_arrow)?;
                self.write_with(writer, None, cancel)?
            }
            RowFormat::Json => {
                let nulls = arrow::json::WriterBuilder::new().with_explicit_nulls(true);
                self.write_with(nulls.build::<_, LineDelimited>(&mut out), None, cancel)?
            }
            RowFormat::Parquet => {
                let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default()));
                let writer = ArrowWriter::try_new(&mut out, schema, Some(properties.build()));
                let mut writer = writer.map_err(of_parquet)?;
                let mut num_rows = 0;
                // As a `RecordBatchWriter`, it would turn errors of `out` into text.
                while let Some(batch) = self.next_batch(cancel)? {
                    num_rows += batch.num_rows() as u64;
                    writer.write(&batch).map_err(of_parquet)?;
                }
                writer.close().map_err(of_parquet)?;
                num_rows
            }
            RowFormat::ArrowFile => {
                // A file has one dictionary per column, but each batch of a result has its own.
                let fields: Fields = schema.fields().iter().map(decoded).collect();
                let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
                let writer = FileWriter::try_new(&mut out, &schema).map_err(of_arrow)?;
                self.write_with(writer, Some(&schema), cancel)?
            }
            RowFormat::ArrowStream => {
                let writer = StreamWriter::try_new(&mut out, &schema).map_err(of_arrow)?;
                self.write_with(writer, None, cancel)?
            }
        };
        Ok(num_rows)
    }

    /// Writes all rows, with the types of another schema if there is one, and returns their number.
    fn write_with(
        &mut self,
        mut writer: impl RecordBatchWriter,
        schema: Option<&SchemaRef>,
        cancel: &CancellationToken,
    ) -> Result<u64> {
        let mut num_rows = 0;
        while let Some(batch) = self.next_batch(cancel)? {
            num_rows += batch.num_rows() as u64;
            let batch = schema.map_or(Ok(batch.clone()), |schema| conform(batch, schema));
            batch.and_then(|batch| writer.write(&batch)).map_err(of_arrow)?;
        }
        writer.close().map_err(of_arrow)?;
        Ok(num_rows)
    }
}

/// Returns a column of the same values without dictionaries.
fn decoded(field: &FieldRef) -> FieldRef {
    fn plain(dtype: &DataType) -> DataType {
        match dtype {
            DataType::Dictionary(_, values) => plain(values),
            DataType::List(item) => DataType::List(decoded(item)),
            DataType::LargeList(item) => DataType::LargeList(decoded(item)),
            DataType::FixedSizeList(item, len) => DataType::FixedSizeList(decoded(item), *len),
            DataType::Struct(fields) => DataType::Struct(fields.iter().map(decoded).collect()),
            other => other.clone(),
        }
    }
    Arc::new(field.as_ref().clone().with_data_type(plain(field.data_type())))
}

fn of_arrow(error: ArrowError) -> Error {
    query_error(error.into())
}

fn of_parquet(error: ParquetError) -> Error {
    // Otherwise it would be an error about a file that the query reads.
    of_arrow(ArrowError::from_external_error(error.into()))
}

/// A writer that keeps its first error, and is flushed at the end only. The writers of some formats turn errors into
/// text, and flush when they are dropped.
struct FirstError<W: Write> {
    inner: BufWriter<W>,
    error: Option<io::Error>,
}

impl<W: Write> FirstError<W> {
    fn keep<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.inspect_err(|error| {
            let copy = || error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
            if error.kind() != io::ErrorKind::Interrupted {
                self.error.get_or_insert_with(copy);
            }
        })
    }
}

impl<W: Write> Write for FirstError<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = self.inner.write(bytes);
        self.keep(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
