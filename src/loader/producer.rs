//! Making batches ahead of the consumer, in reused memory.
//!
//! A thread makes the next batches and stays `prefetch` of them ahead. If the consumer requests a batch that is
//! not ready, it makes the next unstarted batch itself instead of waiting. So a busy consumer
//! never waits, and an idle one adds a second thread. A batch does not depend on the thread that makes it.
//!
//! ```text
//!  next: a counter ──▶ thread   ──▶ channel, in order ──▶ consumer
//!                  └─▶ consumer ──▶ `made`, in order  ──▶
//! ```
//!
//! Each thread begins batches in order. So the next batch to return is the first one of `made` or of the channel. A
//! large batch is made in pieces, and each thread can be stopped between two pieces. If the thread fails, for example
//! because memory runs out, the consumer makes that batch and all later ones, and receives the errors.

use super::batch_maker::BatchMaker;
use super::position::{Position, Start};
use crate::cancellation::CancellationToken;
use crate::error::{ErrorKind, Result};
use crate::machine::available_bytes;
use crate::process::ProcessId;
use crate::table::Batch;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The batches of one epoch on one rank; see [`Loader::batches`](crate::Loader::batches). Dropping it ends its thread.
pub struct Batches {
    maker: BatchMaker,
    thread: Option<MakerThread>,
    /// The next batch that no thread has begun.
    next: Arc<AtomicU64>,
    /// Batches that this thread made before their turn, in order, and how many it makes at most.
    made: VecDeque<(u64, Batch)>,
    max_made: usize,
    /// A batch that this thread has begun or taken over, and not finished.
    unfinished: Option<u64>,
    /// The number of batches that were returned, and the total.
    taken: u64,
    num_steps: u64,
    position: Arc<Position>,
    start: Start,
    /// The process that started the thread. Threads do not survive a fork.
    process: ProcessId,
}

/// The thread that makes batches ahead.
struct MakerThread {
    /// The batches of the thread, in order. `None` is a batch that the thread could not make; it is the last one.
    batches: Receiver<Option<Batch>>,
    /// Cancelled if no more batches are needed.
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

/// The minimum batch size in bytes for which available memory is checked first. The system may overcommit memory, and
/// then kill the process when it uses that memory.
const LARGE: u64 = 1 << 30;
/// The interval at which a waiting consumer checks for cancellation.
const PERIOD: Duration = Duration::from_millis(50);

impl Batches {
    /// Returns the batches of a maker, which begin at `start`.
    pub(super) fn new(
        mut maker: BatchMaker,
        prefetch: usize,
        position: &Arc<Position>,
        start: Start,
    ) -> Result<Batches> {
        let needed = (maker.schema.width() as u64).saturating_mul(maker.capacity() as u64);
        if needed >= LARGE && available_bytes().is_some_and(|available| needed > available) {
            return Err(ErrorKind::OutOfMemory { needed }.into());
        }
        let next = Arc::new(AtomicU64::new(0));
        let other = maker.clone();
        maker.allocate(prefetch)?;
        let thread = match prefetch {
            0 => None,
            _ => Some(MakerThread::start(other, prefetch, Arc::clone(&next))?),
        };
        Ok(Batches {
            num_steps: maker.num_steps(),
            maker,
            thread,
            next,
            made: VecDeque::with_capacity(prefetch),
            max_made: prefetch,
            unfinished: None,
            taken: 0,
            position: Arc::clone(position),
            start,
            process: ProcessId::current(),
        })
    }
}

impl Iterator for Batches {
    type Item = Batch;

    /// Returns the next batch.
    ///
    /// # Panics
    /// If the memory of a batch cannot be allocated, or if the thread that makes the batches panicked.
    /// [`next_unless_cancelled`](Batches::next_unless_cancelled) returns an error for the former. An epoch never ends
    /// early without an error.
    fn next(&mut self) -> Option<Batch> {
        self.next_unless_cancelled(CancellationToken::never()).unwrap_or_else(|error| panic!("{error}"))
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
    pub fn next_unless_cancelled(&mut self, cancel: &CancellationToken) -> Result<Option<Batch>> {
        let mut next = None;
        if self.taken < self.num_steps {
            self.go_on_after_fork();
            next = Some(self.take(cancel)?);
            self.taken += 1;
        }
        // The loader moves to the end of this batch, unless a newer iteration has begun.
        self.position.serve(self.start.iteration, self.maker.position(self.taken));
        Ok(next)
    }

    /// Returns the next batch. Until it is ready, this thread makes other batches.
    fn take(&mut self, cancel: &CancellationToken) -> Result<Batch> {
        loop {
            if let Some(step) = self.unfinished {
                let batch = self.maker.make(step, cancel)?;
                self.unfinished = None;
                if step == self.taken {
                    return Ok(batch);
                }
                self.made.push_back((step, batch));
            }
            if let Some((_, batch)) = self.made.pop_front_if(|(step, _)| *step == self.taken) {
                return Ok(batch);
            }
            let makes_more = self.made.len() < self.max_made && self.next.load(Ordering::Relaxed) < self.num_steps;
            let received = match &self.thread {
                None => Err(RecvTimeoutError::Disconnected),
                Some(thread) if makes_more => thread.batches.try_recv().map_err(|error| match error {
                    TryRecvError::Empty => RecvTimeoutError::Timeout,
                    TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
                }),
                Some(thread) => thread.batches.recv_timeout(PERIOD),
            };
            match received {
                Ok(Some(batch)) => return Ok(batch),
                Ok(None) => self.unfinished = Some(self.taken),
                Err(RecvTimeoutError::Timeout) if makes_more => self.unfinished = begin(&self.next, self.num_steps),
                Err(RecvTimeoutError::Timeout) => cancel.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let is_begun = self.next.load(Ordering::Relaxed) > self.taken;
                    assert!(!is_begun, "the thread that makes the batches panicked");
                    self.unfinished = begin(&self.next, self.num_steps);
                }
            }
        }
    }

    /// In a forked child, replaces the parent's thread by this one. The batches of the parent's thread are made again.
    fn go_on_after_fork(&mut self) {
        if self.process.is_current() {
            return;
        }
        std::mem::forget(self.thread.take());
        self.maker.start = self.maker.position(self.taken);
        self.num_steps -= self.taken;
        self.next = Arc::default();
        self.made.clear();
        (self.taken, self.unfinished) = (0, None);
        self.process = ProcessId::current();
    }
}

impl MakerThread {
    fn start(mut maker: BatchMaker, depth: usize, next: Arc<AtomicU64>) -> Result<MakerThread> {
        maker.allocate(depth)?;
        // The thread itself holds one more batch while the channel is full.
        let (sender, batches) = sync_channel(depth - 1);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let work = move || make_ahead(&mut maker, &next, &sender, &stopped);
        let handle = std::thread::Builder::new().name("a2store-loader".into()).spawn(work)?;
        Ok(MakerThread { batches, stop, handle })
    }
}

/// Makes batches until all are begun, no more are needed, or one fails.
fn make_ahead(maker: &mut BatchMaker, next: &AtomicU64, batches: &SyncSender<Option<Batch>>, stop: &CancellationToken) {
    let num_steps = maker.num_steps();
    while let Some(step) = begin(next, num_steps) {
        let batch = maker.make(step, stop).ok();
        let has_failed = batch.is_none();
        if batches.send(batch).is_err() || has_failed {
            return;
        }
    }
}

/// Begins the next batch, and returns its number; `None` after the last.
fn begin(next: &AtomicU64, num_steps: u64) -> Option<u64> {
    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&step| step < num_steps)
}

impl Drop for Batches {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if !self.process.is_current() {
            // This process must not wait for or free anything that the parent's thread holds.
            std::mem::forget(thread);
            return;
        }
        let MakerThread { batches, stop, handle } = thread;
        stop.cancel();
        drop(batches);
        let _ = handle.join();
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("remaining", &(self.num_steps - self.taken)).finish_non_exhaustive()
    }
}
