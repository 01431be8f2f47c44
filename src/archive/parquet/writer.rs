//! The Parquet writer: encodings, row groups and files.
//!
//! Each column has the encoding that suits its data:
//!
//! - Boards have random low bytes and similar high bytes, so their bytes are split into streams.
//! - Ids ascend in small steps, so their differences are stored.
//! - Expected values are stored plain, because some of them recur as a whole.
//! - All other columns repeat values and use a dictionary.
//!
//! All pages are compressed with zstd. Row groups hold whole runs. docs/design.md has the alternatives that
//! were measured.

use super::reader::check_content;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::schema::{
    ARCHIVE_KEY, MOVE_NAMES, POLICIES, SCHEMA_VERSION, SCHEMA_VERSION_KEY, TXN_KEY, table_schema,
};
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::Staged;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaDataReader, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rayon::prelude::*;
use std::io::{self, Write};
use std::path::Path;

/// The minimum number of rows of a full row group of `steps`. Readers process row groups in parallel, and each thread
/// holds one in memory.
pub(in crate::archive) const ROW_GROUP_STEPS: usize = 1 << 19;
/// The minimum number of rows of a full file of `steps`.
pub(in crate::archive) const FILE_STEPS: u64 = 1 << 24;

/// The zstd level of most columns.
const ZSTD_LEVEL: i32 = 1;
/// The zstd level of boards, which profit most from a higher level.
const BOARD_ZSTD_LEVEL: i32 = 3;
/// The values of `annotations.student_bins` in a file.
const BINS: &str = "student_bins.list.item";
/// The number of written bytes between two syncs of a file. Regular syncs keep the last one short.
const SYNC_BYTES: u64 = 64 << 20;

/// An unfinished Parquet file of one table.
pub(in crate::archive) struct TableWriter {
    table: TableName,
    txn: String,
    writer: SerializedFileWriter<Summed>,
    synced_bytes: u64,
    row_groups: Vec<u64>,
    run_ids: (u32, u32),
    model: Option<String>,
}

/// An encoder that turns batches into the column chunks of a row group, on any thread.
pub(in crate::archive) struct RowGroupEncoder(ArrowRowGroupWriterFactory);

/// An encoded row group that is not yet in a file.
pub(in crate::archive) struct EncodedRowGroup {
    chunks: Vec<ArrowColumnChunk>,
    num_rows: u64,
    run_ids: (u32, u32),
}

impl TableWriter {
    /// Begins a file of the transaction that makes `version`. A file of `annotations` has the rows of one model.
    pub(in crate::archive) fn new(
        storage: &Storage,
        table: TableName,
        version: &Manifest,
        model: Option<&str>,
    ) -> Result<Self> {
        let summed = Summed { staged: Some(storage.stage(table.name())?), ..Summed::default() };
        let (mut writer, _) = serialized_writer(table, summed)?;
        for (key, value) in [(ARCHIVE_KEY, &version.archive_id), (TXN_KEY, &version.txn)] {
            writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value.clone()));
        }
        let (txn, model, row_groups) = (version.txn.clone(), model.map(str::to_owned), Vec::new());
        Ok(Self { table, txn, writer, synced_bytes: 0, row_groups, run_ids: (u32::MAX, 0), model })
    }

    pub(in crate::archive) fn num_rows(&self) -> u64 {
        self.row_groups.iter().sum()
    }

    fn path(&self) -> &Path {
        self.writer.inner().staged.as_ref().map_or(Path::new(""), Staged::path)
    }

    pub(in crate::archive) fn append(&mut self, group: EncodedRowGroup) -> Result<()> {
        self.try_append(group).map_err(|error| error.with_path(self.path()))
    }

    fn try_append(&mut self, group: EncodedRowGroup) -> Result<()> {
        let mut row_group = self.writer.next_row_group().map_err(parquet_error)?;
        for chunk in group.chunks {
            chunk.append_to_row_group(&mut row_group).map_err(parquet_error)?;
        }
        row_group.close().map_err(parquet_error)?;
        self.row_groups.push(group.num_rows);
        self.run_ids = (self.run_ids.0.min(group.run_ids.0), group.run_ids.1);
        let written = self.writer.bytes_written() as u64;
        if written - self.synced_bytes >= SYNC_BYTES {
            self.writer.flush()?;
            self.writer.inner().staged.as_ref().map_or(Ok(()), |staged| staged.file().sync_data())?;
            self.synced_bytes = written;
        }
        Ok(())
    }

    /// Finishes the file, which has a row group, and reads it back. Its name is one that no other transaction uses.
    pub(in crate::archive) fn finish(mut self) -> Result<(Staged, DataFile)> {
        // `into_inner` would finish the file too, but it turns the system's error into text.
        self.writer.finish().map_err(|error| parquet_error(error).with_path(self.path()))?;
        let Summed { staged, num_bytes, crc, hash } = std::mem::take(self.writer.inner_mut());
        let staged = staged.ok_or_else(|| Error::other("the file is finished"))?;
        let file = DataFile {
            table: self.table,
            path: DataFile::new_path(self.table, self.run_ids, &hash.finalize(), &self.txn),
            num_rows: self.num_rows(),
            num_bytes,
            crc32c: format!("{crc:08x}"),
            first_run_id: self.run_ids.0,
            last_run_id: self.run_ids.1,
            model: self.model,
            row_groups: self.row_groups,
        };
        verify_staged(&staged, &file)?;
        Ok((staged, file))
    }
}

/// Reads a file back before it is published. Checks its bytes against the checksum, and the number of rows in
/// its footer.
fn verify_staged(staged: &Staged, file: &DataFile) -> Result<()> {
    check_content(staged.file(), staged.path(), file)?;
    let metadata = ParquetMetaDataReader::new().parse_and_finish(staged.file());
    let metadata = metadata.map_err(|error| parquet_error(error).with_path(staged.path()))?;
    let num_rows = metadata.file_metadata().num_rows();
    if u64::try_from(num_rows) != Ok(file.num_rows) {
        return Err(Error::damaged(staged.path(), "number of rows", file.num_rows, num_rows));
    }
    Ok(())
}

impl RowGroupEncoder {
    pub(in crate::archive) fn new(table: TableName) -> Result<RowGroupEncoder> {
        Ok(serialized_writer(table, io::sink())?.1)
    }

    /// Encodes at least one row, in one or more parts. The first column must be `run_id`, ascending. Each part is
    /// encoded before the next is made, so that it stays in a processor's cache. The columns are encoded in parallel.
    pub(in crate::archive) fn encode(
        &self,
        parts: impl IntoIterator<Item = Result<RecordBatch>>,
        cancel: &CancellationToken,
    ) -> Result<EncodedRowGroup> {
        let mut writers = self.0.create_column_writers(0).map_err(parquet_error)?;
        let (mut num_rows, mut run_ids) = (0, None);
        for part in parts {
            let part = part?;
            let ids = part.column(0).as_primitive::<UInt32Type>().values();
            let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else { continue };
            run_ids = Some((run_ids.map_or(first, |(first, _)| first), last));
            num_rows += part.num_rows() as u64;
            let schema = part.schema();
            writers.par_iter_mut().zip(part.columns()).zip(&schema.fields()[..]).try_for_each(
                |((writer, column), field)| {
                    cancel.check()?;
                    for leaf in compute_leaves(field, column).map_err(parquet_error)? {
                        writer.write(&leaf).map_err(parquet_error)?;
                    }
                    Ok::<_, Error>(())
                },
            )?;
        }
        let run_ids = run_ids.ok_or_else(|| Error::argument("rows", "at least one in a row group", 0))?;
        let chunks = writers.into_par_iter().map(|writer| writer.close().map_err(parquet_error));
        Ok(EncodedRowGroup { chunks: chunks.collect::<Result<_>>()?, num_rows, run_ids })
    }
}

fn serialized_writer<W: Write + Send>(
    table: TableName,
    inner: W,
) -> Result<(SerializedFileWriter<W>, RowGroupEncoder)> {
    let options = ArrowWriterOptions::new().with_properties(properties(table)?);
    let writer = ArrowWriter::try_new_with_options(inner, table_schema(table), options).map_err(parquet_error)?;
    let (writer, factory) = writer.into_serialized_writer().map_err(parquet_error)?;
    Ok((writer, RowGroupEncoder(factory)))
}

fn properties(table: TableName) -> Result<WriterProperties> {
    let ascending = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
    let (split, delta, plain, sorted): (&[&str], &[&str], &[&str], _) = match table {
        TableName::Runs => (&["final_board"], &["run_id"], &["digest", "game", "original"], vec![ascending(0)]),
        TableName::Steps => (
            &["board"],
            &["run_id", "step_index"],
            &["ev_up", "ev_down", "ev_left", "ev_right"],
            vec![ascending(0), ascending(1)],
        ),
        TableName::Annotations => {
            (&[], &["run_id", "step_index"], &["argmax_prob", BINS], vec![ascending(0), ascending(1)])
        }
    };
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("a2store ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(zstd(ZSTD_LEVEL)?)
        .set_max_row_group_row_count(None)
        .set_sorting_columns(Some(sorted))
        .set_key_value_metadata(Some(vec![KeyValue::new(SCHEMA_VERSION_KEY.into(), SCHEMA_VERSION.to_string())]));
    for (columns, encoding) in
        [(split, Encoding::BYTE_STREAM_SPLIT), (delta, Encoding::DELTA_BINARY_PACKED), (plain, Encoding::PLAIN)]
    {
        for &column in columns {
            let path = column_path(column);
            properties =
                properties.set_column_dictionary_enabled(path.clone(), false).set_column_encoding(path, encoding);
        }
    }
    for &column in split {
        properties = properties.set_column_compression(ColumnPath::from(column), zstd(BOARD_ZSTD_LEVEL)?);
    }
    // Statistics of these columns help no filter: every page has all moves and masks, almost random boards, and
    // values between 0 and 1. Computing them would take a tenth of the time of an ingest. Bounds of floats, such as
    // `elapsed_s`, leave out NaN, so that a filter would lose rows.
    for policy in POLICIES {
        for name in MOVE_NAMES {
            let path = ColumnPath::from(format!("{policy}_{name}"));
            properties = properties.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
    }
    for &column in split.iter().chain(plain).chain(&["step_index", "move", "ev_legal", "has_evs", "elapsed_s"]) {
        properties = properties.set_column_statistics_enabled(column_path(column), EnabledStatistics::None);
    }
    Ok(properties.build())
}

fn zstd(level: i32) -> Result<Compression> {
    // Unit tests do not compress: simulated histories write very many tiny files, and would spend most of their time on
    // contexts of zstd.
    if cfg!(test) {
        return Ok(Compression::UNCOMPRESSED);
    }
    Ok(Compression::ZSTD(ZstdLevel::try_new(level).map_err(parquet_error)?))
}

/// Returns the path of a column of a file. Dots separate the levels of nested columns.
fn column_path(name: &str) -> ColumnPath {
    ColumnPath::new(name.split('.').map(str::to_owned).collect())
}

/// A staged file, with the length, CRC32C and hash of the bytes written so far.
#[derive(Default)]
struct Summed {
    /// `None` after the file was taken.
    staged: Option<Staged>,
    num_bytes: u64,
    crc: u32,
    hash: blake3::Hasher,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let staged = self.staged.as_mut().ok_or_else(|| io::Error::other("the file is finished"))?;
        let written = staged.write(bytes)?;
        let bytes = &bytes[..written];
        self.num_bytes += written as u64;
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.hash.update(bytes);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.staged.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::ArrowError(message) => Error::other(message),
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(source) => Error::from(*source),
            Err(source) => Error::other(source),
        },
        other => Error::other(arrow::error::ArrowError::from(other)),
    }
}
