//! The writer thread.
//!
//! A flush takes the list of all ended games and writes it while other games continue. A failed flush puts the games
//! back. It is retried when as many new steps have ended, when memory is used up, or on request.

use super::journal_replay::remove_all;
use super::report::RecorderReport;
use super::shared::SharedRecorder;
use super::sink::{Closing, Sink};
use super::state::{RecorderPhase, RecorderState, UnflushedGames, ram_of};
use crate::error::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{info, warn};

/// The percentage of the memory budget that triggers a flush of ended games. The rest is for games that run
/// meanwhile.
const RAM_PERCENT: u64 = 40;
/// The number of blocks that are freed at a time.
const BLOCKS_AT_ONCE: usize = 512;

/// The next action of the writer thread.
enum WriterCommand {
    Flush,
    Close,
    Exit,
}

/// Flushes games until the recorder is closed.
pub(super) fn run(shared: &SharedRecorder, sink: &mut dyn Sink) {
    loop {
        match shared.next_command() {
            WriterCommand::Flush => drop(shared.flush(sink)),
            WriterCommand::Close => {
                if shared.close_sink(sink) {
                    return;
                }
            }
            WriterCommand::Exit => return,
        }
    }
}

impl SharedRecorder {
    /// Sets when the first flush is due.
    pub(super) fn start_thresholds(&self) {
        self.reset_thresholds(&mut self.lock());
    }

    /// Waits until there is something to do.
    fn next_command(&self) -> WriterCommand {
        let mut state = self.lock();
        loop {
            match state.phase {
                RecorderPhase::Open if state.flush_requested > state.flush_begun || state.is_flush_due() => {
                    return WriterCommand::Flush;
                }
                RecorderPhase::Open => {}
                RecorderPhase::Closing => return WriterCommand::Close,
                RecorderPhase::Closed(_) | RecorderPhase::Dropped => return WriterCommand::Exit,
            }
            state = match state.thresholds.time.filter(|_| !state.unflushed.games.is_empty()) {
                Some(time) => {
                    let left = time.saturating_duration_since(Instant::now());
                    self.wake_writer.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wait(&self.wake_writer, state),
            };
        }
    }

    /// Flushes all ended games. Returns whether they are durable.
    fn flush(&self, sink: &mut dyn Sink) -> bool {
        let mut pending = match self.take_unflushed() {
            Ok(pending) => pending,
            Err(error) => {
                let mut state = self.lock();
                state.flush_begun += 1;
                return self.flush_failed(state, UnflushedGames::default(), error);
            }
        };
        let games = Arc::new(std::mem::take(&mut pending.games));
        let written = if games.is_empty() { Ok(()) } else { catch_sink_panic(|| sink.write(&games)) };
        pending.games = Arc::into_inner(games).unwrap_or_default();
        match written {
            Ok(()) => {
                if let Some(journal) = &self.journal {
                    // If the removal fails, the file is removed later. It contains only games that are written.
                    let _ = journal.remove_old();
                }
                self.flushed(pending, sink)
            }
            Err(error) => self.flush_failed(self.lock(), pending, error),
        }
    }

    /// Begins a flush with all ended games, and switches the journal to its next file.
    fn take_unflushed(&self) -> Result<UnflushedGames> {
        let Some(journal) = &self.journal else {
            return Ok(self.lock().take());
        };
        loop {
            // Create the next file before the locks are held.
            let next = if self.lock().unflushed.games.is_empty() { None } else { Some(journal.prepare()?) };
            // This lock waits for games that are in the journal but not yet in the list.
            let mut inner = journal.lock_between_syncs();
            let mut state = self.lock();
            if next.is_none() && !state.unflushed.games.is_empty() {
                continue;
            }
            let pending = state.take();
            drop(state);
            if let Some(next) = next {
                journal.switch(&mut inner, next);
            }
            return Ok(pending);
        }
    }

    /// Frees the memory of the flushed games and updates the counters. Returns true.
    fn flushed(&self, pending: UnflushedGames, sink: &dyn Sink) -> bool {
        let is_empty = pending.games.is_empty();
        if !is_empty {
            let (games, steps) = (pending.games.len(), pending.totals.steps);
            info!(target: "a2store::recorder", folder = %self.folder.display(), games, steps, "wrote games");
        }
        let (mut freed, mut num_blocks, mut ram) = (Vec::new(), 0, 0);
        for mut game in pending.games {
            ram += ram_of(&game.rows);
            freed.append(&mut game.rows.take_blocks());
            if freed.len() >= BLOCKS_AT_ONCE {
                num_blocks += freed.len();
                let mut state = self.lock();
                state.free_blocks.append(&mut freed);
                state.ram -= std::mem::take(&mut ram);
                drop(state);
                self.wake_waiters.notify_all();
            }
        }
        num_blocks += freed.len();
        let mut state = self.lock();
        state.free_blocks.append(&mut freed);
        state.ram -= ram;
        // The next flush needs about as many blocks. The rest is returned to the allocator.
        let keep = state.free_blocks.len().min(num_blocks);
        let unneeded = if is_empty { Vec::new() } else { state.free_blocks.split_off(keep) };
        (state.num_durable, state.sink_bytes) = (sink.num_durable(), sink.num_bytes());
        state.rotations += u64::from(!is_empty);
        (state.writing, state.is_writing, state.failure) = (Default::default(), false, None);
        state.flush_done = state.flush_begun;
        self.reset_thresholds(&mut state);
        drop(state);
        drop(unneeded);
        self.wake_waiters.notify_all();
        true
    }

    /// Puts the games of a failed flush back and stores its error. Returns false.
    fn flush_failed(
        &self,
        mut state: MutexGuard<'_, RecorderState>,
        mut pending: UnflushedGames,
        error: Error,
    ) -> bool {
        let games = pending.games.len();
        warn!(
            target: "a2store::recorder",
            folder = %self.folder.display(),
            games,
            %error,
            "could not write games; they stay in memory, and a later flush tries again"
        );
        pending.games.append(&mut state.unflushed.games);
        pending.totals.add(state.unflushed.totals);
        state.unflushed = pending;
        let flush = state.flush_begun;
        state.set_failure(flush, error);
        (state.writing, state.is_writing, state.flush_done) = (Default::default(), false, flush);
        self.reset_thresholds(&mut state);
        // Retry after as many new steps. Memory use triggers no retry, because threads that wait for memory request
        // one.
        state.thresholds.steps = state.unflushed.totals.steps.saturating_add(self.rotate_steps);
        state.thresholds.ram = u64::MAX;
        drop(state);
        self.wake_waiters.notify_all();
        false
    }

    fn reset_thresholds(&self, state: &mut RecorderState) {
        state.thresholds.steps = self.rotate_steps;
        state.thresholds.ram = self.ram_budget / 100 * RAM_PERCENT;
        state.thresholds.time = self.rotate_every.and_then(|every| Instant::now().checked_add(every));
    }

    /// Flushes all games and closes the sink. Returns whether the recorder is closed.
    fn close_sink(&self, sink: &mut dyn Sink) -> bool {
        // No game can end any more, so one flush takes all of them. Games that ended during it need a second one.
        while self.flush(sink) {
            let state = self.lock();
            if !state.unflushed.games.is_empty() {
                continue;
            }
            let counts = state.counts;
            drop(state);
            let live = counts.begun - counts.abandoned - counts.ended;
            let closing = Closing { finished: true, abandoned: counts.abandoned, live };
            let closed = catch_sink_panic(|| sink.close(&closing)).and_then(|()| match &self.journal {
                Some(_) => remove_all(&self.folder),
                None => Ok(()),
            });
            let closed = closed.and_then(|()| self.status.as_ref().map_or(Ok(()), |status| status.remove()));
            let mut state = self.lock();
            match closed {
                Ok(()) => {
                    state.sink_bytes = sink.num_bytes();
                    let report = RecorderReport {
                        folder: self.folder.clone(),
                        runs: counts.ended,
                        steps: counts.steps,
                        rotations: state.rotations,
                        abandoned: counts.abandoned,
                        refused: state.refused,
                        live,
                        num_bytes: state.sink_bytes,
                        elapsed: self.started.elapsed(),
                    };
                    info!(
                        target: "a2store::recorder",
                        folder = %self.folder.display(),
                        runs = report.runs,
                        steps = report.steps,
                        seconds = report.elapsed.as_secs_f64(),
                        "closed a recorder"
                    );
                    state.phase = RecorderPhase::Closed(Box::new(report));
                    state.free_blocks = Vec::new();
                    drop(state);
                    self.wake_waiters.notify_all();
                    return true;
                }
                Err(error) => {
                    let flush = state.flush_begun;
                    state.set_failure(flush, error);
                    drop(state);
                    break;
                }
            }
        }
        let mut state = self.lock();
        if matches!(state.phase, RecorderPhase::Closing) {
            state.phase = RecorderPhase::Open;
        }
        drop(state);
        self.wake_waiters.notify_all();
        false
    }
}

impl RecorderState {
    /// Begins a flush, and takes all unflushed games.
    fn take(&mut self) -> UnflushedGames {
        self.flush_begun += 1;
        self.is_writing = true;
        self.writing = self.unflushed.totals;
        std::mem::take(&mut self.unflushed)
    }
}

/// Runs a call of a sink and turns a panic into an error.
fn catch_sink_panic(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(Error::other("the sink panicked")))
}
