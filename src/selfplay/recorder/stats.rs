//! [`RecorderStats`]: the counters of a recorder.

/// The counters of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderStats {
    /// The number of games that have begun.
    pub begun: u64,
    /// The number of running games. When a recorder is closed, these games are lost.
    pub live: u64,
    /// The number of games that ended and are kept.
    pub ended: u64,
    /// The number of games that were abandoned, or rejected at their end.
    pub abandoned: u64,
    /// The number of kept steps of ended games.
    pub steps: u64,
    /// The number of durable games: all games whose id is below it.
    pub durable: u64,
    /// The number of rotations that wrote games.
    pub rotations: u64,
    /// The size of everything written, in bytes.
    pub disk_bytes: u64,
    /// The memory of all steps that are not yet written, in bytes.
    pub ram_bytes: u64,
    /// The error of the last rotation, if it failed. The games stay in memory, and the next rotation writes them.
    pub failure: Option<String>,
}
