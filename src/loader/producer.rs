//! Making batches ahead of whoever takes them, in memory that is used again.
//!
//! A thread makes the next batches and stays `prefetch` of them ahead. Whoever asks for one that is not ready makes the
//! next that nobody has begun, instead of waiting: so a consumer that computes never waits, and one that does nothing else
//! has two threads at work. Which thread makes a batch changes nothing about it.

use super::order::Order;
use super::{Cursor, Loader, LoaderOptions, Shard};
use crate::error::Result;
use crate::table::{Arena, Batch, BatchSchema, Pool, StepTable, SymmetryKey};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The batches of one epoch on one rank; see [`Loader::batches`]. Dropping it ends its thread.
pub struct Batches {
    maker: Maker,
    ring: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
    /// Batches that were handed out, and in all.
    taken: u64,
    num_steps: u64,
    cursor: Arc<Mutex<Cursor>>,
    generation: u64,
    /// The process that began it: threads do not survive a fork.
    process: u32,
}

/// The most batches whose memory is there before they are made.
const MADE_AT_ONCE: usize = 16;

/// Fills batches. Each thread has its own.
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

/// Batches between those who make them and the one who takes them.
struct Ring {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The next batch that nobody has begun, and the next to hand out.
    next: u64,
    taken: u64,
    num_steps: u64,
    /// Batches that lie ready before the thread rests, and how many do.
    depth: u64,
    ready: u64,
    /// Those that were begun and not handed out, in order; `None` while one is being made.
    made: VecDeque<Option<Batch>>,
    pool: Pool,
    /// Rows that a batch has room for.
    capacity: usize,
    /// Whether someone sleeps until something changes.
    is_awaited: bool,
    is_stopped: bool,
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
        let ring = Ring::new(num_steps, prefetch as u64, &loader.schema, capacity);
        let thread = match prefetch {
            0 => None,
            _ => {
                let (mut maker, ring) = (maker.clone(), Arc::clone(&ring));
                let work = move || ring.make_all(&mut maker);
                Some(std::thread::Builder::new().name("a2store-loader".into()).spawn(work)?)
            }
        };
        let (cursor, generation) = (Arc::clone(&loader.cursor), cursor.generation);
        Ok(Batches { maker, ring, thread, taken: 0, num_steps, cursor, generation, process: std::process::id() })
    }
}

impl Iterator for Batches {
    type Item = Batch;

    /// # Panics
    /// When the thread that makes the batches panicked: an epoch never ends early in silence.
    fn next(&mut self) -> Option<Batch> {
        if self.taken == self.num_steps {
            return None;
        }
        self.go_on_after_fork();
        let batch = self.ring.take(&mut self.maker);
        self.taken += 1;
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor.generation == self.generation {
            cursor.position = self.maker.position(self.taken);
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.num_steps - self.taken;
        (remaining as usize, usize::try_from(remaining).ok())
    }
}

impl Batches {
    /// In a forked child, leaves the parent's thread alone and makes the batches here.
    fn go_on_after_fork(&mut self) {
        if self.process == std::process::id() {
            return;
        }
        let ring = {
            // The parent's may be locked by the thread that is not here, and the thread cannot be waited for.
            let Maker { shard, start, .. } = self.maker;
            self.maker.start = (start + self.taken * shard.rows_per_step()).min(shard.num_rows);
            self.num_steps -= self.taken;
            self.taken = 0;
            let capacity = shard.batch_size.min(shard.num_rows) as usize;
            Ring::new(self.num_steps, 0, &self.maker.schema, capacity)
        };
        std::mem::forget(std::mem::replace(&mut self.ring, ring));
        std::mem::forget(self.thread.take());
        self.process = std::process::id();
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.go_on_after_fork();
        if let Some(thread) = self.thread.take() {
            self.ring.lock().is_stopped = true;
            self.ring.changed.notify_all();
            let _ = thread.join();
        }
    }
}

impl Ring {
    fn new(num_steps: u64, depth: u64, schema: &BatchSchema, capacity: usize) -> Arc<Ring> {
        let state = State {
            next: 0,
            taken: 0,
            num_steps,
            depth,
            ready: 0,
            // Those that are ready, one that the consumer made while it waited, and one in the hands of each thread.
            made: VecDeque::with_capacity(depth as usize + 4),
            // These, and a few that the consumer has. All are there from the beginning, unless they are very many; the
            // system provides their memory when they are first written.
            pool: Pool::filled(depth as usize + 8, schema, capacity, MADE_AT_ONCE),
            capacity,
            is_awaited: false,
            is_stopped: false,
            has_failed: false,
        };
        Arc::new(Ring { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.is_awaited = true;
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever sleeps. Without one there is no call into the system.
    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.is_awaited) {
            self.changed.notify_all();
        }
    }

    /// Makes batches until all are made or nobody wants them any more.
    fn make_all(&self, maker: &mut Maker) {
        let mut state = self.lock();
        loop {
            if state.is_stopped || state.next == state.num_steps {
                return;
            }
            if state.ready >= state.depth {
                state = self.wait(state);
                continue;
            }
            state = self.make_one(state, maker);
            self.wake(&mut state);
        }
    }

    /// Begins the next batch and makes it, unlocked meanwhile.
    fn make_one<'a>(&'a self, mut state: MutexGuard<'a, State>, maker: &mut Maker) -> MutexGuard<'a, State> {
        let step = state.next;
        state.next += 1;
        state.made.push_back(None);
        let capacity = state.capacity;
        let mut arena = state.pool.take(&maker.schema, capacity);
        drop(state);
        let num_rows = {
            let _failure = Failure(self);
            Arc::get_mut(&mut arena).map_or(0, |arena| maker.fill(step, arena))
        };
        let mut state = self.lock();
        state.pool.keep(&arena);
        let batch = Batch::new(arena, Arc::clone(&maker.schema), num_rows);
        let place = (step - state.taken) as usize;
        if let Some(slot) = state.made.get_mut(place) {
            *slot = Some(batch);
            state.ready += 1;
        }
        state
    }

    /// The next batch; while it is not ready, this thread makes others.
    fn take(&self, maker: &mut Maker) -> Batch {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.made.front_mut().and_then(Option::take) {
                state.made.pop_front();
                state.taken += 1;
                state.ready -= 1;
                self.wake(&mut state);
                return batch;
            }
            assert!(!state.has_failed, "the batches of the epoch could not be made");
            state = if state.next < state.num_steps && state.ready <= state.depth {
                self.make_one(state, maker)
            } else {
                self.wait(state)
            };
        }
    }
}

/// Tells the other thread when this one panics.
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
    /// Where a batch's step begins.
    fn position(&self, step: u64) -> u64 {
        (self.start + step * self.shard.rows_per_step()).min(self.shard.num_rows)
    }

    /// Makes a batch and returns its number of rows.
    ///
    /// # Panics
    /// When the order has no row at a position: none that was made does.
    #[allow(clippy::expect_used)]
    fn fill(&mut self, step: u64, arena: &mut Arena) -> usize {
        let share = self.shard.share(self.position(step));
        // At once what any batch needs, so that none allocates later.
        self.rows.reserve(arena.capacity().saturating_sub(self.rows.len()));
        self.positions.reserve(arena.capacity().saturating_sub(self.positions.len()));
        self.positions.resize((share.end - share.start) as usize, 0);
        self.order.fill(&self.table, share.start, &mut self.positions).expect("keys exist for every position");
        self.table.gather(&self.positions, &mut self.rows, &self.schema, arena, self.symmetries);
        self.positions.len()
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("remaining", &(self.num_steps - self.taken)).finish_non_exhaustive()
    }
}
