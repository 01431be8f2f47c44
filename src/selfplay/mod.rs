//! Games as they are played: many side by side, by a built-in player or a policy, into run files, sessions or an archive.
//!
//! | entry point | what |
//! | --- | --- |
//! | [`simulate`] | seeded games of the built-in [`Player`], each in a run file |
//! | [`play`], [`play_games`] | seeded games of a policy that is asked for many moves at once |
//! | [`VectorEnv`] | games side by side, in which the caller moves |
//! | [`Recorder`] | games while they are played → a session or an archive |
//!
//! Invariant: a game follows from its seed, its number and the moves that are made in it, byte for byte, on any machine, any
//! number of threads and in any batches.

mod choice;
mod env;
mod play;
mod player;
mod recorder;
mod simulate;
mod spawner;

#[cfg(feature = "python")]
pub(crate) use choice::to_moves;
pub use env::{IllegalMoves, VectorEnv};
#[cfg(feature = "python")]
pub(crate) use env::{write_legal, write_tokens};
pub use play::{Choices, PlayOptions, PlayReport, PlayedGame, Positions, play, play_games};
pub use player::Player;
#[cfg(feature = "python")]
pub(crate) use player::build_tables;
pub use recorder::{
    Closing, DiskCost, EndedGame, Game, Limit, Limits, Recorder, RecorderOptions, RecorderReport, RecorderStats,
    Recovered, Sink, Unfinished, recover, recover_into_archive, recover_with,
};
pub use simulate::{SimulateOptions, SimulateReport, simulate};
