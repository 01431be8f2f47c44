//! [`Sink`]: the interface between a recorder and its storage.

use super::buffer::FinishedGame;
use crate::error::Result;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

/// The storage of a recorder: sessions in a folder, or an archive.
///
/// The recorder calls it from one thread at a time, with games in the order of their ids.
pub(crate) trait Sink: Debug + Send {
    /// Makes games durable, and returns the sessions that now have them; none in an archive. After an error, the
    /// recorder passes the same games again, followed by later ones, and the sink must not store any game twice.
    fn write(&mut self, games: &Arc<Vec<FinishedGame>>) -> Result<Vec<PathBuf>>;

    /// Returns the size on disk of everything written, in bytes.
    fn num_bytes(&self) -> u64;

    fn format(&self) -> SinkFormat;
}

/// The parts of a game that a sink stores, and an upper bound of the disk space that they take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SinkFormat {
    /// Whether every step needs its move.
    pub(crate) with_action: bool,
    /// Whether the engine's values of the moves are stored.
    pub(crate) with_evs: bool,
    /// The bytes of a write without its games.
    pub(crate) bytes_per_write: u64,
    /// The bytes of a game without its steps.
    pub(crate) bytes_per_game: u64,
    /// The bytes of a kept step.
    pub(crate) bytes_per_step: u64,
}
