//! Playing and recording games: vectorized games, the built-in player, policies, and the recorder.
//!
//! | entry point | what |
//! | --- | --- |
//! | [`simulate`] | plays seeded games of the built-in [`Player`] into run files, one per game |
//! | [`play`], [`play_games`] | play seeded games of a policy, in batches, or of the built-in player |
//! | [`VectorEnv`] | steps many games side by side; the caller chooses the moves |
//! | [`Recorder`] | writes games to a session or an archive while they are played |
//!
//! Invariant: the seed, the game number and the moves determine a game, byte for byte. The machine, the number of
//! threads and the batch size make no difference.

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
