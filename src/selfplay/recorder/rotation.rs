//! The writer thread.
//!
//! A flush takes the list of all ended games and writes it while other games continue. A failed flush puts the games
//! back. It is retried when as many new steps have ended, when memory is used up, or on request.

use super::RecorderReport;
use super::journal::remove_all;
use super::shared::{Pending, Phase, Shared, State, ram_of};
use super::sink::{Closing, Sink};
use crate::error::{Error, Result};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

/// The percentage of the memory budget at which ended games are flushed. The rest is for games that run meanwhile.
const RAM_PERCENT: u64 = 40;
/// The number of blocks that are freed at a time.
const BLOCKS_AT_ONCE: usize = 512;

enum Order {
    Rotate,
    Close,
    Stop,
}

/// Flushes games until the recorder is closed.
pub(super) fn run(shared: &Shared, sink: &mut dyn Sink) {
    loop {
        match shared.order() {
            Order::Rotate => drop(shared.rotate_now(sink)),
            Order::Close => {
                if shared.close_now(sink) {
                    return;
                }
            }
            Order::Stop => return,
        }
    }
}

impl Shared {
    /// Sets when the first flush is due.
    pub(super) fn start(&self) {
        self.reset_due(&mut self.lock());
    }

    fn order(&self) -> Order {
        let mut state = self.lock();
        loop {
            match state.phase {
                Phase::Open if state.asked > state.begun || state.is_due() => return Order::Rotate,
                Phase::Open => {}
                Phase::Closing => return Order::Close,
                Phase::Closed(_) | Phase::Left => return Order::Stop,
            }
            state = match state.due.time.filter(|_| !state.ended.games.is_empty()) {
                Some(time) => {
                    let left = time.saturating_duration_since(Instant::now());
                    self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wait(&self.work, state),
            };
        }
    }

    /// Flushes all ended games. Returns whether they are durable.
    fn rotate_now(&self, sink: &mut dyn Sink) -> bool {
        let mut pending = match self.take() {
            Ok(pending) => pending,
            Err(error) => {
                let mut state = self.lock();
                state.begun += 1;
                return self.failed(state, Pending::default(), error);
            }
        };
        let games = Arc::new(std::mem::take(&mut pending.games));
        let written = if games.is_empty() { Ok(()) } else { caught(|| sink.write(&games)) };
        pending.games = Arc::into_inner(games).unwrap_or_default();
        match written {
            Ok(()) => {
                if let Some(journal) = &self.journal {
                    // A file that stays is removed later. It contains only games that are written.
                    let _ = journal.remove_old();
                }
                self.written(pending, sink)
            }
            Err(error) => self.failed(self.lock(), pending, error),
        }
    }

    /// Begins a flush with all ended games, and switches the journal to its next file.
    fn take(&self) -> Result<Pending> {
        let Some(journal) = &self.journal else {
            return Ok(self.lock().take());
        };
        loop {
            // Create the next file before the locks are held.
            let next = if self.lock().ended.games.is_empty() { None } else { Some(journal.prepare()?) };
            // This lock waits for games that are in the journal but not yet in the list.
            let mut inner = journal.lock_between_syncs();
            let mut state = self.lock();
            if next.is_none() && !state.ended.games.is_empty() {
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

    fn written(&self, pending: Pending, sink: &dyn Sink) -> bool {
        let is_empty = pending.games.is_empty();
        let (mut freed, mut num_blocks, mut ram) = (Vec::new(), 0, 0);
        for mut game in pending.games {
            ram += ram_of(&game.rows);
            freed.append(&mut game.rows.take_blocks());
            if freed.len() >= BLOCKS_AT_ONCE {
                num_blocks += freed.len();
                let mut state = self.lock();
                state.free.append(&mut freed);
                state.ram -= std::mem::take(&mut ram);
                drop(state);
                self.done.notify_all();
            }
        }
        num_blocks += freed.len();
        let mut state = self.lock();
        state.free.append(&mut freed);
        state.ram -= ram;
        // The next flush needs about as many blocks. The rest is returned to the allocator.
        let keep = state.free.len().min(num_blocks);
        let unneeded = if is_empty { Vec::new() } else { state.free.split_off(keep) };
        (state.num_durable, state.sink_bytes) = (sink.num_durable(), sink.num_bytes());
        state.rotations += u64::from(!is_empty);
        (state.taken, state.is_writing, state.failure) = (Default::default(), false, None);
        state.done = state.begun;
        self.reset_due(&mut state);
        drop(state);
        drop(unneeded);
        self.done.notify_all();
        true
    }

    fn failed(&self, mut state: MutexGuard<'_, State>, mut pending: Pending, error: Error) -> bool {
        pending.games.append(&mut state.ended.games);
        pending.totals.add(state.ended.totals);
        state.ended = pending;
        let rotation = state.begun;
        state.fail(rotation, error);
        (state.taken, state.is_writing, state.done) = (Default::default(), false, rotation);
        self.reset_due(&mut state);
        // Retry after as many new steps. Memory use triggers no retry, because threads that wait for memory request
        // one.
        state.due.steps = state.ended.totals.steps.saturating_add(self.rotate_steps);
        state.due.ram = u64::MAX;
        drop(state);
        self.done.notify_all();
        false
    }

    fn reset_due(&self, state: &mut State) {
        state.due.steps = self.rotate_steps;
        state.due.ram = self.ram_budget / 100 * RAM_PERCENT;
        state.due.time = self.rotate_every.and_then(|every| Instant::now().checked_add(every));
    }

    fn close_now(&self, sink: &mut dyn Sink) -> bool {
        // No game can end any more, so one flush takes all of them. Games that ended during it need a second one.
        while self.rotate_now(sink) {
            let state = self.lock();
            if !state.ended.games.is_empty() {
                continue;
            }
            let counts = state.counts;
            drop(state);
            let live = counts.begun - counts.abandoned - counts.ended;
            let closing = Closing { finished: true, abandoned: counts.abandoned, live };
            let closed = caught(|| sink.close(&closing)).and_then(|()| match &self.journal {
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
                    state.phase = Phase::Closed(Box::new(report));
                    state.free = Vec::new();
                    drop(state);
                    self.done.notify_all();
                    return true;
                }
                Err(error) => {
                    let rotation = state.begun;
                    state.fail(rotation, error);
                    drop(state);
                    break;
                }
            }
        }
        let mut state = self.lock();
        if matches!(state.phase, Phase::Closing) {
            state.phase = Phase::Open;
        }
        drop(state);
        self.done.notify_all();
        false
    }
}

impl State {
    fn take(&mut self) -> Pending {
        self.begun += 1;
        self.is_writing = true;
        self.taken = self.ended.totals;
        std::mem::take(&mut self.ended)
    }
}

/// Runs a call of a sink and turns a panic into an error.
fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome.unwrap_or_else(|_| Err(io::Error::other("the sink panicked").into()))
}
