//! Facts in the footers of data files: run ids and numbers of rows.

use super::data_file::{DataFile, checksum};
use super::parquet_input::guarded;
use super::problem::damaged;
use super::schema::SCHEMA_VERSION_KEY;
use super::storage::Storage;
use super::table_name::TableName;
use crate::error::{Error, Result};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::statistics::Statistics;

/// The position of the column `model` in `annotations`.
const MODEL: usize = 2;

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

/// Returns the first and last run id in a footer; `None` if the file has no rows or belongs to another program.
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
        Some((num_rows, own_run_ids(&footer)?, own_model(table, &footer)?))
    });
    Ok(facts.map(|(num_rows, (first_run_id, last_run_id), model)| DataFile {
        table,
        path: path.to_owned(),
        num_rows,
        num_bytes,
        crc32c: format!("{crc:08x}"),
        first_run_id,
        last_run_id,
        model,
    }))
}

/// Returns the model of a file of `annotations`, by its statistics. The inner `None` stands for the other tables.
fn own_model(table: TableName, metadata: &ParquetMetaData) -> Option<Option<String>> {
    if table != TableName::Annotations {
        return Some(None);
    }
    let model = metadata.row_groups().first()?.columns().get(MODEL)?;
    match model.statistics()? {
        Statistics::ByteArray(statistics) => {
            Some(Some(std::str::from_utf8(statistics.min_bytes_opt()?).ok()?.to_owned()))
        }
        _ => None,
    }
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
