//! Parquet files as an archive writes them.
//!
//! The encodings follow the data: boards and expected values have high-entropy low bytes and shared high ones, so their
//! bytes are split into streams; ids climb by small steps, so they are stored as differences; everything else repeats,
//! so it goes through a dictionary. zstd 1 on top. Row groups hold whole runs.

use super::TableName;
use super::log::DataFile;
use super::publish::Staged;
use super::schema::{SCHEMA_VERSION, arrow_error, table_schema};
use crate::error::{Error, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;
use std::io::{self, Write};
use std::path::Path;

/// Rows of `steps` from which a row group is full. Readers work on row groups in parallel and hold one in memory.
pub(super) const ROW_GROUP_STEPS: usize = 1 << 19;
/// Rows of `steps` from which a file is full.
pub(super) const FILE_STEPS: u64 = 1 << 24;

/// A Parquet file of one table that is being written.
pub(super) struct TableWriter<'a> {
    root: &'a Path,
    table: TableName,
    writer: SerializedFileWriter<Summed<Staged>>,
    encoder: RowGroupEncoder,
    num_rows: u64,
    run_ids: Option<(u32, u32)>,
}

/// Turns batches into the column chunks of a row group, on any thread.
pub(super) struct RowGroupEncoder(ArrowRowGroupWriterFactory);

/// A row group that is encoded and not yet in a file.
pub(super) struct EncodedRowGroup {
    chunks: Vec<ArrowColumnChunk>,
    num_rows: u64,
    run_ids: (u32, u32),
}

impl<'a> TableWriter<'a> {
    pub(super) fn new(root: &'a Path, table: TableName) -> Result<Self> {
        let (writer, encoder) = serialized_writer(table, Summed::new(Staged::new(&root.join(table.name()))?))?;
        Ok(Self { root, table, writer, encoder, num_rows: 0, run_ids: None })
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    pub(super) fn encoder(&self) -> &RowGroupEncoder {
        &self.encoder
    }

    pub(super) fn append(&mut self, group: EncodedRowGroup) -> Result<()> {
        let mut row_group = self.writer.next_row_group().map_err(parquet_error)?;
        for chunk in group.chunks {
            chunk.append_to_row_group(&mut row_group).map_err(parquet_error)?;
        }
        row_group.close().map_err(parquet_error)?;
        self.num_rows += group.num_rows;
        let (first, last) = group.run_ids;
        self.run_ids = Some(self.run_ids.map_or((first, last), |(before, _)| (before, last)));
        Ok(())
    }

    /// Ends the file and publishes it under the hash of its bytes. No commit names it yet.
    pub(super) fn finish(self) -> Result<Option<DataFile>> {
        let Some((first_run_id, last_run_id)) = self.run_ids else {
            return Ok(None);
        };
        let summed = self.writer.into_inner().map_err(parquet_error)?;
        let hash = summed.hash.finalize().to_hex();
        let path = format!("{}/{}.parquet", self.table.name(), &hash[..32]);
        // A file of this name has these bytes: an earlier attempt left it.
        summed.inner.publish(&self.root.join(&path))?;
        Ok(Some(DataFile {
            table: self.table,
            path,
            num_rows: self.num_rows,
            num_bytes: summed.num_bytes,
            crc32c: format!("{:08x}", summed.crc),
            first_run_id,
            last_run_id,
        }))
    }
}

impl RowGroupEncoder {
    /// Encodes rows that begin with a column `run_id`, ascending; there must be at least one. The columns are encoded
    /// in parallel.
    pub(super) fn encode(&self, batch: &RecordBatch) -> Result<EncodedRowGroup> {
        let run_ids = batch.column(0).as_primitive::<UInt32Type>().values();
        let run_ids = (run_ids[0], run_ids[run_ids.len() - 1]);
        let writers = self.0.create_column_writers(0).map_err(parquet_error)?;
        let schema = batch.schema();
        let chunks = writers
            .into_par_iter()
            .zip(batch.columns())
            .zip(&schema.fields()[..])
            .map(|((mut writer, column), field)| {
                for leaf in compute_leaves(field, column)? {
                    writer.write(&leaf)?;
                }
                writer.close()
            })
            .collect::<Result<_, ParquetError>>()
            .map_err(parquet_error)?;
        Ok(EncodedRowGroup { chunks, num_rows: batch.num_rows() as u64, run_ids })
    }
}

fn serialized_writer<W: Write + Send>(
    table: TableName,
    inner: W,
) -> Result<(SerializedFileWriter<W>, RowGroupEncoder)> {
    let options = ArrowWriterOptions::new().with_properties(properties(table));
    let writer = ArrowWriter::try_new_with_options(inner, table_schema(table), options).map_err(parquet_error)?;
    let (writer, factory) = writer.into_serialized_writer().map_err(parquet_error)?;
    Ok((writer, RowGroupEncoder(factory)))
}

fn properties(table: TableName) -> WriterProperties {
    let ascending = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
    let (split, delta, sorted): (&[&str], &[&str], _) = match table {
        TableName::Runs => (&["final_board"], &["run_id"], vec![ascending(0)]),
        TableName::Steps => (
            &["board", "ev_up", "ev_down", "ev_left", "ev_right"],
            &["run_id", "step_index"],
            vec![ascending(0), ascending(1)],
        ),
    };
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("a2store ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(None)
        .set_sorting_columns(Some(sorted))
        .set_key_value_metadata(Some(vec![KeyValue::new("a2store.schema_version".into(), SCHEMA_VERSION.to_string())]));
    for (columns, encoding) in [(split, Encoding::BYTE_STREAM_SPLIT), (delta, Encoding::DELTA_BINARY_PACKED)] {
        for &column in columns {
            let path = ColumnPath::from(column);
            properties =
                properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
        }
    }
    properties.build()
}

/// A writer that keeps length, CRC32C and hash of what goes through it.
struct Summed<W> {
    inner: W,
    num_bytes: u64,
    crc: u32,
    hash: blake3::Hasher,
}

impl<W> Summed<W> {
    fn new(inner: W) -> Self {
        Self { inner, num_bytes: 0, crc: 0, hash: blake3::Hasher::new() }
    }
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        let bytes = &bytes[..written];
        self.num_bytes += written as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.hash.update(bytes);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::ArrowError(message) => Error::from(io::Error::other(message)),
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => Error::from(*source),
            Err(source) => Error::from(io::Error::other(source)),
        },
        other => arrow_error(other.into()),
    }
}
