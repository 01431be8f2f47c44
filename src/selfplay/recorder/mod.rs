//! The recorder: writes games to a session or another sink while they are played, from any number of threads.
//!
//! ```text
//!  Game ─push─▶ its own blocks ─end─▶ ended games ─flush─▶ Sink: a shard of a session, or an archive
//!  (no lock)                    └──▶ journal, on request   (one writer thread)
//! | file | owns |
//! | --- | --- |
//! | `handle` | [`Recorder`], the handle that callers hold |
//! | `options`, `limits`, `report` | [`RecorderOptions`], [`Limits`], [`RecorderStats`], [`RecorderReport`] |
//! | `game`, `ended_game`, `game_rows` | [`Game`], [`EndedGame`], and the steps of a game in memory |
//! | `shared`, `state` | the state that handles, games and the writer thread share; its part under a lock |
//! | `flush` | the writer thread, which flushes ended games |
//! | `sink`, `session_sink`, `archive_sink` | [`Sink`], and its implementations for a session and an archive |
//! | `journal`, `journal_record`, `journal_replay` | the journal: appending, its format, reading |
//! | `status`, `recovery` | the status file of a recording, and [`recover`] |
//!
//! Invariant: when [`Recorder::rotate`] returns, the games that it flushed are durable, and no crash can damage them. A
//! folder contains `recording.json` until its recording ends.

mod archive_sink;
mod ended_game;
mod flush;
mod game;
mod game_rows;
mod handle;
mod journal;
mod journal_record;
mod journal_replay;
mod limits;
mod options;
mod recovery;
mod report;
mod session_sink;
mod shared;
mod sink;
mod state;
mod status;

#[cfg(test)]
mod tests;

pub use archive_sink::recover_into_archive;
pub use ended_game::EndedGame;
pub use game::Game;
pub use handle::Recorder;
pub use limits::{Limit, Limits};
pub use options::RecorderOptions;
pub use recovery::{Recovered, Unfinished, recover, recover_with};
pub use report::{RecorderReport, RecorderStats};
pub use sink::{Closing, DiskCost, Sink};
