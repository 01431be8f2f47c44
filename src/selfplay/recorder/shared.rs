//! The state that a recorder, its games and its writer thread share.
//!
//! Lock order: the journal, then the state. The state's lock is held only for short operations and never during file
//! access, so neither a flush nor a slow disk blocks a push.

use super::game::{EndedGame, Game};
use super::journal::Journal;
use super::limits::{Limit, Limits};
use super::rows::{BLOCK_COST, BLOCK_LEN, Block, Rows};
use super::sink::DiskCost;
use super::status::{Counts, Status};
use super::{RecorderReport, RecorderStats};
use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The memory of a game besides its blocks, in bytes.
pub(super) const GAME_COST: u64 = 384;

#[derive(Debug)]
pub(super) struct Shared {
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
    pub(super) process: u32,
    pub(super) folder: PathBuf,
    pub(super) journal: Option<Journal>,
    pub(super) status: Option<Status>,
    pub(super) state: Mutex<State>,
    /// Wakes the writer thread.
    pub(super) work: Condvar,
    /// Wakes threads that wait for a flush or for memory.
    pub(super) done: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) counts: Counts,
    pub(super) refused: u64,
    pub(super) next_id: u64,
    pub(super) free: Vec<Block>,
    /// The memory of all buffers in use, in bytes.
    pub(super) ram: u64,
    pub(super) ended: Pending,
    /// The totals of the games that are being written.
    pub(super) taken: Totals,
    pub(super) is_writing: bool,
    /// The numbers of the last flush that was requested, begun and done. A flush covers all flushes with lower
    /// numbers.
    pub(super) asked: u64,
    pub(super) begun: u64,
    pub(super) done: u64,
    /// When the next flush is due.
    pub(super) due: Due,
    pub(super) failure: Option<Failure>,
    pub(super) is_disk_full: bool,
    pub(super) num_durable: u64,
    pub(super) rotations: u64,
    pub(super) sink_bytes: u64,
}

/// Ended games that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) games: Vec<EndedGame>,
    pub(super) totals: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) steps: u64,
    pub(super) ram: u64,
    pub(super) disk: u64,
}

#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) steps: u64,
    pub(super) ram: u64,
    pub(super) time: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Failure {
    rotation: u64,
    error: Error,
    is_told: bool,
}

#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Open,
    Closing,
    Closed(Box<RecorderReport>),
    /// All handles were dropped without a successful close.
    Left,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'a>(&self, condvar: &Condvar, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        condvar.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn check_process(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(Error::argument("recorder", "one that this process created", "one that a fork inherited"))
    }

    pub(super) fn begin(self: &Arc<Self>, seed: Option<u64>) -> Result<Game> {
        self.check_process()?;
        let mut state = self.lock();
        state.check_open()?;
        state.tell_failure(0)?;
        self.check_limits(&state)?;
        state = self.make_room(state, GAME_COST)?;
        // Other games may have begun while this thread waited.
        self.check_limits(&state)?;
        state.ram += GAME_COST;
        state.counts.begun += 1;
        let counts = state.counts;
        drop(state);
        self.tell(counts);
        Ok(Game::new(self.clone(), seed))
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
        let keep = state.free.len().saturating_sub(count);
        let mut blocks = Vec::with_capacity(count);
        blocks.extend(state.free.drain(keep..));
        drop(state);
        blocks.resize_with(count, || Box::new([0; BLOCK_LEN]));
        Ok(blocks)
    }

    pub(super) fn end(&self, mut game: EndedGame) -> Result<u64> {
        self.check_process()?;
        // Keep the journal locked until the game is added to the list, so that the list is ordered by id.
        let mut journal = self.journal.as_ref().map(|journal| (journal, journal.lock()));
        let mut state = self.lock();
        let totals = self.totals_of(&game);
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
        state.ended.totals.add(totals);
        state.ended.games.push(game);
        let starts_clock = self.rotate_every.is_some() && state.ended.games.len() == 1;
        if starts_clock || state.is_due() {
            self.work.notify_one();
        }
        let counts = state.counts;
        drop(state);
        let journal = journal.map(|(journal, _)| journal);
        self.tell(counts);
        if let (Some(journal), Some(record)) = (journal, record)
            && let Err(error) = record.and_then(|record| journal.wait(record))
        {
            // A flush makes the game durable, and starts a new journal file.
            self.lock().ask();
            self.work.notify_one();
            return Err(error);
        }
        Ok(id)
    }

    /// Counts an abandoned game and frees its memory.
    pub(super) fn abandon(&self, mut rows: Rows) {
        if self.check_process().is_err() {
            return;
        }
        let mut state = self.lock();
        state.counts.abandoned += 1;
        let counts = state.counts;
        self.release(state, &mut rows);
        self.tell(counts);
    }

    /// Returns the limit because of which no game can begin, and the amount that was reached.
    pub(super) fn reached(&self, state: &State) -> Option<(Limit, String)> {
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
            let written = state.sink_bytes + state.taken.disk + state.ended.totals.disk;
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

    fn check_limits(&self, state: &State) -> Result<()> {
        match self.reached(state) {
            Some((limit, found)) => Err(limit.error(&self.limits, found)),
            None => Ok(()),
        }
    }

    fn check_disk(&self, state: &mut State, more: u64) -> Result<()> {
        let needed = state.sink_bytes + self.cost.fixed + state.taken.disk + state.ended.totals.disk + more;
        if needed <= self.disk_budget {
            return Ok(());
        }
        state.is_disk_full = true;
        Err(Limit::Disk.error(&self.limits, format!("{needed} bytes with this game")))
    }

    fn totals_of(&self, game: &EndedGame) -> Totals {
        let steps = u64::from(game.num_rows());
        let in_journal = self.journal.as_ref().map_or(0, |_| 128 + steps * game.rows.stride() as u64);
        let disk = self.cost.per_game + steps * self.cost.per_step + in_journal;
        Totals { steps, ram: ram_of(&game.rows), disk }
    }

    /// Frees the memory of a game that is not kept.
    fn release(&self, mut state: MutexGuard<'_, State>, rows: &mut Rows) {
        state.ram -= ram_of(rows);
        state.free.append(&mut rows.take_blocks());
        drop(state);
        if self.counts_steps {
            self.live_steps.fetch_sub(u64::from(rows.len()), Ordering::Relaxed);
        }
        self.done.notify_all();
    }

    /// Waits until this many bytes of memory are free.
    fn make_room<'a>(&'a self, mut state: MutexGuard<'a, State>, bytes: u64) -> Result<MutexGuard<'a, State>> {
        let has_room = |state: &State| state.ram + bytes <= self.ram_budget;
        while !has_room(&state) {
            if state.ended.games.is_empty() && !state.is_writing {
                let live = state.counts.begun - state.counts.abandoned - state.counts.ended;
                let found =
                    format!("{} bytes, all of them in {live} running games, and {bytes} more needed", state.ram);
                return Err(Limit::Ram.error(&self.limits, found));
            }
            let rotation = if state.is_writing { state.begun } else { state.ask() };
            self.work.notify_one();
            while !has_room(&state) && state.done < rotation {
                state.check_open()?;
                state = self.wait(&self.done, state);
            }
            if !has_room(&state) {
                state.tell_failure(rotation)?;
            }
        }
        Ok(state)
    }

    /// Updates the counters in the status file. Errors are ignored, because only a recovery reads the file.
    fn tell(&self, counts: Counts) {
        if let Some(status) = &self.status {
            let _ = status.update(counts);
        }
    }
}

impl State {
    pub(super) fn check_open(&self) -> Result<()> {
        match self.phase {
            Phase::Open => Ok(()),
            _ => Err(Error::argument("recorder", "an open recorder", "a closed one")),
        }
    }

    /// Requests a flush of all games that have ended so far, and returns its number.
    pub(super) fn ask(&mut self) -> u64 {
        self.asked = self.asked.max(self.begun + 1);
        self.begun + 1
    }

    pub(super) fn is_due(&self) -> bool {
        let Pending { games, totals } = &self.ended;
        let is_late = || self.due.time.is_some_and(|time| Instant::now() >= time);
        !games.is_empty() && (totals.steps >= self.due.steps || totals.ram >= self.due.ram || is_late())
    }

    pub(super) fn fail(&mut self, rotation: u64, error: Error) {
        self.failure = Some(Failure { rotation, error, is_told: false });
    }

    /// Returns the error of this flush or a later one. For 0, returns the last error if no caller has received it yet.
    pub(super) fn tell_failure(&mut self, rotation: u64) -> Result<()> {
        match &mut self.failure {
            Some(failure) if failure.rotation >= rotation && (rotation > 0 || !failure.is_told) => {
                failure.is_told = true;
                Err(again(&failure.error))
            }
            _ => Ok(()),
        }
    }
}

impl Totals {
    pub(super) fn add(&mut self, other: Totals) {
        self.steps += other.steps;
        self.ram += other.ram;
        self.disk += other.disk;
    }
}

pub(super) fn ram_of(rows: &Rows) -> u64 {
    GAME_COST + rows.num_blocks() as u64 * BLOCK_COST
}

/// Returns a copy of an error for another caller.
fn again(error: &Error) -> Error {
    match error.kind() {
        ErrorKind::Io { path, source } => {
            let source = match source.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(source.kind(), source.to_string()),
            };
            ErrorKind::Io { path: path.clone(), source }.into()
        }
        _ => io::Error::other(error.to_string()).into(),
    }
}
