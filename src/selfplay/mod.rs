//! Playing and recording games: vectorized games, the built-in player, policies, and the recorder.
//!
//! The entry points are [`simulate`], [`play`], [`VectorEnv`] and [`Recorder`].
//!
//! | file | owns |
//! | --- | --- |
//! | `spawner` | the random spawns of tiles |
//! | `player` | the built-in [`Player`] |
//! | `simulate` | [`simulate`]: seeded games of the player, each in a run file |
//! | `env` | [`VectorEnv`]: many games side by side; the caller chooses the moves |
//! | `choice` | the input and the output of a policy |
//! | `play` | whole games of a policy, in batches |
//! | `recorder` | [`Recorder`]: writes games to a session or an archive while they are played |
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

pub use choice::{Choices, Positions, push_moves};
pub use env::{EnvGame, IllegalMoves, VectorEnv};
pub use play::{PlayOptions, PlayReport, PlayedGame, play};
pub use player::{Player, build_tables};
pub use recorder::{GameRecording, Recorder, RecorderOptions, RecorderStats};
pub use simulate::{SimulateOptions, SimulateReport, simulate};
