//! Making batches ahead of the consumer, in reused memory.
//!
//! A thread makes the next batches and stays `prefetch` of them ahead. If the consumer requests a batch that is
//! not ready, it makes the next unstarted batch itself instead of waiting. So a consumer with work of its own
//! never waits, and one without has two threads at work. A batch does not depend on the thread that makes it.
//!
//! A large batch is made in pieces, and each thread can be stopped between two pieces. If its thread is stopped
//! or memory runs out, a batch is left unfinished. The next thread that looks for work makes that batch again.
//! If it fails again, the consumer receives the error.

use super::order::Order;
use super::{Cursor, Loader, LoaderOptions, Shard};
use crate::error::{ErrorKind, Result};
use crate::machine::{available_bytes, reserve};
use crate::progress::{Cancellable, Progress, check};
use crate::table::{Arena, ArenaPool, Batch, BatchSchema, StepTable, SymmetryKey};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The batches of one epoch on one rank; see [`Loader::batches`]. Dropping it ends its thread.
pub struct Batches {
    maker: Maker,
    ring: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
    /// The number of batches that were returned, and the total.
    taken: u64,
    num_steps: u64,
    cursor: Arc<Mutex<Cursor>>,
    generation: u64,
    /// The process that started the thread. Threads do not survive a fork.
    process: u32,
}

/// The maximum number of batches whose memory is allocated in advance.
const MADE_AT_ONCE: usize = 16;
/// The batch size in bytes from which available memory is checked first. The system may overcommit memory, and
/// then kill the process when it uses that memory.
const LARGE: u64 = 1 << 30;
/// The interval at which a waiting consumer checks for cancellation.
const PERIOD: Duration = Duration::from_millis(50);

/// Fills batches. Each thread has its own maker.
#[derive(Clone)]
struct Maker {
    shard: Shard,
    /// The position at which the first batch begins.
    start: u64,
    table: StepTable,
    schema: Arc<BatchSchema>,
    order: Order,
    symmetries: Option<SymmetryKey>,
    positions: Vec<u64>,
    rows: Vec<u64>,
}

/// The batches that the threads make and the consumer takes.
struct Ring {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether no more batches are wanted.
    is_stopped: AtomicBool,
}

/// A batch that was started and not yet returned.
enum Slot {
    /// A thread is making it.
    Begun,
    Made(Batch),
    /// Its thread gave up, so the batch must be made again.
    GivenUp,
}

struct State {
    /// The next unstarted batch, and the next batch to return.
    next: u64,
    taken: u64,
    num_steps: u64,
    /// The number of ready batches at which the thread rests, and their current number.
    depth: u64,
    ready: u64,
    /// Batches that were started and not yet returned, in order, and the number of them that were given up.
    slots: VecDeque<Slot>,
    given_up: usize,
    pool: ArenaPool,
    /// The maximum number of rows of a batch.
    capacity: usize,
    /// Whether a thread waits for a change.
    is_awaited: bool,
    has_failed: bool,
}

impl Batches {
    pub(super) fn new(loader: &Loader, cursor: Cursor) -> Result<Batches> {
        let (epoch, start) = (cursor.epoch, cursor.position);
        let LoaderOptions { seed, prefetch, batch_size, symmetries, .. } = loader.options;
        let num_steps = loader.shard.num_steps(start);
        let maker = Maker {
            shard: loader.shard,
            start,
            table: loader.table.clone(),
            schema: Arc::clone(&loader.schema),
            order: loader.plan.order(loader.table.num_rows(), seed, epoch)?,
            symmetries: symmetries.then(|| SymmetryKey::new(seed, epoch)),
            positions: Vec::new(),
            rows: Vec::new(),
        };
        let capacity = batch_size.min(usize::try_from(loader.shard.num_rows).unwrap_or(usize::MAX));
        let ring = Ring::new(num_steps, prefetch as u64, &loader.schema, capacity)?;
        let thread = match prefetch {
            0 => None,
            _ => {
                let (mut maker, ring) = (maker.clone(), Arc::clone(&ring));
                let work = move || {
                    let progress = Cancellable::new(&(), &ring.is_stopped);
                    ring.make_all(&mut maker, &progress);
                };
                Some(std::thread::Builder::new().name("a2store-loader".into()).spawn(work)?)
            }
        };
        let (cursor, generation) = (Arc::clone(&loader.cursor), cursor.generation);
        Ok(Batches { maker, ring, thread, taken: 0, num_steps, cursor, generation, process: std::process::id() })
    }
}

impl Iterator for Batches {
    type Item = Batch;

    /// Returns the next batch.
    ///
    /// # Panics
    /// If the memory of a batch cannot be allocated, which
    /// [`next_unless_cancelled`](Batches::next_unless_cancelled) returns as an error, or if the thread that
    /// makes the batches panicked. An epoch never ends early without an error.
    fn next(&mut self) -> Option<Batch> {
        self.next_unless_cancelled(&()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.num_steps - self.taken;
        (remaining as usize, usize::try_from(remaining).ok())
    }
}

impl Batches {
    /// Returns the next batch, or `None` after the last. After an error, the next call returns the same batch.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the memory of a batch cannot be allocated, and [`ErrorKind::Cancelled`].
    /// Cancellation is checked every few milliseconds of work, and while waiting for the other thread.
    ///
    /// # Panics
    /// If the thread that makes the batches panicked.
    pub fn next_unless_cancelled(&mut self, progress: &dyn Progress) -> Result<Option<Batch>> {
        if self.taken == self.num_steps {
            return Ok(None);
        }
        self.go_on_after_fork()?;
        let batch = self.ring.take(&mut self.maker, progress)?;
        self.taken += 1;
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor.generation == self.generation {
            cursor.position = self.maker.position(self.taken);
        }
        Ok(Some(batch))
    }

    /// In a forked child, replaces the parent's thread by this one.
    fn go_on_after_fork(&mut self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        // After a fork, the parent's thread may hold the ring's lock, and this process cannot wait for that
        // thread.
        let Maker { shard, start, .. } = self.maker;
        let capacity = shard.batch_size.min(shard.num_rows) as usize;
        let ring = Ring::new(self.num_steps - self.taken, 0, &self.maker.schema, capacity)?;
        self.maker.start = (start + self.taken * shard.rows_per_step()).min(shard.num_rows);
        self.num_steps -= self.taken;
        self.taken = 0;
        std::mem::forget(std::mem::replace(&mut self.ring, ring));
        std::mem::forget(self.thread.take());
        self.process = std::process::id();
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // This process must not wait for or free anything that the parent's thread holds.
            std::mem::forget(Arc::clone(&self.ring));
            std::mem::forget(self.thread.take());
        } else if let Some(thread) = self.thread.take() {
            {
                // A thread that is about to sleep holds the lock until it sleeps.
                let _state = self.ring.lock();
                self.ring.is_stopped.store(true, Ordering::Relaxed);
            }
            self.ring.changed.notify_all();
            let _ = thread.join();
        }
    }
}

impl Ring {
    fn new(num_steps: u64, depth: u64, schema: &BatchSchema, capacity: usize) -> Result<Arc<Ring>> {
        let needed = (schema.width() as u64).saturating_mul(capacity as u64);
        if needed >= LARGE && available_bytes().is_some_and(|available| needed > available) {
            return Err(ErrorKind::OutOfMemory { needed }.into());
        }
        let state = State {
            next: 0,
            taken: 0,
            num_steps,
            depth,
            ready: 0,
            // The ready batches, one that the consumer made while it waited, and one in progress per thread.
            slots: VecDeque::with_capacity(depth as usize + 4),
            given_up: 0,
            // The slots, and a few batches that the consumer holds. The pool allocates all of them now, up to a
            // limit. The system provides their pages on the first write.
            pool: ArenaPool::filled(depth as usize + 8, schema, capacity, MADE_AT_ONCE)?,
            capacity,
            is_awaited: false,
            has_failed: false,
        };
        Ok(Arc::new(Ring { state: Mutex::new(state), changed: Condvar::new(), is_stopped: AtomicBool::new(false) }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until something changes or the timeout expires.
    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        state.is_awaited = true;
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes sleeping threads. It makes no system call if there are none.
    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.is_awaited) {
            self.changed.notify_all();
        }
    }

    /// Makes batches until all are made, no more are wanted, or one fails. After a failure, the consumer makes
    /// that batch and all later ones, and receives the errors.
    fn make_all(&self, maker: &mut Maker, progress: &dyn Progress) {
        let mut state = self.lock();
        while !progress.is_cancelled() {
            if state.given_up == 0 && state.next == state.num_steps {
                return;
            }
            if state.given_up == 0 && state.ready >= state.depth {
                state = self.wait(state, Duration::MAX);
                continue;
            }
            let step = state.begin();
            let (after, made) = self.make_one(state, step, maker, progress);
            state = after;
            self.wake(&mut state);
            if made.is_err() {
                return;
            }
        }
    }

    /// Makes a started batch without holding the lock.
    fn make_one<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        step: u64,
        maker: &mut Maker,
        progress: &dyn Progress,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let capacity = state.capacity;
        let mut arena = match state.pool.take(&maker.schema, capacity) {
            Ok(arena) => arena,
            Err(error) => {
                state.finish(step, Slot::GivenUp);
                return (state, Err(error));
            }
        };
        drop(state);
        let num_rows = {
            let _failure = Failure(self);
            Arc::get_mut(&mut arena).map_or(Ok(0), |arena| maker.fill(step, arena, progress))
        };
        let mut state = self.lock();
        state.pool.keep(&arena);
        match num_rows {
            Ok(num_rows) => {
                let batch = Batch::new(arena, Arc::clone(&maker.schema), num_rows);
                state.finish(step, Slot::Made(batch));
                (state, Ok(()))
            }
            Err(error) => {
                state.finish(step, Slot::GivenUp);
                (state, Err(error))
            }
        }
    }

    /// Returns the next batch. Until it is ready, this thread makes other batches.
    fn take(&self, maker: &mut Maker, progress: &dyn Progress) -> Result<Batch> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.hand_out() {
                self.wake(&mut state);
                return Ok(batch);
            }
            assert!(!state.has_failed, "the thread that makes the batches panicked");
            if state.given_up > 0 || (state.next < state.num_steps && state.ready <= state.depth) {
                let step = state.begin();
                let (after, made) = self.make_one(state, step, maker, progress);
                made?;
                state = after;
            } else {
                state = self.wait(state, PERIOD);
                check(progress)?;
            }
        }
    }
}

impl State {
    /// Starts the first batch that was given up, or else the next batch, and returns its number.
    fn begin(&mut self) -> u64 {
        if self.given_up > 0
            && let Some(place) = self.slots.iter().position(|slot| matches!(slot, Slot::GivenUp))
        {
            self.given_up -= 1;
            self.slots[place] = Slot::Begun;
            return self.taken + place as u64;
        }
        self.slots.push_back(Slot::Begun);
        self.next += 1;
        self.next - 1
    }

    /// Records the outcome of a started batch.
    fn finish(&mut self, step: u64, outcome: Slot) {
        match outcome {
            Slot::Made(_) => self.ready += 1,
            Slot::GivenUp => self.given_up += 1,
            Slot::Begun => {}
        }
        if let Some(slot) = self.slots.get_mut((step - self.taken) as usize) {
            *slot = outcome;
        }
    }

    /// Returns the next batch if it is ready.
    fn hand_out(&mut self) -> Option<Batch> {
        let Some(Slot::Made(_)) = self.slots.front() else {
            return None;
        };
        self.taken += 1;
        self.ready -= 1;
        match self.slots.pop_front() {
            Some(Slot::Made(batch)) => Some(batch),
            _ => None,
        }
    }
}

/// Records a panic of this thread, so that the other thread does not wait for it.
struct Failure<'a>(&'a Ring);

impl Drop for Failure<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = self.0.lock();
            state.has_failed = true;
            self.0.wake(&mut state);
        }
    }
}

impl Maker {
    /// Returns the position at which a batch's step begins.
    fn position(&self, step: u64) -> u64 {
        (self.start + step * self.shard.rows_per_step()).min(self.shard.num_rows)
    }

    /// Makes a batch and returns its number of rows.
    fn fill(&mut self, step: u64, arena: &mut Arena, progress: &dyn Progress) -> Result<usize> {
        let share = self.shard.share(self.position(step));
        let num_rows = (share.end - share.start) as usize;
        let at_once = self.schema.rows_at_once();
        // Reserves the capacity that any batch needs, so that no later batch allocates.
        for room in [&mut self.positions, &mut self.rows] {
            room.clear();
            reserve(room, arena.capacity().min(at_once))?;
        }
        let mut columns = arena.columns_mut(&self.schema, num_rows);
        for start in (0..num_rows).step_by(at_once) {
            if start > 0 {
                check(progress)?;
            }
            self.positions.resize(at_once.min(num_rows - start), 0);
            self.order.fill(&self.table, share.start + start as u64, &mut self.positions)?;
            let part = self.schema.split_front(&mut columns, self.positions.len());
            self.table.gather(&self.positions, &mut self.rows, &self.schema, part, self.symmetries)?;
        }
        Ok(num_rows)
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("remaining", &(self.num_steps - self.taken)).finish_non_exhaustive()
    }
}
