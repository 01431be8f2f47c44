//! The recorder: writes games to sessions or to an archive while they are played, from any number of threads.
//!
//! ```text
//!  GameRecording ─push─▶ its own blocks ─end─▶ SessionBuffer ─rotation─▶ Sink: one complete session, or one commit
//!  (no lock)                                   (one lock)
//! ```
//!
//! | file | owns |
//! | --- | --- |
//! | `handle` | [`Recorder`], the handle that callers hold |
//! | `options` | [`RecorderOptions`] and [`RecorderStats`] |
//! | `game`, `rows` | [`GameRecording`], and the steps of a game in memory |
//! | `buffer` | [`FinishedGame`], and [`SessionBuffer`]: the games that the next rotation writes |
//! | `shared` | the state that handles and games share: limits, memory and rotations |
//! | `sink`, `session_sink`, `archive_sink` | [`Sink`], and its implementations for sessions and for an archive |
//!
//! Invariant: a rotation writes all games of a buffer or none. When [`Recorder::rotate`] returns, the games that ended
//! before it are durable. A crash loses only games that no rotation has written.

mod archive_sink;
mod buffer;
mod game;
mod handle;
mod options;
mod rows;
mod session_sink;
mod shared;
mod sink;

#[cfg(test)]
pub(super) use buffer::FinishedGame;
pub use game::GameRecording;
pub use handle::Recorder;
pub use options::{RecorderOptions, RecorderStats};
#[cfg(test)]
pub(super) use sink::{Sink, SinkFormat};

#[cfg(test)]
mod tests;
