//! Options of a query: the user's tables, and limits on memory, files, rows, bytes and time.

use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::query::user_tables::UserTable;
use crate::system::machine::total_bytes;
use crate::system::process::PerProcess;
use datafusion::common::DataFusionError;
use datafusion::execution::DiskManager;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryLimit, MemoryPool};
use derive_setters::Setters;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// User tables and limits of a query, for [`Archive::sql_with`](crate::Archive::sql_with).
///
/// ```
/// use a2store::query::QueryOptions;
/// use std::time::Duration;
/// let options = QueryOptions::default().with_time_limit(Duration::from_secs(10)).with_row_limit(1_000);
/// assert_eq!(options.spill_bytes(), QueryOptions::DEFAULT_SPILL_BYTES);
/// ```
#[derive(Clone, Debug, Default, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct QueryOptions {
    /// Tables in addition to `runs` and `steps`. Each needs a unique name.
    #[setters(skip)]
    pub tables: Vec<(String, UserTable)>,
    /// The maximum number of bytes that the query's operators may hold at once. By default, all queries of the
    /// process share half of the machine's memory. Sorts and groupings spill to files before they fail. A limit also
    /// bounds the number of threads: each thread needs [`MIN_MEMORY_BYTES`](Self::MIN_MEMORY_BYTES).
    pub memory_limit: Option<u64>,
    /// The maximum number of bytes of spill files; [`DEFAULT_SPILL_BYTES`](QueryOptions::DEFAULT_SPILL_BYTES) by
    /// default.
    pub spill_limit: Option<u64>,
    /// The folder for spill files; the system's temporary folder by default. The query creates a subfolder
    /// there and removes it when it ends.
    #[setters(into)]
    pub spill_folder: Option<PathBuf>,
    /// The maximum number of rows that the result may have.
    pub row_limit: Option<u64>,
    /// The maximum number of bytes that the result may have, as Arrow arrays.
    pub byte_limit: Option<u64>,
    /// The longest time for planning, and separately for each execution, from its start to its last row.
    pub time_limit: Option<Duration>,
}

impl QueryOptions {
    /// The default limit on the bytes of spill files: 64 GiB.
    pub const DEFAULT_SPILL_BYTES: u64 = 64 << 30;

    /// The smallest memory limit: 32 MiB. With less, even small sorts fail, because a sort reserves 10 MiB per
    /// core.
    pub const MIN_MEMORY_BYTES: u64 = 32 << 20;

    /// Adds a table.
    #[must_use]
    pub fn with_table(mut self, name: impl Into<String>, table: UserTable) -> Self {
        self.tables.push((name.into(), table));
        self
    }

    /// Returns the maximum number of bytes that operators may hold at once.
    pub(in crate::query) fn memory_bytes(&self) -> u64 {
        self.memory_limit.unwrap_or_else(|| match default_pool().map(|pool| pool.memory_limit()) {
            Ok(MemoryLimit::Finite(num_bytes)) => num_bytes as u64,
            _ => u64::MAX,
        })
    }

    /// Returns the maximum number of bytes that spill files may have.
    #[must_use]
    pub fn spill_bytes(&self) -> u64 {
        self.spill_limit.unwrap_or(Self::DEFAULT_SPILL_BYTES)
    }

    pub(in crate::query) fn memory_pool(&self) -> Result<Arc<dyn MemoryPool>> {
        match self.memory_limit {
            Some(bytes) if bytes < Self::MIN_MEMORY_BYTES => {
                let expected = format!("at least {} bytes", Self::MIN_MEMORY_BYTES);
                Err(Error::argument("memory_limit", expected, bytes))
            }
            Some(bytes) => Ok(Arc::new(FairSpillPool::new(usize::try_from(bytes).unwrap_or(usize::MAX)))),
            None => default_pool().map(Arc::clone),
        }
    }

    /// Names the spill folder in an error of creating spill files.
    pub(in crate::query) fn spill_error(&self, error: DataFusionError) -> Error {
        match (error.find_root(), &self.spill_folder) {
            (DataFusionError::IoError(source), Some(folder)) => {
                Error::io(folder, std::io::Error::new(source.kind(), source.to_string()))
            }
            _ => query_error(error),
        }
    }

    pub(in crate::query) fn disk_manager(&self) -> DiskManagerBuilder {
        let mode = match &self.spill_folder {
            Some(folder) => DiskManagerMode::Directories(vec![folder.clone()]),
            None => DiskManagerMode::OsTmpDirectory,
        };
        DiskManager::builder().with_mode(mode).with_max_temp_directory_size(self.spill_bytes())
    }
}

/// Returns the memory pool that all queries without a memory limit share.
fn default_pool() -> Result<&'static Arc<dyn MemoryPool>> {
    static POOL: PerProcess<Arc<dyn MemoryPool>> = PerProcess::new();
    POOL.get_or_make(|| {
        let num_bytes = total_bytes().map_or(4 << 30, |bytes| bytes / 2);
        let pool = FairSpillPool::new(usize::try_from(num_bytes).unwrap_or(usize::MAX));
        Ok(Arc::new(pool) as Arc<dyn MemoryPool>)
    })
}
