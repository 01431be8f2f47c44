//! Where games go when they are written.

use super::game::EndedGame;
use crate::error::Result;
use std::sync::Arc;

/// Where a recorder writes the games that ended: a session, or an archive.
///
/// It is called from one thread at a time, with games in the order of their ids and without gaps.
pub trait Sink: Send {
    /// Makes games durable, all or none of them. After an error the same games, followed by more, are written again, so
    /// none may be kept when this returns.
    ///
    /// # Errors
    /// Any; the recorder passes it on.
    fn write(&mut self, games: &Arc<Vec<EndedGame>>) -> Result<()>;

    /// Ends the recording.
    ///
    /// # Errors
    /// Any; the recorder passes it on, and may try again.
    fn close(&mut self, closing: &Closing) -> Result<()>;

    /// The number of games of this recording that are durable: all whose id is below it are, others are not.
    fn num_durable(&self) -> u64;

    /// Bytes that what is written takes on disk.
    fn num_bytes(&self) -> u64;

    /// What a game will take there at most.
    fn cost(&self) -> DiskCost;

    /// Whether every step must come with its move.
    fn with_action(&self) -> bool;

    /// Whether what the engine expected of the moves is kept.
    fn with_evs(&self) -> bool;
}

/// What a game takes on disk at most, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCost {
    /// Whatever is written, however little.
    pub fixed: u64,
    /// A game.
    pub per_game: u64,
    /// Each of its steps that are kept.
    pub per_step: u64,
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closing {
    /// Whether its recorder ended it, rather than a later process after that had died.
    pub finished: bool,
    /// Games that were given up.
    pub abandoned: u64,
    /// Games that were under way.
    pub live: u64,
}
