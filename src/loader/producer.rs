//! Making batches ahead of the consumer, in reused memory.
//!
//! A thread makes the next batches and stays `prefetch` of them ahead. If the consumer requests a batch that is
//! not ready, it makes the next unstarted batch itself instead of waiting. So a busy consumer
//! never waits, and an idle one adds a second thread. A batch does not depend on the thread that makes it.
//!
//! A large batch is made in pieces, and each thread can be stopped between two pieces. If its thread is stopped
//! or memory runs out, a batch is left unfinished. The next thread that looks for work makes that batch again.
//! If it fails again, the consumer receives the error.

use crate::error::{ErrorKind, Result};
use crate::loader::batch_maker::BatchMaker;
use crate::loader::position::{LoaderPosition, Start};
use crate::system::cancellation::CancellationToken;
use crate::system::machine::available_bytes;
use crate::system::process::{ProcessId, lock};
use crate::table::{ArenaPool, Batch, BatchSchema};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The batches of one epoch on one rank; see [`Loader::batches`](crate::Loader::batches). Dropping it ends its thread.
pub struct Batches {
    maker: BatchMaker,
    ring: Arc<Ring>,
    thread: Option<JoinHandle<()>>,
    /// The number of batches that were returned, and the total.
    taken: u64,
    num_steps: u64,
    position: Arc<LoaderPosition>,
    start: Start,
    /// The process that started the thread. Threads do not survive a fork.
    process: ProcessId,
}

/// The maximum number of batches whose memory is allocated in advance.
const MADE_AT_ONCE: usize = 16;
/// The minimum batch size in bytes for which available memory is checked first. The system may overcommit memory, and
/// then kill the process when it uses that memory.
const LARGE: u64 = 1 << 30;
/// The interval at which a waiting consumer checks for cancellation.
const PERIOD: Duration = Duration::from_millis(50);

/// The batches that the threads make and the consumer takes.
struct Ring {
    /// The number of ready batches at which the thread rests.
    depth: u64,
    /// The maximum number of rows of a batch.
    capacity: usize,
    state: Mutex<RingState>,
    changed: Condvar,
    /// Cancelled if no more batches are needed.
    stop: CancellationToken,
}

/// A batch that was started and not yet returned.
enum BatchSlot {
    /// A thread is making it.
    Begun,
    Made(Batch),
    /// Its thread gave up, so the batch must be made again.
    GivenUp,
}

struct RingState {
    /// The next batch to return.
    taken: u64,
    num_steps: u64,
    /// The number of ready batches.
    ready: u64,
    /// Batches that were started and not yet returned, in order.
    slots: VecDeque<BatchSlot>,
    pool: ArenaPool,
    /// Whether a thread waits for a change.
    is_awaited: bool,
    has_failed: bool,
}

impl Iterator for Batches {
    type Item = Batch;

    /// Returns the next batch.
    ///
    /// # Panics
    /// If the memory of a batch cannot be allocated, or if the thread that makes the batches panicked.
    /// [`next_batch`](Batches::next_batch) returns an error if an allocation fails. An epoch never ends early without an
    /// error.
    fn next(&mut self) -> Option<Batch> {
        self.next_batch(CancellationToken::never()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let remaining = self.num_steps - self.taken;
        (remaining as usize, usize::try_from(remaining).ok())
    }
}

impl Batches {
    /// Returns the batches of a maker, which begin at `start`.
    pub(in crate::loader) fn new(
        maker: BatchMaker,
        prefetch: usize,
        position: &Arc<LoaderPosition>,
        start: Start,
    ) -> Result<Batches> {
        let num_steps = maker.num_steps();
        let ring = Ring::new(num_steps, prefetch as u64, &maker.schema, maker.capacity())?;
        let thread = match prefetch {
            0 => None,
            _ => {
                let (mut maker, ring) = (maker.clone(), Arc::clone(&ring));
                let work = move || ring.make_all(&mut maker);
                Some(std::thread::Builder::new().name("a2store-loader".into()).spawn(work)?)
            }
        };
        let (position, process) = (Arc::clone(position), ProcessId::current());
        Ok(Batches { maker, ring, thread, taken: 0, num_steps, position, start, process })
    }

    /// Returns the next batch, or `None` after the last. After an error, the next call returns the same batch.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`] if the memory of a batch cannot be allocated, and [`ErrorKind::Cancelled`].
    /// Cancellation is checked every few milliseconds of work, and while waiting for the other thread.
    ///
    /// # Panics
    /// If the thread that makes the batches panicked.
    pub fn next_batch(&mut self, cancel: &CancellationToken) -> Result<Option<Batch>> {
        let mut next = None;
        if self.taken < self.num_steps {
            self.go_on_after_fork()?;
            next = Some(self.ring.take(&mut self.maker, cancel)?);
            self.taken += 1;
        }
        // The loader moves to the end of this batch, unless a newer iteration has begun.
        self.position.serve(self.start.iteration, self.maker.position(self.taken));
        Ok(next)
    }

    /// In a forked child, discards the parent's thread and ring, and continues at the same batch.
    fn go_on_after_fork(&mut self) -> Result<()> {
        if self.process.is_current() {
            return Ok(());
        }
        // After a fork, the parent's thread may hold the ring's lock, and this process cannot wait for that
        // thread.
        let ring = Ring::new(self.num_steps - self.taken, 0, &self.maker.schema, self.maker.capacity())?;
        self.maker.start = self.maker.position(self.taken);
        self.num_steps -= self.taken;
        self.taken = 0;
        std::mem::forget(std::mem::replace(&mut self.ring, ring));
        std::mem::forget(self.thread.take());
        self.process = ProcessId::current();
        Ok(())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // This process must not wait for or free anything that the parent's thread holds.
            std::mem::forget(Arc::clone(&self.ring));
            std::mem::forget(self.thread.take());
        } else if let Some(thread) = self.thread.take() {
            {
                // A thread that is about to sleep holds the lock until it sleeps.
                let _state = lock(&self.ring.state);
                self.ring.stop.cancel();
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
        let state = RingState {
            taken: 0,
            num_steps,
            ready: 0,
            // The ready batches, one that the consumer made while it waited, and one in progress per thread.
            slots: VecDeque::with_capacity(depth as usize + 4),
            // The slots, and a few batches that the consumer holds. The pool allocates all of them now, up to a
            // limit. The system provides their pages on the first write.
            pool: ArenaPool::filled(depth as usize + 8, schema, capacity, MADE_AT_ONCE)?,
            is_awaited: false,
            has_failed: false,
        };
        let (state, changed, stop) = (Mutex::new(state), Condvar::new(), CancellationToken::new());
        Ok(Arc::new(Ring { depth, capacity, state, changed, stop }))
    }

    /// Sleeps until something changes or the timeout expires.
    fn wait<'a>(&self, mut state: MutexGuard<'a, RingState>, most: Duration) -> MutexGuard<'a, RingState> {
        state.is_awaited = true;
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes sleeping threads. It makes no system call if there are none.
    fn wake(&self, state: &mut RingState) {
        if std::mem::take(&mut state.is_awaited) {
            self.changed.notify_all();
        }
    }

    /// Makes batches until all are made, no more are needed, or one fails. After a failure, the consumer makes that
    /// batch and all later ones, and receives the errors.
    fn make_all(&self, maker: &mut BatchMaker) {
        let mut state = lock(&self.state);
        while !self.stop.is_cancelled() {
            let Some(step) = state.begin(self.depth) else {
                if state.next() == state.num_steps {
                    return;
                }
                state = self.wait(state, Duration::MAX);
                continue;
            };
            let (after, made) = self.make_one(state, step, maker, &self.stop);
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
        mut state: MutexGuard<'a, RingState>,
        step: u64,
        maker: &mut BatchMaker,
        cancel: &CancellationToken,
    ) -> (MutexGuard<'a, RingState>, Result<()>) {
        let arena = state.pool.take(&maker.schema, self.capacity);
        drop(state);
        let filled = arena.map(|mut arena| {
            let _record = PanicRecord(self);
            let num_rows = Arc::get_mut(&mut arena).map_or(Ok(0), |arena| maker.fill(step, arena, cancel));
            (arena, num_rows)
        });
        let mut state = lock(&self.state);
        let made = filled.and_then(|(arena, num_rows)| {
            state.pool.keep(&arena);
            num_rows.map(|num_rows| Batch::new(arena, Arc::clone(&maker.schema), num_rows))
        });
        let (slot, outcome) = match made {
            Ok(batch) => (BatchSlot::Made(batch), Ok(())),
            Err(error) => (BatchSlot::GivenUp, Err(error)),
        };
        state.finish(step, slot);
        (state, outcome)
    }

    /// Returns the next batch. Until it is ready, this thread makes other batches.
    fn take(&self, maker: &mut BatchMaker, cancel: &CancellationToken) -> Result<Batch> {
        let mut state = lock(&self.state);
        loop {
            if let Some(batch) = state.hand_out() {
                self.wake(&mut state);
                return Ok(batch);
            }
            assert!(!state.has_failed, "the thread that makes the batches panicked");
            if let Some(step) = state.begin(self.depth + 1) {
                let (after, made) = self.make_one(state, step, maker, cancel);
                made?;
                state = after;
            } else {
                state = self.wait(state, PERIOD);
                cancel.check()?;
            }
        }
    }
}

impl RingState {
    /// Returns the next unstarted batch.
    fn next(&self) -> u64 {
        self.taken + self.slots.len() as u64
    }

    /// Starts the first batch that was given up, or else the next batch, and returns its number. Returns `None` if all
    /// batches were started, or `most` are ready.
    fn begin(&mut self, most: u64) -> Option<u64> {
        if let Some(place) = self.slots.iter().position(|slot| matches!(slot, BatchSlot::GivenUp)) {
            self.slots[place] = BatchSlot::Begun;
            return Some(self.taken + place as u64);
        }
        let next = self.next();
        if next == self.num_steps || self.ready >= most {
            return None;
        }
        self.slots.push_back(BatchSlot::Begun);
        Some(next)
    }

    /// Records the outcome of a started batch.
    fn finish(&mut self, step: u64, outcome: BatchSlot) {
        self.ready += u64::from(matches!(outcome, BatchSlot::Made(_)));
        if let Some(slot) = self.slots.get_mut((step - self.taken) as usize) {
            *slot = outcome;
        }
    }

    /// Returns the next batch if it is ready.
    fn hand_out(&mut self) -> Option<Batch> {
        let Some(BatchSlot::Made(batch)) = self.slots.front() else { return None };
        let batch = batch.clone();
        self.slots.pop_front();
        self.taken += 1;
        self.ready -= 1;
        Some(batch)
    }
}

/// Records a panic of this thread, so that the other thread does not wait for it.
struct PanicRecord<'a>(&'a Ring);

impl Drop for PanicRecord<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut state = lock(&self.0.state);
            state.has_failed = true;
            self.0.wake(&mut state);
        }
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("remaining", &(self.num_steps - self.taken)).finish_non_exhaustive()
    }
}
