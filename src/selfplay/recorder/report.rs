//! The counters of a recorder, and its final report.

use std::path::PathBuf;
use std::time::Duration;

/// The counters of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderStats {
    /// The number of games that have begun.
    pub begun: u64,
    /// The number of running games.
    pub live: u64,
    /// The number of games that ended and are kept.
    pub ended: u64,
    /// The number of games that were abandoned, or rejected at their end.
    pub abandoned: u64,
    /// The number of games that were rejected at their end.
    pub refused: u64,
    /// The number of kept steps of ended games.
    pub steps: u64,
    /// The number of durable games: all games whose id is below it.
    pub durable: u64,
    /// The number of flushes that wrote games.
    pub rotations: u64,
    /// The size of the written games, and the space that the next flush needs temporarily, in bytes.
    pub disk_bytes: u64,
    /// The memory of all steps that are not yet written, in bytes.
    pub ram_bytes: u64,
    /// The error of the last flush, if it failed. The flush will be retried.
    pub failure: Option<String>,
}

/// A summary of a recording that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderReport {
    /// The folder of the session or of the journal; empty if there is no folder.
    pub folder: PathBuf,
    /// The number of games.
    pub runs: u64,
    /// The number of kept steps.
    pub steps: u64,
    /// The number of flushes that wrote games.
    pub rotations: u64,
    /// The number of games that were abandoned, or rejected at their end.
    pub abandoned: u64,
    /// The number of games that were rejected at their end.
    pub refused: u64,
    /// The number of games that were still running, and are lost.
    pub live: u64,
    /// The size on disk, in bytes.
    pub num_bytes: u64,
    /// The elapsed time.
    pub elapsed: Duration,
}
