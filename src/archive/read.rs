//! Reading of data files: single columns, whole row groups, and footers.

use super::TableName;
use super::commit::{DataFile, damaged};
use super::schema::{SCHEMA_VERSION_KEY, table_schema};
use super::storage::Storage;
use super::writer::checksum;
use crate::error::{Error, Result};
use crate::process::catch_panic;
use arrow::array::{RecordBatch, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Opens a data file. A file of an object store is downloaded to a temporary file, which vanishes when it is
/// closed.
pub(super) fn open(storage: &Storage, file: &DataFile) -> Result<File> {
    match storage.open(&file.path)? {
        Some(open) => Ok(open),
        None => {
            let expected = format!("a file of {} bytes", file.num_bytes);
            Err(damaged(&storage.path(&file.path), "data file", expected, "no file"))
        }
    }
}

/// Opens a data file after comparing its length and checksum with its commit. Needed if its content is written
/// elsewhere, or decides what is written.
pub(super) fn open_sound(storage: &Storage, file: &DataFile) -> Result<File> {
    let opened = open(storage, file)?;
    let path = || storage.path(&file.path);
    let (crc, num_bytes) = checksum(&opened).map_err(|source| Error::io(path(), source))?;
    if num_bytes != file.num_bytes {
        let bytes = |number: u64| format!("{number} bytes");
        return Err(damaged(&path(), "length of the file", bytes(file.num_bytes), bytes(num_bytes)));
    }
    if format!("{crc:08x}") != file.crc32c {
        return Err(damaged(&path(), "CRC32C of the file", &file.crc32c, format!("{crc:08x}")));
    }
    Ok(opened)
}

/// Returns a Parquet reader of a file, after checking the checksum and the footer.
fn reader(storage: &Storage, file: &DataFile) -> Result<ParquetRecordBatchReaderBuilder<File>> {
    let open = open_sound(storage, file)?;
    ParquetRecordBatchReaderBuilder::try_new(open).map_err(|error| not_parquet(storage, file, error))
}

/// Reads the given columns of a file, batch by batch. Columns that a file of an older schema lacks are null.
pub(super) fn read_columns(
    storage: &Storage,
    file: &DataFile,
    columns: &[&str],
    mut each: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let builder = reader(storage, file)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    let schema = table_schema(file.table);
    let fields = columns.iter().map(|column| schema.field_with_name(column).cloned()).collect::<Result<Vec<_>, _>>();
    let schema = Arc::new(Schema::new(fields.map_err(|error| not_parquet(storage, file, error))?));
    let mut num_rows = 0;
    for batch in builder.with_projection(mask).build().map_err(|error| not_parquet(storage, file, error))? {
        let batch = batch.map_err(|error| not_parquet(storage, file, error))?;
        let batch = conform(&batch, &schema).map_err(|error| not_parquet(storage, file, error))?;
        num_rows += batch.num_rows() as u64;
        each(&batch)?;
    }
    if num_rows != file.num_rows {
        let path = storage.path(&file.path);
        return Err(damaged(&path, "number of rows", file.num_rows.to_string(), num_rows.to_string()));
    }
    Ok(())
}

pub(super) fn not_parquet(storage: &Storage, file: &DataFile, error: impl std::fmt::Display) -> Error {
    damaged(&storage.path(&file.path), "Parquet", "what the commit's checksum covers", error.to_string())
}

/// An open data file whose row groups are read one at a time, in the current schema.
pub(super) struct OpenFile<'a> {
    storage: &'a Storage,
    file: &'a DataFile,
    open: SharedFile,
    metadata: ArrowReaderMetadata,
}

impl<'a> OpenFile<'a> {
    /// Opens a file without checking its checksum. The caller checks the rows by other means.
    pub(super) fn new(storage: &'a Storage, file: &'a DataFile) -> Result<OpenFile<'a>> {
        OpenFile::of(storage, file, open(storage, file)?)
    }

    fn of(storage: &'a Storage, file: &'a DataFile, open: File) -> Result<OpenFile<'a>> {
        let metadata = guarded(|| Ok(ArrowReaderMetadata::load(&open, ArrowReaderOptions::new())?));
        let metadata = metadata.map_err(|error| not_parquet(storage, file, error))?;
        Ok(OpenFile { storage, file, open: SharedFile(Arc::new(open)), metadata })
    }

    pub(super) fn file(&self) -> &'a DataFile {
        self.file
    }

    pub(super) fn num_row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the first and last run id of a row group, if its statistics have them.
    pub(super) fn run_ids(&self, index: usize) -> Option<(u32, u32)> {
        group_run_ids(self.metadata.metadata().row_groups().get(index)?)
    }

    pub(super) fn read(&self, index: usize) -> Result<RecordBatch> {
        let read = || {
            let batch = read_row_group(self.open.clone(), self.metadata.clone(), index)?;
            conform(&batch, &table_schema(self.file.table))
        };
        guarded(read).map_err(|error| not_parquet(self.storage, self.file, error))
    }
}

/// A file that several threads can read at once, each at its own offset. Clones of a `File` would share one
/// offset.
#[derive(Clone)]
pub(super) struct SharedFile(Arc<File>);

impl SharedFile {
    pub(super) fn new(file: &File) -> std::io::Result<SharedFile> {
        Ok(SharedFile(Arc::new(file.try_clone()?)))
    }
}

/// A reader from an offset on.
pub(super) struct ReadAt {
    file: SharedFile,
    offset: u64,
}

impl Read for ReadAt {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let len = self.file.0.read_at(bytes, self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<ReadAt>;

    fn get_read(&self, offset: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(ReadAt { file: self.clone(), offset }))
    }

    fn get_bytes(&self, offset: u64, len: usize) -> parquet::errors::Result<Bytes> {
        let available = self.len().saturating_sub(offset);
        if len as u64 > available {
            return Err(ParquetError::EOF(format!("expected {len} bytes at {offset}, found {available}")));
        }
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

/// Converts a panic of the Parquet reader on damaged data into an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_panic(work).unwrap_or_else(|| Err(ArrowError::ParquetError("the reader panicked".into())))
}

/// The row groups of several files, one after the other, in the current schema.
pub(super) struct RowGroups<'a> {
    storage: &'a Storage,
    files: std::slice::Iter<'a, &'a DataFile>,
    open: Option<(OpenFile<'a>, usize)>,
}

impl<'a> RowGroups<'a> {
    pub(super) fn new(storage: &'a Storage, files: &'a [&'a DataFile]) -> RowGroups<'a> {
        RowGroups { storage, files: files.iter(), open: None }
    }

    pub(super) fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((open, index)) = &mut self.open else {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.open = Some((OpenFile::of(self.storage, file, open_sound(self.storage, file)?)?, 0));
                continue;
            };
            if *index == open.num_row_groups() {
                self.open = None;
                continue;
            }
            *index += 1;
            return open.read(*index - 1).map(Some);
        }
    }
}

/// Reads a whole row group as one batch.
pub(super) fn read_row_group(
    file: SharedFile,
    metadata: ArrowReaderMetadata,
    index: usize,
) -> Result<RecordBatch, ArrowError> {
    let num_rows = metadata.metadata().row_group(index).num_rows().max(1) as usize;
    let schema = metadata.schema().clone();
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_row_groups(vec![index])
        .with_batch_size(num_rows)
        .build()?;
    concat_batches(&schema, &reader.collect::<Result<Vec<_>, _>>()?)
}

/// Converts a batch of an older schema to a newer one. Missing columns are null.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) => Ok(Arc::clone(column)),
        None if field.is_nullable() => Ok(new_null_array(field.data_type(), batch.num_rows())),
        None => Err(ArrowError::SchemaError(format!("no column {}", field.name()))),
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}

/// Returns the first and last run id in the footer of an archive's file. Returns `None` if the file has no rows
/// or belongs to another program. Reads only the footer.
pub(super) fn run_ids(storage: &Storage, path: &str, num_bytes: u64) -> Result<Option<(u32, u32)>> {
    const FOOTER_BYTES: u64 = 64 << 10;
    let mut len = FOOTER_BYTES;
    loop {
        let Some(end) = storage.read_end(path, len)? else { return Ok(None) };
        let parse = || {
            let mut reader = ParquetMetaDataReader::new();
            match reader.try_parse_sized(&end, num_bytes) {
                Ok(()) => Ok(Ok(reader.finish()?)),
                Err(ParquetError::NeedMoreData(needed)) if needed as u64 > len => Ok(Err(needed as u64)),
                Err(error) => Err(error.into()),
            }
        };
        let parsed = guarded(parse);
        match parsed.map_err(|error| damaged(&storage.path(path), "footer", "Parquet", error.to_string()))? {
            Ok(metadata) => return Ok(own_run_ids(&metadata)),
            Err(needed) => len = needed,
        }
    }
}

fn own_run_ids(metadata: &ParquetMetaData) -> Option<(u32, u32)> {
    let pairs = metadata.file_metadata().key_value_metadata();
    let ours = pairs.is_some_and(|pairs| pairs.iter().any(|pair| pair.key == SCHEMA_VERSION_KEY));
    let first_column = metadata.file_metadata().schema_descr().columns().first().map(|column| column.name());
    if !ours || first_column != Some("run_id") {
        return None;
    }
    metadata.row_groups().iter().filter_map(group_run_ids).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Returns the entry that a commit would have for an existing data file; `None` if the file is missing or
/// damaged.
pub(super) fn measure(storage: &Storage, table: TableName, path: &str) -> Result<Option<DataFile>> {
    let Some(open) = storage.open(path)? else { return Ok(None) };
    let (crc, num_bytes) = checksum(&open).map_err(|source| Error::io(storage.path(path), source))?;
    let footer = guarded(|| Ok(ParquetMetaDataReader::new().parse_and_finish(&open)?));
    let facts = footer.ok().and_then(|footer| {
        let num_rows = u64::try_from(footer.file_metadata().num_rows()).ok()?;
        Some((num_rows, own_run_ids(&footer)?))
    });
    Ok(facts.map(|(num_rows, (first_run_id, last_run_id))| DataFile {
        table,
        path: path.to_owned(),
        num_rows,
        num_bytes,
        crc32c: format!("{crc:08x}"),
        first_run_id,
        last_run_id,
    }))
}

fn group_run_ids(group: &RowGroupMetaData) -> Option<(u32, u32)> {
    match group.columns().first()?.statistics()? {
        // Parquet stores an unsigned integer as a signed one with a logical type.
        Statistics::Int32(statistics) => {
            Some((statistics.min_opt()?.cast_unsigned(), statistics.max_opt()?.cast_unsigned()))
        }
        _ => None,
    }
}
