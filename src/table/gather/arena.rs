//! The memory of batches: one aligned allocation per batch, which a pool reuses.

use crate::error::Result;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers};
use crate::table::rows::zeroed::Zeroed;
use std::sync::Arc;

/// The memory of a batch.
pub(crate) struct Arena {
    memory: Zeroed,
    /// The offset of each column, in schema order.
    pub(in crate::table) offsets: Vec<usize>,
    /// The number of rows that fit.
    pub(crate) capacity: usize,
}

/// The alignment of columns in bytes: a cache line, as Arrow recommends.
const COLUMN_ALIGN: usize = Zeroed::ALIGN;

impl Arena {
    /// Allocates memory for batches of up to `capacity` rows.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn new(schema: &BatchSchema, capacity: usize) -> Result<Arena> {
        // The allocation rejects saturated sizes.
        let mut len = 0_usize;
        let mut offsets = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            offsets.push(len);
            let end = len.saturating_add(column.width().saturating_mul(capacity));
            len = end.checked_next_multiple_of(COLUMN_ALIGN).unwrap_or(usize::MAX);
        }
        Ok(Arena { memory: Zeroed::new(len)?, offsets, capacity })
    }

    /// Returns a pointer to the start of the memory, through which the owner may write.
    pub(in crate::table) fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    /// Returns each column's memory for the first `num_rows` rows.
    pub(crate) fn columns_mut(&mut self, schema: &BatchSchema, num_rows: usize) -> ColumnBuffers<'_> {
        let mut columns = ColumnBuffers::new();
        let (mut rest, mut start) = (self.memory.bytes_mut(), 0);
        for (column, &offset) in schema.columns.iter().zip(&self.offsets) {
            let (_, from_here) = rest.split_at_mut(offset - start);
            let (bytes, after) = from_here.split_at_mut(column.width() * num_rows);
            columns.push(bytes);
            (rest, start) = (after, offset + column.width() * num_rows);
        }
        columns
    }
}

/// Memory of batches that can be filled again after every holder has dropped it.
#[derive(Clone, Default)]
pub(crate) struct ArenaPool {
    arenas: Vec<Arc<Arena>>,
    most: usize,
}

impl ArenaPool {
    /// Returns an empty pool for at most `most` arenas.
    pub(crate) fn new(most: usize) -> ArenaPool {
        ArenaPool { arenas: Vec::new(), most }
    }

    /// Returns a pool for at most `most` arenas. It allocates `at_once` of them now.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if not even one arena can be allocated.
    pub(crate) fn filled(most: usize, schema: &BatchSchema, capacity: usize, at_once: usize) -> Result<ArenaPool> {
        let mut pool = ArenaPool { arenas: Vec::with_capacity(most), most };
        for _ in 0..most.min(at_once) {
            match Arena::new(schema, capacity) {
                Ok(arena) => pool.arenas.push(Arc::new(arena)),
                // One arena is enough to continue.
                Err(_) if !pool.arenas.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pool)
    }

    /// Returns unused memory for at least `capacity` rows and at most twice as many. All arenas of one pool
    /// have one schema.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn take(&mut self, schema: &BatchSchema, capacity: usize) -> Result<Arc<Arena>> {
        let fits = |arena: &mut Arc<Arena>| {
            (capacity..=2 * capacity).contains(&arena.capacity) && Arc::get_mut(arena).is_some()
        };
        // The newest arena is the most likely to be in the caches.
        match self.arenas.iter_mut().rposition(fits) {
            Some(free) => Ok(self.arenas.swap_remove(free)),
            None => Arena::new(schema, capacity).map(Arc::new),
        }
    }

    /// Stores an arena in the pool before a caller gets it. A full pool drops a free arena, or else the oldest.
    pub(crate) fn keep(&mut self, arena: &Arc<Arena>) {
        if self.arenas.len() >= self.most {
            let free = self.arenas.iter().position(|arena| Arc::strong_count(arena) == 1);
            self.arenas.remove(free.unwrap_or(0));
        }
        self.arenas.push(Arc::clone(arena));
    }
}

impl AsRef<[u8]> for Arena {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes()
    }
}
