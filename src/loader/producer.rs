//! Making batches, ahead of whoever takes them, in memory that is used again.

use super::{Cursor, Loader, LoaderOptions, Permutation, Shard};
use crate::error::Result;
use crate::table::{Batch, BatchSchema, Pool, StepTable};
use std::fmt;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The batches of one epoch on one rank; see [`Loader::batches`]. Dropping it ends its thread.
pub struct Batches {
    source: Source,
    remaining: u64,
    cursor: Arc<Mutex<Cursor>>,
    generation: u64,
    /// The process that began it. Threads do not survive a fork: in a child, `spare` goes on where they stood.
    process: u32,
    spare: Option<Box<Producer>>,
}

enum Source {
    /// Made when asked for.
    Inline(Box<Producer>),
    /// Made ahead by a thread.
    Ahead { receiver: Option<Receiver<Made>>, thread: Option<JoinHandle<()>> },
}

/// A batch and the position behind its step.
type Made = (Batch, u64);

#[derive(Clone)]
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
    pub(super) fn new(loader: &Loader, cursor: Cursor) -> Result<Batches> {
        let (epoch, start) = (cursor.epoch, cursor.position);
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
        let mut spare = None;
        let source = match prefetch {
            0 => Source::Inline(Box::new(producer)),
            _ => {
                spare = Some(Box::new(producer.clone()));
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
        let (cursor, generation) = (Arc::clone(&loader.cursor), cursor.generation);
        Ok(Batches { source, remaining, cursor, generation, process: std::process::id(), spare })
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
        self.go_on_after_fork();
        let made = match &mut self.source {
            Source::Inline(producer) => producer.next(),
            Source::Ahead { receiver, .. } => receiver.as_ref().and_then(|receiver| receiver.recv().ok()),
        };
        let Some((batch, position)) = made else {
            panic!("{} batches of the epoch could not be made", self.remaining);
        };
        self.remaining -= 1;
        if let Some(spare) = &mut self.spare {
            (spare.position, spare.remaining) = (position, self.remaining);
        }
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if cursor.generation == self.generation {
            cursor.position = position;
        }
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining as usize, usize::try_from(self.remaining).ok())
    }
}

impl Batches {
    /// In a forked child, leaves the parent's thread alone and makes the batches here.
    fn go_on_after_fork(&mut self) {
        if self.process != std::process::id()
            && let Some(spare) = self.spare.take()
        {
            let parents = std::mem::replace(&mut self.source, Source::Inline(spare));
            // Its channel may be locked by the thread that is not here, and the thread cannot be waited for.
            std::mem::forget(parents);
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.go_on_after_fork();
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
