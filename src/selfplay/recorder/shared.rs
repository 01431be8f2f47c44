//! The state that a recorder, its games and its writer thread share.
//!
//! Lock order: the journal, then the state. The state's lock is held only for short operations and never during file
//! access, so neither a flush nor a slow disk blocks a push.

use super::ended_game::EndedGame;
use super::game_rows::{BLOCK_COST, BLOCK_LEN, Block, GameRows};
use super::journal::Journal;
use super::limits::{Limit, Limits};
use super::report::RecorderStats;
use super::sink::DiskCost;
use super::state::{GAME_COST, GameTotals, RecorderState, ram_of};
use super::status::{Counts, StatusFile};
use crate::error::{Error, ErrorKind, Result};
use crate::process::ProcessId;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The state that the handles, the games and the writer thread of one recorder share.
#[derive(Debug)]
pub(super) struct SharedRecorder {
    pub(super) with_action: bool,
    pub(super) with_evs: bool,
    pub(super) sample_rate: u32,
    pub(super) limits: Limits,
    /// Whether `live_steps` is counted, which makes each push slightly slower.
    pub(super) counts_steps: bool,
    /// The number of kept steps, of ended and of running games.
    pub(super) live_steps: AtomicU64,
    pub(super) ram_budget: u64,
    pub(super) disk_budget: u64,
    pub(super) cost: DiskCost,
    pub(super) rotate_steps: u64,
    pub(super) rotate_every: Option<Duration>,
    pub(super) started: Instant,
    /// The process that created the recorder. A forked child has no writer thread and must not wait for it.
    pub(super) process: ProcessId,
    pub(super) folder: PathBuf,
    pub(super) journal: Option<Journal>,
    pub(super) status: Option<StatusFile>,
    pub(super) state: Mutex<RecorderState>,
    /// Wakes the writer thread.
    pub(super) wake_writer: Condvar,
    /// Wakes threads that wait for a flush or for memory.
    pub(super) wake_waiters: Condvar,
}

impl SharedRecorder {
    pub(super) fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(
        &self,
        condvar: &Condvar,
        state: MutexGuard<'a, RecorderState>,
    ) -> MutexGuard<'a, RecorderState> {
        condvar.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error in a forked child.
    pub(super) fn check_process(&self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        Err(Error::argument("recorder", "one that this process created", "one that a fork inherited"))
    }

    /// Counts a new game and its memory.
    pub(super) fn begin_game(&self) -> Result<()> {
        self.check_process()?;
        let mut state = self.lock();
        state.check_open()?;
        state.check_failure(0)?;
        self.check_limits(&state)?;
        state = self.make_room(state, GAME_COST)?;
        // Other games may have begun while this thread waited.
        self.check_limits(&state)?;
        state.ram += GAME_COST;
        state.counts.begun += 1;
        let counts = state.counts;
        drop(state);
        self.update_status(counts);
        Ok(())
    }

    /// Returns blocks for a game, and charges their memory to the recorder.
    #[cold]
    pub(super) fn blocks(&self, count: usize) -> Result<Vec<Block>> {
        self.check_process()?;
        let bytes = count as u64 * BLOCK_COST;
        let mut state = self.lock();
        state.check_open()?;
        state = self.make_room(state, bytes)?;
        state.ram += bytes;
        let keep = state.free_blocks.len().saturating_sub(count);
        let mut blocks = Vec::with_capacity(count);
        blocks.extend(state.free_blocks.drain(keep..));
        drop(state);
        blocks.resize_with(count, || Box::new([0; BLOCK_LEN]));
        Ok(blocks)
    }

    /// Adds an ended game to those that the next flush writes, and to the journal. Returns its id.
    pub(super) fn end_game(&self, mut game: EndedGame) -> Result<u64> {
        self.check_process()?;
        // Keep the journal locked until the game is added to the list, so that the list is ordered by id.
        let mut journal = self.journal.as_ref().map(|journal| (journal, journal.lock()));
        let mut state = self.lock();
        let totals = self.totals(&game);
        if let Err(error) = state.check_open().and_then(|()| self.check_disk(&mut state, totals.disk)) {
            state.refused += 1;
            state.counts.abandoned += 1;
            self.release(state, &mut game.rows);
            return Err(error);
        }
        game.id = state.next_id;
        state.next_id += 1;
        let id = game.id;
        let mut record = None;
        if let Some((journal, inner)) = &mut journal {
            drop(state);
            record = Some(journal.append(inner, &game));
            state = self.lock();
        }
        state.counts.ended += 1;
        state.counts.steps += u64::from(game.num_rows());
        state.unflushed.totals.add(totals);
        state.unflushed.games.push(game);
        let starts_timer = self.rotate_every.is_some() && state.unflushed.games.len() == 1;
        if starts_timer || state.is_flush_due() {
            self.wake_writer.notify_one();
        }
        let counts = state.counts;
        drop(state);
        let journal = journal.map(|(journal, _)| journal);
        self.update_status(counts);
        if let (Some(journal), Some(record)) = (journal, record)
            && let Err(error) = record.and_then(|record| journal.wait(record))
        {
            // A flush makes the game durable, and starts a new journal file.
            self.lock().request_flush();
            self.wake_writer.notify_one();
            return Err(kept(error));
        }
        Ok(id)
    }

    /// Counts an abandoned game and frees its memory.
    pub(super) fn abandon_game(&self, mut rows: GameRows) {
        if self.check_process().is_err() {
            return;
        }
        let mut state = self.lock();
        state.counts.abandoned += 1;
        let counts = state.counts;
        self.release(state, &mut rows);
        self.update_status(counts);
    }

    /// Returns the limit that was reached, if any, and the amount.
    pub(super) fn reached(&self, state: &RecorderState) -> Option<(Limit, String)> {
        let Limits { max_games, max_steps, .. } = self.limits;
        let games = state.counts.begun - state.counts.abandoned;
        let steps = self.live_steps.load(Ordering::Relaxed);
        if max_games.is_some_and(|max| games >= max) {
            return Some((Limit::Games, format!("{games} begun")));
        }
        if max_steps.is_some_and(|max| steps >= max) {
            return Some((Limit::Steps, format!("{steps} kept")));
        }
        if self.limits.wall().is_some_and(|max| self.started.elapsed() >= max) {
            return Some((Limit::Wall, format!("{} ms", self.started.elapsed().as_millis())));
        }
        if state.is_disk_full {
            let written = state.sink_bytes + state.writing.disk + state.unflushed.totals.disk;
            return Some((Limit::Disk, format!("{written} bytes, which the next game would exceed")));
        }
        None
    }

    pub(super) fn stats(&self) -> RecorderStats {
        let state = self.lock();
        let Counts { begun, abandoned, ended, steps } = state.counts;
        RecorderStats {
            begun,
            live: begun - abandoned - ended,
            ended,
            abandoned,
            refused: state.refused,
            steps,
            durable: state.num_durable,
            rotations: state.rotations,
            disk_bytes: state.sink_bytes,
            ram_bytes: state.ram,
            failure: state.failure.as_ref().map(|failure| failure.error.to_string()),
        }
    }

    fn check_limits(&self, state: &RecorderState) -> Result<()> {
        match self.reached(state) {
            Some((limit, found)) => Err(limit.error(&self.limits, found)),
            None => Ok(()),
        }
    }

    fn check_disk(&self, state: &mut RecorderState, more: u64) -> Result<()> {
        let needed = state.sink_bytes + self.cost.fixed + state.writing.disk + state.unflushed.totals.disk + more;
        if needed <= self.disk_budget {
            return Ok(());
        }
        state.is_disk_full = true;
        Err(Limit::Disk.error(&self.limits, format!("{needed} bytes with this game")))
    }

    fn totals(&self, game: &EndedGame) -> GameTotals {
        let steps = u64::from(game.num_rows());
        let in_journal = self.journal.as_ref().map_or(0, |_| 128 + steps * game.rows.stride() as u64);
        let disk = self.cost.per_game + steps * self.cost.per_step + in_journal;
        GameTotals { steps, ram: ram_of(&game.rows), disk }
    }

    /// Frees the memory of a game that is not kept.
    fn release(&self, mut state: MutexGuard<'_, RecorderState>, rows: &mut GameRows) {
        state.ram -= ram_of(rows);
        state.free_blocks.append(&mut rows.take_blocks());
        drop(state);
        if self.counts_steps {
            self.live_steps.fetch_sub(u64::from(rows.len()), Ordering::Relaxed);
        }
        self.wake_waiters.notify_all();
    }

    /// Waits until this many bytes of memory are free.
    fn make_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, RecorderState>,
        bytes: u64,
    ) -> Result<MutexGuard<'a, RecorderState>> {
        let has_room = |state: &RecorderState| state.ram + bytes <= self.ram_budget;
        while !has_room(&state) {
            if state.unflushed.games.is_empty() && !state.is_writing {
                let live = state.counts.begun - state.counts.abandoned - state.counts.ended;
                let found =
                    format!("{} bytes, all of them in {live} running games, and {bytes} more needed", state.ram);
                return Err(Limit::Ram.error(&self.limits, found));
            }
            let flush = if state.is_writing { state.flush_begun } else { state.request_flush() };
            self.wake_writer.notify_one();
            while !has_room(&state) && state.flush_done < flush {
                state.check_open()?;
                state = self.wait(&self.wake_waiters, state);
            }
            if !has_room(&state) {
                state.check_failure(flush)?;
            }
        }
        Ok(state)
    }

    /// Updates the counters in the status file. Errors are ignored, because only a recovery reads the file.
    fn update_status(&self, counts: Counts) {
        if let Some(status) = &self.status {
            let _ = status.update(counts);
        }
    }
}

/// The error of a journal that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{0}; the game is kept in memory, and the next rotation writes it")]
struct NotInJournal(#[source] io::Error);

/// Adds the note that the game is kept to an error of the journal.
fn kept(error: Error) -> Error {
    match error.into_kind() {
        ErrorKind::Io { path, source } => {
            let source = io::Error::new(source.kind(), NotInJournal(source));
            ErrorKind::Io { path, source }.into()
        }
        other => other.into(),
    }
}
