//! The state that a recorder, its games and its thread share: limits, memory and rotations.
//!
//! Lock order: the sink, then the state. The state's lock is held only for short operations and never during file
//! access, so a rotation blocks no push unless the memory is used up.

use super::buffer::{FinishedGame, GAME_COST, SessionBuffer};
use super::options::{RecorderOptions, RecorderStats};
use super::rows::GameRows;
use super::sink::{Sink, SinkFormat};
use crate::error::{Error, ErrorKind, Result};
use crate::system::process::{ProcessId, lock};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The percentage of the memory budget at which ended games are written. The rest is for games that run meanwhile.
const RAM_PERCENT: u64 = 40;
/// The thread waits this long after a failed rotation.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The state that the handles, the games and the thread of one recorder share.
#[derive(Debug)]
pub(super) struct SharedRecorder {
    pub(super) options: RecorderOptions,
    pub(super) format: SinkFormat,
    ram_budget: u64,
    disk_budget: u64,
    started: Instant,
    /// The process that created the recorder. A forked child has no thread, and its locks may stay held forever.
    process: ProcessId,
    /// Held during a rotation.
    sink: Mutex<Box<dyn Sink>>,
    state: Mutex<RecorderState>,
    /// Wakes the thread that writes games when a rotation is due.
    wake: Condvar,
}

/// The part of the state under the lock.
#[derive(Debug, Default)]
pub(super) struct RecorderState {
    phase: Phase,
    pub(super) stats: RecorderStats,
    pub(super) sessions: Vec<PathBuf>,
    /// The ended games that the next rotation writes.
    buffer: SessionBuffer,
    /// An upper bound of the disk space of all games that are not written, in bytes.
    unwritten_disk: u64,
    /// Whether a game was rejected because of `max_disk_mb`.
    is_disk_full: bool,
    /// The error of the thread's last rotation, until a caller has received it.
    unreported: Option<Error>,
    /// The earliest time of the next rotation by the thread.
    not_before: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// `close` writes the last games.
    Closing,
    Closed,
}

impl SharedRecorder {
    pub(super) fn new(options: RecorderOptions, sink: Box<dyn Sink>) -> SharedRecorder {
        SharedRecorder {
            format: sink.format(),
            ram_budget: options.ram_budget(),
            disk_budget: options.disk_budget(),
            options,
            started: Instant::now(),
            process: ProcessId::current(),
            sink: Mutex::new(sink),
            state: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecorderState> {
        lock(&self.state)
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
        if let Some(error) = state.unreported.take() {
            return Err(error);
        }
        self.check_limits(&state)?;
        state = self.make_room(state, GAME_COST)?;
        // Other games may have begun while this thread waited.
        self.check_limits(&state)?;
        state.stats.ram_bytes += GAME_COST;
        state.stats.begun += 1;
        state.stats.live += 1;
        Ok(())
    }

    /// Charges memory for the steps of a game to the recorder.
    #[cold]
    pub(super) fn charge(&self, bytes: u64) -> Result<()> {
        self.check_process()?;
        let state = self.lock();
        state.check_open()?;
        self.make_room(state, bytes)?.stats.ram_bytes += bytes;
        Ok(())
    }

    /// Adds an ended game to the buffer, and returns its id.
    pub(super) fn end_game(&self, mut game: FinishedGame) -> Result<u64> {
        self.check_process()?;
        let kept = u64::from(game.rows.len);
        let disk = self.format.bytes_per_game + kept * self.format.bytes_per_step;
        let mut state = self.lock();
        if let Err(error) = state.check_open().and_then(|()| self.check_disk(&mut state, disk)) {
            state.release(&game.rows);
            return Err(error);
        }
        game.id = state.stats.ended;
        let id = game.id;
        state.stats.live -= 1;
        state.stats.ended += 1;
        state.stats.steps += kept;
        state.unwritten_disk += disk;
        state.buffer.push(game, disk);
        if state.buffer.games.len() == 1 || self.is_large(&state.buffer) {
            self.wake.notify_one();
        }
        Ok(id)
    }

    /// Counts an abandoned game, whose memory is freed.
    pub(super) fn abandon_game(&self, rows: &GameRows) {
        if self.check_process().is_ok() {
            self.lock().release(rows);
        }
    }

    /// Returns an error if a limit was reached.
    pub(super) fn check_limits(&self, state: &RecorderState) -> Result<()> {
        let RecorderOptions { max_games, max_steps, max_wall_ms, .. } = self.options;
        let begun = state.stats.begun - state.stats.abandoned;
        if let Some(most) = max_games.filter(|&most| begun >= most) {
            return Err(limit_error("games", most.to_string(), format!("{begun} begun")));
        }
        if let Some(most) = max_steps.filter(|&most| state.stats.steps >= most) {
            return Err(limit_error("steps", most.to_string(), format!("{} kept", state.stats.steps)));
        }
        let elapsed = self.started.elapsed().as_millis();
        if let Some(most) = max_wall_ms.filter(|&most| elapsed >= u128::from(most)) {
            return Err(limit_error("wall", format!("{most} ms"), format!("{elapsed} ms")));
        }
        if state.is_disk_full {
            let written = state.stats.disk_bytes + state.unwritten_disk;
            return Err(self.disk_error(format!("{written} bytes, which the next game would exceed")));
        }
        Ok(())
    }

    fn check_disk(&self, state: &mut RecorderState, more: u64) -> Result<()> {
        // A rotation may be writing some of the games, and the next one writes the rest.
        let writes = 2 * self.format.bytes_per_write;
        let needed = state.stats.disk_bytes + writes + state.unwritten_disk + more;
        if needed <= self.disk_budget {
            return Ok(());
        }
        state.is_disk_full = true;
        Err(self.disk_error(format!("{needed} bytes with this game")))
    }

    fn disk_error(&self, found: String) -> Error {
        limit_error("disk", format!("{} MB", self.options.max_disk_mb.unwrap_or_default()), found)
    }

    /// Waits until this many bytes of memory are free. Writes the ended games if no other thread is doing that.
    fn make_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, RecorderState>,
        bytes: u64,
    ) -> Result<MutexGuard<'a, RecorderState>> {
        let has_room = |state: &RecorderState| state.stats.ram_bytes + bytes <= self.ram_budget;
        while !has_room(&state) {
            drop(state);
            let mut sink = lock(&self.sink);
            state = self.lock();
            state.check_open()?;
            if has_room(&state) {
                break;
            }
            if state.buffer.games.is_empty() {
                let (ram, live) = (state.stats.ram_bytes, state.stats.live);
                let found = format!("{ram} bytes, all of them in {live} running games, and {bytes} more needed");
                let allowed = match self.options.max_ram_mb {
                    Some(mb) => format!("{mb} MB"),
                    None => "half of the machine's memory".into(),
                };
                return Err(limit_error("ram", allowed, found));
            }
            drop(state);
            self.rotate_into(&mut **sink)?;
            state = self.lock();
        }
        Ok(state)
    }

    /// Writes all ended games, and returns the number of durable games. After an error they stay in the buffer.
    pub(super) fn rotate(&self) -> Result<u64> {
        self.check_process()?;
        self.lock().check_open()?;
        self.rotate_into(&mut **lock(&self.sink))?;
        Ok(self.lock().stats.durable)
    }

    fn rotate_into(&self, sink: &mut dyn Sink) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.lock().buffer);
        if buffer.games.is_empty() {
            return Ok(());
        }
        let (num_games, steps) = (buffer.games.len(), buffer.steps);
        let games = Arc::new(std::mem::take(&mut buffer.games));
        // The caller may be a job of a thread pool. If it waits for that pool here, it may run another job that needs the
        // sink's lock, which it holds. So another thread writes.
        let written = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("a2store-rotation".into());
            let thread = thread.spawn_scoped(scope, || sink.write(&games))?;
            thread.join().unwrap_or_else(|_| Err(Error::other("the thread that wrote the games panicked")))
        });
        buffer.games = Arc::unwrap_or_clone(games);
        let sessions = match written {
            Ok(sessions) => sessions,
            Err(error) => {
                warn!(
                    target: "a2store::recorder",
                    tag = self.options.tag,
                    games = num_games,
                    %error,
                    "could not write games; they stay in memory, and a later rotation writes them"
                );
                let mut state = self.lock();
                let later = std::mem::replace(&mut state.buffer, buffer);
                state.buffer.append(later);
                state.stats.failure = Some(error.to_string());
                state.not_before = Instant::now().checked_add(PAUSE_AFTER_FAILURE);
                self.wake.notify_one();
                return Err(error);
            }
        };
        info!(target: "a2store::recorder", tag = self.options.tag, games = num_games, steps, "wrote games");
        let mut state = self.lock();
        state.stats.ram_bytes -= buffer.ram;
        state.unwritten_disk -= buffer.disk;
        state.stats.durable += num_games as u64;
        state.stats.rotations += 1;
        state.stats.disk_bytes = sink.num_bytes();
        state.sessions.extend(sessions);
        (state.stats.failure, state.unreported, state.not_before) = (None, None, None);
        Ok(())
    }

    /// Writes games whenever a rotation is due, until the recorder is closed.
    pub(super) fn rotate_when_due(&self) {
        let mut state = self.lock();
        while state.phase != Phase::Closed {
            state = match self.due_in(&state) {
                Some(Duration::ZERO) => {
                    drop(state);
                    let mut sink = lock(&self.sink);
                    // Another thread may have written the games meanwhile.
                    let is_due = self.due_in(&self.lock()) == Some(Duration::ZERO);
                    let rotated = if is_due { self.rotate_into(&mut **sink) } else { Ok(()) };
                    let mut state = self.lock();
                    state.unreported = rotated.err().or(state.unreported.take());
                    state
                }
                Some(wait) => self.wake.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns the time until the next rotation; `None` while none is expected.
    fn due_in(&self, state: &RecorderState) -> Option<Duration> {
        let (since, now) = (state.buffer.since?, Instant::now());
        let due = match self.options.rotate_every {
            _ if self.is_large(&state.buffer) => now,
            // A time beyond the clock's range never comes.
            every => since.checked_add(every?)?,
        };
        Some(due.max(state.not_before.unwrap_or(due)).saturating_duration_since(now))
    }

    /// Returns whether the buffer is written without waiting any longer.
    fn is_large(&self, buffer: &SessionBuffer) -> bool {
        buffer.steps >= self.options.rotate_steps || buffer.ram >= self.ram_budget / 100 * RAM_PERCENT
    }

    /// Writes all ended games and closes the recorder. After an error it is open again.
    pub(super) fn close(&self) -> Result<RecorderStats> {
        self.check_process()?;
        let mut sink = lock(&self.sink);
        let mut state = self.lock();
        if state.phase == Phase::Closed {
            return Ok(state.stats.clone());
        }
        state.phase = Phase::Closing;
        drop(state);
        // No game can end any more, so one rotation writes all of them.
        let rotated = self.rotate_into(&mut **sink);
        let mut state = self.lock();
        if let Err(error) = rotated {
            state.phase = Phase::Open;
            return Err(error);
        }
        let stats = state.stats.clone();
        info!(
            target: "a2store::recorder",
            tag = self.options.tag,
            runs = stats.ended,
            steps = stats.steps,
            seconds = self.started.elapsed().as_secs_f64(),
            "closed a recorder"
        );
        drop(state);
        self.give_up();
        Ok(stats)
    }

    /// Ends the recorder, even if it has unwritten games.
    pub(super) fn give_up(&self) {
        self.lock().phase = Phase::Closed;
        self.wake.notify_all();
    }
}

impl RecorderState {
    /// Returns an error unless the recorder is open.
    fn check_open(&self) -> Result<()> {
        match self.phase {
            Phase::Open => Ok(()),
            Phase::Closing | Phase::Closed => Err(Error::argument("recorder", "an open recorder", "a closed one")),
        }
    }

    /// Counts a game that is not kept, whose memory is freed.
    fn release(&mut self, rows: &GameRows) {
        self.stats.live -= 1;
        self.stats.abandoned += 1;
        self.stats.ram_bytes -= GAME_COST + rows.ram();
    }
}

#[cold]
fn limit_error(limit: &'static str, allowed: String, found: String) -> Error {
    ErrorKind::RecorderLimit { limit, allowed, found }.into()
}
