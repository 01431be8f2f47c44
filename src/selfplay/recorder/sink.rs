//! [`Sink`]: the interface between a recorder and its storage.

use super::ended_game::EndedGame;
use crate::error::Result;
use std::sync::Arc;

/// The storage of a recorder: a session, an archive, or your own.
///
/// The recorder calls it from one thread at a time, with games in the order of their ids. Ids have gaps only after a
/// recovery: the ids of games that no journal has.
pub trait Sink: Send {
    /// Makes games durable, all or none of them. If it fails, it must keep none of them, because the recorder will
    /// write the same games again, together with later ones.
    ///
    /// # Errors
    /// Any error. The recorder returns it to its caller.
    fn write(&mut self, games: &Arc<Vec<EndedGame>>) -> Result<()>;

    /// Ends the recording.
    ///
    /// # Errors
    /// Any error. The recorder returns it to its caller, who may try again.
    fn close(&mut self, closing: &Closing) -> Result<()>;

    /// Returns an id above the ids of all durable games of this recording. All games with lower ids are durable, except
    /// games that a recovery found in no journal.
    fn num_durable(&self) -> u64;

    /// Returns the number of durable games of this recording.
    fn num_runs(&self) -> u64 {
        self.num_durable()
    }

    /// Returns the size on disk of everything written, in bytes.
    fn num_bytes(&self) -> u64;

    /// Returns an upper bound of the disk space of games.
    fn cost(&self) -> DiskCost;

    /// Returns whether every step needs its move.
    fn with_action(&self) -> bool;

    /// Returns whether the sink stores the engine's values of the moves.
    fn with_evs(&self) -> bool;
}

/// An upper bound of the disk space of games, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCost {
    /// The space that is used independently of the games.
    pub fixed: u64,
    /// The space of a game without its steps.
    pub per_game: u64,
    /// The space of each kept step.
    pub per_step: u64,
}

/// The end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closing {
    /// Whether the recorder closed it. False if a later process recovered it.
    pub finished: bool,
    /// The number of abandoned games.
    pub abandoned: u64,
    /// The number of games that were still running.
    pub live: u64,
}
