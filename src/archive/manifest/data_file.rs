//! The entry of a Parquet file in a manifest, and its name.

use crate::archive::table_name::TableName;
use serde::{Deserialize, Serialize};

/// A Parquet file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFile {
    pub(crate) table: TableName,
    /// The path relative to the archive, with `/` as separator.
    pub(crate) path: String,
    pub(crate) num_rows: u64,
    pub(crate) num_bytes: u64,
    /// The checksum of the whole file, eight hexadecimal digits.
    pub(crate) crc32c: String,
    pub(crate) first_run_id: u32,
    pub(crate) last_run_id: u32,
    /// The model of a file of `annotations`; `None` for the other tables.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) model: Option<String>,
    /// The number of rows of each row group.
    pub(crate) row_groups: Vec<u64>,
}

impl DataFile {
    /// Returns the path of a new file. It begins with the file's run ids, so that a writer sees in a listing which ids
    /// are taken, and it ends with the transaction that writes the file.
    pub(in crate::archive) fn new_path(
        table: TableName,
        run_ids: (u32, u32),
        hash: &blake3::Hash,
        txn: &str,
    ) -> String {
        let (first, last) = run_ids;
        format!("{table}/{first:010}-{last:010}-{}{}", &hash.to_hex()[..16], DataFile::suffix(txn))
    }

    /// Returns the end of the names of a transaction's files.
    pub(in crate::archive) fn suffix(txn: &str) -> String {
        format!("{}.parquet", &txn[..txn.len().min(16)])
    }

    /// Returns the last run id in the name of a file; `None` for names that [`new_path`](Self::new_path) does not give.
    pub(in crate::archive) fn last_run_id_of(name: &str) -> Option<u32> {
        let mut parts = name.strip_suffix(".parquet")?.split('-');
        let (first, last, hash) = (parts.next()?, parts.next()?, parts.next()?);
        let is_own = parts.next().is_none() && [first.len(), last.len(), hash.len()] == [10, 10, 32];
        last.parse().ok().filter(|_| is_own)
    }

    /// Returns whether two files hold no rows of the same runs. Annotations of two models may be of the same runs.
    pub(in crate::archive) fn is_apart_from(&self, other: &DataFile) -> bool {
        (self.table, &self.model) != (other.table, &other.model)
            || self.last_run_id < other.first_run_id
            || other.last_run_id < self.first_run_id
    }

    /// Returns the key that puts files in the order of tables, models and run ids.
    pub(in crate::archive) fn order(&self) -> impl Ord {
        (self.table, &self.model, self.first_run_id)
    }
}
