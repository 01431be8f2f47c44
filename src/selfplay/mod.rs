//! Games as they are played: a built-in player, and run files of its games.
//!
//! Entry point is [`simulate`]. Invariant: a seed gives the same games, byte for byte, on any machine and any number of
//! threads.

mod player;
mod simulate;

pub use player::Player;
#[cfg(feature = "python")]
pub(crate) use player::build_tables;
pub use simulate::{SimulateOptions, SimulateReport, simulate};
