//! Data files that a listing found, and what they say about themselves.

use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::row_views::{at, words};
use crate::archive::schema::{ARCHIVE_KEY, SCHEMA_VERSION, SCHEMA_VERSION_KEY};
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::system::process::catch_panic;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

/// A sound data file.
pub(in crate::archive) struct SoundFile {
    /// The entry that a manifest would have.
    pub(in crate::archive) file: DataFile,
    pub(in crate::archive) archive_id: String,
    /// The number of steps of each run. For `steps`, the number of its rows.
    pub(in crate::archive) num_steps: BTreeMap<u32, u32>,
    /// The digest of each run of a file of `runs`.
    pub(in crate::archive) digests: Vec<[u8; 32]>,
}

/// Reads a data file. Returns `None` if it is missing or of another program, or if its content does not have the hash in
/// its name.
pub(in crate::archive) fn read_sound(storage: &Storage, table: TableName, path: &str) -> Result<Option<SoundFile>> {
    let Some(mut open) = storage.open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    open.read_to_end(&mut bytes).map_err(|source| Error::io(storage.path(path), source))?;
    if !path.contains(&blake3::hash(&bytes).to_hex()[..16]) {
        return Ok(None);
    }
    Ok(parse_sound(table, path, &bytes.into()))
}

/// Parses the content of a data file; returns `None` if another program wrote it.
pub(in crate::archive) fn parse_sound(table: TableName, path: &str, bytes: &Bytes) -> Option<SoundFile> {
    catch_panic(|| parse(table, path, bytes)).flatten()
}

fn parse(table: TableName, path: &str, bytes: &Bytes) -> Option<SoundFile> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).ok()?;
    let footer = Arc::clone(builder.metadata());
    if own_value(&footer, SCHEMA_VERSION_KEY)? != SCHEMA_VERSION.to_string() {
        return None;
    }
    let columns: &[&str] = match table {
        TableName::Runs => &["run_id", "num_steps", "digest"],
        TableName::Steps => &["run_id"],
        TableName::Annotations => &["run_id", "model"],
    };
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    let (mut num_steps, mut digests, mut model) = (BTreeMap::new(), Vec::new(), None);
    for batch in builder.with_projection(mask).build().ok()? {
        let batch = batch.ok()?;
        let ids = batch.column_by_name("run_id")?.as_primitive_opt::<UInt32Type>()?.values();
        if table == TableName::Annotations && model.is_none() {
            model = Some(at(words(&batch, "model").ok()?, 0)?.to_owned());
        }
        if table != TableName::Runs {
            ids.iter().for_each(|&run_id| *num_steps.entry(run_id).or_default() += 1);
            continue;
        }
        let counts = batch.column_by_name("num_steps")?.as_primitive_opt::<UInt32Type>()?.values();
        num_steps.extend(ids.iter().copied().zip(counts.iter().copied()));
        for digest in batch.column_by_name("digest")?.as_fixed_size_binary_opt()?.iter() {
            digests.push(digest?.try_into().ok()?);
        }
    }
    let rows_of = |group: &RowGroupMetaData| u64::try_from(group.num_rows()).ok();
    let row_groups: Vec<u64> = footer.row_groups().iter().map(rows_of).collect::<Option<_>>()?;
    let file = DataFile {
        table,
        path: path.to_owned(),
        num_rows: row_groups.iter().sum(),
        num_bytes: bytes.len() as u64,
        crc32c: format!("{:08x}", crc32c::crc32c(bytes)),
        first_run_id: *num_steps.first_key_value()?.0,
        last_run_id: *num_steps.last_key_value()?.0,
        model,
        row_groups,
    };
    Some(SoundFile { file, archive_id: own_value(&footer, ARCHIVE_KEY)?, num_steps, digests })
}

/// Returns the value of a key in a footer.
fn own_value(footer: &ParquetMetaData, key: &str) -> Option<String> {
    let pairs = footer.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == key)?.value.clone()
}
