//! The options and the report of an ingest.

use crate::archive::manifest::transaction::Patience;
use crate::format::Rejected;
use derive_setters::Setters;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Options of [`Archive::ingest`](crate::archive::Archive::ingest).
///
/// Set fields with the `with_*` methods: `IngestOptions::default().with_workers(4)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct IngestOptions {
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
    /// The longest time to wait while another process on this machine writes to the archive. After that, the call
    /// fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    pub wait: Duration,
    /// Whether a file that does not decode is an error, so that nothing is added. A file of unknown content in a folder
    /// is then an error too. Otherwise the report lists such files.
    pub strict: bool,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions { workers: None, wait: Patience::default().wait, strict: false }
    }
}

/// The result of an ingest.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct IngestReport {
    /// The number of runs added.
    pub accepted: u64,
    /// The number of runs skipped because the archive or the earlier input holds them.
    pub duplicates: u64,
    /// The number of added twins: runs with the same boards as another run of the archive or of the earlier input,
    /// such as one game in two formats.
    pub twins: u64,
    /// The number of runs and whole files that could not be read. Each has an entry in `errors`.
    pub rejected: u64,
    /// The files in folders that were skipped because of their names or their unknown content, in order.
    pub ignored: Vec<PathBuf>,
    /// The number of steps added.
    pub num_steps: u64,
    /// The number of bytes read.
    pub num_bytes: u64,
    /// The runs and files that could not be read, in order.
    pub errors: Vec<Rejected>,
}
