//! Reading of data files: single columns, whole row groups, and the run ids in footers.

use super::input::{SharedFile, guarded};
use crate::archive::manifest::data_file::DataFile;
use crate::archive::schema::table_schema;
use crate::archive::storage::Storage;
use crate::error::{Error, Result};
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use crc32c::Crc32cReader;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::statistics::Statistics;
use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

/// Opens a data file. A file of an object store is downloaded to a temporary file, which vanishes when it is
/// closed.
pub(in crate::archive) fn open(storage: &Storage, file: &DataFile) -> Result<File> {
    let expected = || format!("a file of {} bytes", file.num_bytes);
    storage.open(&file.path)?.ok_or_else(|| storage.damaged(&file.path, "data file", expected(), "no file"))
}

/// Opens a data file after comparing its length and checksum with its manifest. Callers need this if they copy
/// the content, or if it decides what they write.
pub(in crate::archive) fn open_sound(storage: &Storage, file: &DataFile) -> Result<File> {
    let opened = open(storage, file)?;
    check_content(&opened, &storage.path(&file.path), file)?;
    Ok(opened)
}

/// Compares the length and checksum of an open file with its entry.
pub(super) fn check_content(opened: &File, path: &Path, file: &DataFile) -> Result<()> {
    let (crc, num_bytes) = checksum(opened).map_err(|source| Error::io(path, source))?;
    if num_bytes != file.num_bytes {
        let bytes = |number: u64| format!("{number} bytes");
        return Err(Error::damaged(path, "length of the file", bytes(file.num_bytes), bytes(num_bytes)));
    }
    let found = format!("{crc:08x}");
    if found != file.crc32c {
        return Err(Error::damaged(path, "CRC32C of the file", &file.crc32c, found));
    }
    Ok(())
}

/// Returns the CRC32C and the length of a file.
fn checksum(mut file: &File) -> io::Result<(u32, u64)> {
    file.rewind()?;
    // Small files get a small buffer.
    let buffer_len = file.metadata()?.len().min(1 << 20) as usize;
    let mut reader = BufReader::with_capacity(buffer_len, Crc32cReader::new(file));
    let num_bytes = io::copy(&mut reader, &mut io::sink())?;
    Ok((reader.get_ref().crc32c(), num_bytes))
}

fn not_parquet(storage: &Storage, file: &DataFile, error: impl std::fmt::Display) -> Error {
    storage.damaged(&file.path, "Parquet", "readable data", error)
}

/// An open data file whose row groups are read one at a time, in the current schema.
pub(in crate::archive) struct OpenDataFile<'a> {
    storage: &'a Storage,
    pub(in crate::archive) file: &'a DataFile,
    open: SharedFile,
    metadata: ArrowReaderMetadata,
}

impl<'a> OpenDataFile<'a> {
    /// Opens a file without checking its checksum. The caller checks the rows by other means.
    pub(in crate::archive) fn new(storage: &'a Storage, file: &'a DataFile) -> Result<OpenDataFile<'a>> {
        OpenDataFile::of(storage, file, open(storage, file)?)
    }

    /// Opens a file after comparing its length and checksum with its manifest.
    pub(in crate::archive) fn sound(storage: &'a Storage, file: &'a DataFile) -> Result<OpenDataFile<'a>> {
        OpenDataFile::of(storage, file, open_sound(storage, file)?)
    }

    fn of(storage: &'a Storage, file: &'a DataFile, open: File) -> Result<OpenDataFile<'a>> {
        let metadata = guarded(|| Ok(ArrowReaderMetadata::load(&open, ArrowReaderOptions::new())?));
        let metadata = metadata.map_err(|error| not_parquet(storage, file, error))?;
        Ok(OpenDataFile { storage, file, open: SharedFile(Arc::new(open)), metadata })
    }

    /// Returns the columns of the file.
    pub(in crate::archive) fn schema(&self) -> &Schema {
        self.metadata.schema()
    }

    pub(in crate::archive) fn num_row_groups(&self) -> usize {
        self.metadata.metadata().num_row_groups()
    }

    /// Returns the first and last run id of a row group, if its statistics have them.
    pub(in crate::archive) fn run_ids(&self, index: usize) -> Option<(u32, u32)> {
        group_run_ids(self.metadata.metadata().row_groups().get(index)?)
    }

    pub(in crate::archive) fn read(&self, index: usize) -> Result<RecordBatch> {
        self.read_as(index, &table_schema(self.file.table))
    }

    /// Reads the columns of a schema in a row group, as one batch.
    fn read_as(&self, index: usize, schema: &SchemaRef) -> Result<RecordBatch> {
        let read = || {
            let num_rows = self.metadata.metadata().row_group(index).num_rows().max(1) as usize;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.open.clone(), self.metadata.clone());
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let columns = ProjectionMask::columns(builder.parquet_schema(), names);
            let builder = builder.with_projection(columns).with_row_groups(vec![index]).with_batch_size(num_rows);
            let reader = builder.build()?;
            let found = reader.schema();
            conform(&concat_batches(&found, &reader.collect::<Result<Vec<_>, _>>()?)?, schema)
        };
        guarded(read).map_err(|error| not_parquet(self.storage, self.file, error))
    }
}

/// Returns the row groups of several files, one after the other, with the columns of `schema`. Opens one file after the
/// other. Compares each file with its manifest: its length and checksum before it is read, and its number of rows after
/// its last row group.
pub(in crate::archive) fn row_groups<'a>(
    storage: &'a Storage,
    files: impl IntoIterator<Item = &'a DataFile>,
    schema: &SchemaRef,
) -> impl Iterator<Item = Result<RecordBatch>> {
    type RowGroups<'a> = Box<dyn Iterator<Item = Result<RecordBatch>> + Send + 'a>;
    files.into_iter().flat_map(move |file| -> RowGroups<'a> {
        let open = match OpenDataFile::sound(storage, file) {
            Ok(open) => open,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let (schema, num_groups, mut num_rows) = (Arc::clone(schema), open.num_row_groups(), 0);
        let read_or_check = move |index| {
            if index == num_groups {
                let error = || storage.damaged(&file.path, "number of rows", file.num_rows, num_rows);
                return (num_rows != file.num_rows).then(|| Err(error()));
            }
            let batch = open.read_as(index, &schema);
            num_rows += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
            Some(batch)
        };
        Box::new((0..=num_groups).filter_map(read_or_check))
    })
}

/// Calls `each` for the row groups of files that may hold these runs, in order. `run_ids` must ascend. Calls `open` for
/// one file after the other, because the number of open files is limited.
pub(in crate::archive) fn each_group<'a>(
    files: impl Iterator<Item = &'a DataFile>,
    run_ids: &[u32],
    open: impl Fn(&'a DataFile) -> Result<OpenDataFile<'a>>,
    each: &mut dyn FnMut(&Arc<OpenDataFile<'a>>, usize) -> Result<()>,
) -> Result<()> {
    for file in files.filter(|file| any_in(run_ids, file.first_run_id..=file.last_run_id)) {
        let open = Arc::new(open(file)?);
        for index in 0..open.num_row_groups() {
            if open.run_ids(index).is_none_or(|(first, last)| any_in(run_ids, first..=last)) {
                each(&open, index)?;
            }
        }
    }
    Ok(())
}

/// Returns whether one of the ascending ids is in a range. Damaged statistics may give a range that ends before its start.
fn any_in(run_ids: &[u32], range: RangeInclusive<u32>) -> bool {
    let at = run_ids.partition_point(|run_id| run_id < range.start());
    run_ids.get(at).is_some_and(|run_id| range.contains(run_id))
}

/// Returns the first and last run id of a row group, if its statistics have them.
pub(crate) fn group_run_ids(group: &RowGroupMetaData) -> Option<(u32, u32)> {
    match group.columns().first()?.statistics()? {
        // Parquet stores an unsigned integer as a signed one with a logical type.
        Statistics::Int32(statistics) => {
            Some((statistics.min_opt()?.cast_unsigned(), statistics.max_opt()?.cast_unsigned()))
        }
        _ => None,
    }
}

/// Returns the columns of a schema, in its order.
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().map(|field| {
        let column = batch.column_by_name(field.name()).cloned();
        column.ok_or_else(|| ArrowError::SchemaError(format!("no column {}", field.name())))
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<_, _>>()?)
}
