//! The state of a recorder, under the lock of [`SharedRecorder`](super::shared::SharedRecorder).

use super::ended_game::EndedGame;
use super::game_rows::{BLOCK_COST, Block, GameRows};
use super::report::RecorderReport;
use super::status::Counts;
use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::time::Instant;

/// The memory of a game in addition to its blocks, in bytes.
pub(super) const GAME_COST: u64 = 384;

/// Counters, memory, unflushed games and the state of the writer thread.
#[derive(Debug, Default)]
pub(super) struct RecorderState {
    pub(super) phase: RecorderPhase,
    pub(super) counts: Counts,
    pub(super) refused: u64,
    pub(super) next_id: u64,
    pub(super) free_blocks: Vec<Block>,
    /// The memory of all buffers in use, in bytes.
    pub(super) ram: u64,
    pub(super) unflushed: UnflushedGames,
    /// The totals of the games that are being written.
    pub(super) writing: GameTotals,
    pub(super) is_writing: bool,
    /// The numbers of the last flush that was requested, begun and done. A flush covers all flushes with lower
    /// numbers.
    pub(super) flush_requested: u64,
    pub(super) flush_begun: u64,
    pub(super) flush_done: u64,
    pub(super) thresholds: FlushThresholds,
    pub(super) failure: Option<FlushFailure>,
    pub(super) is_disk_full: bool,
    pub(super) num_durable: u64,
    pub(super) rotations: u64,
    pub(super) sink_bytes: u64,
}

/// Ended games that are not written yet.
#[derive(Debug, Default)]
pub(super) struct UnflushedGames {
    pub(super) games: Vec<EndedGame>,
    pub(super) totals: GameTotals,
}

/// The kept steps, memory and disk space of games.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GameTotals {
    pub(super) steps: u64,
    pub(super) ram: u64,
    pub(super) disk: u64,
}

/// The steps, memory and time at which the next flush starts.
#[derive(Debug, Default)]
pub(super) struct FlushThresholds {
    pub(super) steps: u64,
    pub(super) ram: u64,
    pub(super) time: Option<Instant>,
}

/// The error of the last flush.
#[derive(Debug)]
pub(super) struct FlushFailure {
    flush: u64,
    pub(super) error: Error,
    is_reported: bool,
}

/// Whether the recorder is open, closing or closed.
#[derive(Debug, Default)]
pub(super) enum RecorderPhase {
    #[default]
    Open,
    Closing,
    Closed(Box<RecorderReport>),
    /// All handles were dropped without a successful close.
    Dropped,
}

impl RecorderState {
    /// Returns an error unless the recorder is open.
    pub(super) fn check_open(&self) -> Result<()> {
        match self.phase {
            RecorderPhase::Open => Ok(()),
            _ => Err(Error::argument("recorder", "an open recorder", "a closed one")),
        }
    }

    /// Requests a flush of all games that have ended so far, and returns its number.
    pub(super) fn request_flush(&mut self) -> u64 {
        self.flush_requested = self.flush_requested.max(self.flush_begun + 1);
        self.flush_begun + 1
    }

    /// Returns whether the unflushed games have reached a threshold.
    pub(super) fn is_flush_due(&self) -> bool {
        let UnflushedGames { games, totals } = &self.unflushed;
        let is_late = || self.thresholds.time.is_some_and(|time| Instant::now() >= time);
        !games.is_empty() && (totals.steps >= self.thresholds.steps || totals.ram >= self.thresholds.ram || is_late())
    }

    pub(super) fn set_failure(&mut self, flush: u64, error: Error) {
        self.failure = Some(FlushFailure { flush, error, is_reported: false });
    }

    /// Returns the error of this flush or a later one. For 0, returns the last error if no caller has received it yet.
    pub(super) fn check_failure(&mut self, flush: u64) -> Result<()> {
        match &mut self.failure {
            Some(failure) if failure.flush >= flush && (flush > 0 || !failure.is_reported) => {
                failure.is_reported = true;
                Err(copy_error(&failure.error))
            }
            _ => Ok(()),
        }
    }
}

impl GameTotals {
    pub(super) fn add(&mut self, other: GameTotals) {
        self.steps += other.steps;
        self.ram += other.ram;
        self.disk += other.disk;
    }
}

/// Returns the memory of a game with these rows, in bytes.
pub(super) fn ram_of(rows: &GameRows) -> u64 {
    GAME_COST + rows.num_blocks() as u64 * BLOCK_COST
}

/// Returns a copy of an error for another caller.
fn copy_error(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Io { path, source } => {
            let source = match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            };
            ErrorKind::Io { path: path.clone(), source }.into()
        }
        _ => Error::other(error.to_string()),
    }
}
