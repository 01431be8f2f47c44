//! The run ids of new runs.

use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::Result;

/// Returns the first id that no run has, in this version or in any data file.
///
/// A data file may have ids that no manifest knows: its writer was interrupted, or the newest manifest was lost. These
/// ids are not given again.
pub(in crate::archive) fn next_run_id(storage: &Storage, newest: &Manifest) -> Result<u64> {
    let mut next = newest.next_run_id;
    for table in [TableName::Runs, TableName::Steps] {
        // New files begin with new ids, so they come last.
        let names = storage.names_from(table.name(), &format!("{:010}", newest.next_run_id))?.unwrap_or_default();
        let last = names.iter().filter_map(|name| DataFile::last_run_id_of(name)).max();
        next = last.map_or(next, |last| next.max(u64::from(last) + 1));
    }
    Ok(next)
}
