//! Making batches, ahead of whoever takes them, in memory that is used again.

use super::{Loader, LoaderOptions, Permutation, Shard};
use crate::error::Result;
use crate::table::{Batch, BatchSchema, Pool, StepTable};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// The batches of one epoch on one rank; see [`Loader::batches`]. Dropping it ends its thread.
pub struct Batches {
    source: Source,
    remaining: u64,
    position: Arc<AtomicU64>,
}

enum Source {
    /// Made when asked for.
    Inline(Box<Producer>),
    /// Made ahead by a thread.
    Ahead { receiver: Option<Receiver<Made>>, thread: Option<JoinHandle<()>> },
}

/// A batch and the position behind its step.
type Made = (Batch, u64);

struct Producer {
    shard: Shard,
    table: StepTable,
    schema: Arc<BatchSchema>,
    permutation: Option<Permutation>,
    position: u64,
    remaining: u64,
    indices: Vec<u64>,
    /// Rows that a batch has room for.
    capacity: usize,
    pool: Pool,
}

impl Batches {
    pub(super) fn new(loader: &Loader, epoch: u64, start: u64) -> Result<Batches> {
        let remaining = loader.shard.num_steps(start);
        let LoaderOptions { shuffle, seed, prefetch, batch_size, .. } = loader.options;
        let num_rows = loader.table.num_rows();
        let producer = Producer {
            shard: loader.shard,
            table: loader.table.clone(),
            schema: Arc::clone(&loader.schema),
            permutation: shuffle.then(|| Permutation::new(num_rows, seed, epoch)).transpose()?,
            position: start,
            remaining,
            indices: Vec::with_capacity(batch_size),
            // One batch in the producer's hands, one in the consumer's, and what lies between.
            pool: Pool::new(prefetch + 2),
            capacity: batch_size.min(usize::try_from(num_rows).unwrap_or(usize::MAX)),
        };
        let source = match prefetch {
            0 => Source::Inline(Box::new(producer)),
            _ => {
                let (sender, receiver) = sync_channel(prefetch);
                let thread = std::thread::Builder::new().name("a2store-loader".into()).spawn(move || {
                    for made in producer {
                        if sender.send(made).is_err() {
                            return;
                        }
                    }
                })?;
                Source::Ahead { receiver: Some(receiver), thread: Some(thread) }
            }
        };
        Ok(Batches { source, remaining, position: Arc::clone(&loader.position) })
    }
}

impl Iterator for Batches {
    type Item = Batch;

    /// # Panics
    /// When the thread that makes the batches panicked: an epoch never ends early in silence.
    fn next(&mut self) -> Option<Batch> {
        if self.remaining == 0 {
            return None;
        }
        let made = match &mut self.source {
            Source::Inline(producer) => producer.next(),
            Source::Ahead { receiver, .. } => receiver.as_ref().and_then(|receiver| receiver.recv().ok()),
        };
        let Some((batch, position)) = made else {
            panic!("{} batches of the epoch could not be made", self.remaining);
        };
        self.remaining -= 1;
        self.position.store(position, Ordering::Relaxed);
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, usize::try_from(self.remaining).ok())
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Source::Ahead { receiver, thread } = &mut self.source {
            // Without a receiver the thread's next send fails, and it ends.
            drop(receiver.take());
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Iterator for Producer {
    type Item = Made;

    fn next(&mut self) -> Option<Made> {
        if self.remaining == 0 {
            return None;
        }
        let (share, next) = self.shard.share(self.position);
        self.fill_indices(share);
        let batch = self.fill()?;
        self.position = next;
        self.remaining -= 1;
        Some((batch, next))
    }
}

impl Producer {
    fn fill_indices(&mut self, share: Range<u64>) {
        self.indices.clear();
        match &self.permutation {
            None => self.indices.extend(share),
            Some(permutation) => {
                self.indices.resize((share.end - share.start) as usize, 0);
                permutation.fill(share.start, &mut self.indices);
            }
        }
    }

    /// The rows at the indices. Indices are below the number of rows and the memory is large enough, so there always
    /// is one.
    fn fill(&mut self) -> Option<Batch> {
        let mut arena = self.pool.take(&self.schema, self.capacity);
        self.table.gather(&self.indices, &self.schema, &mut arena).ok()?;
        let arena = Arc::new(arena);
        self.pool.keep(&arena);
        Some(Batch::new(arena, Arc::clone(&self.schema), self.indices.len()))
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}
