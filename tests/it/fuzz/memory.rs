//! How much memory a parser takes, of what it may take.

use crate::allocations::{Allocated, measure};

/// The most memory that anything may take, by the length of its input.
fn most(input_len: usize) -> i64 {
    4 * input_len as i64 + (8 << 20)
}

/// The memory of one execution: what all threads allocate, and what SQLite does.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    input_len: usize,
    /// What an open file holds.
    held: i64,
    /// The most at any time, and the most at once, of all executions.
    pub(super) peak: i64,
    pub(super) largest: i64,
    /// Of this execution.
    too_much: Option<String>,
}

impl Gauge {
    pub(super) fn begin(&mut self, input_len: usize) {
        (self.input_len, self.held, self.too_much) = (input_len, 0, None);
    }

    /// Runs what makes something that is kept for the rest of the execution.
    pub(super) fn hold<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (result, live) = self.measured(work);
        self.held += live;
        result
    }

    /// Runs what makes something that is gone before the next thing is made.
    pub(super) fn call<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.measured(work).0
    }

    /// What was too much, if anything was.
    pub(super) fn verdict(&mut self) -> Result<(), String> {
        self.too_much.take().map_or(Ok(()), Err)
    }

    fn measured<T>(&mut self, work: impl FnOnce() -> T) -> (T, i64) {
        let (_, before) = of_sqlite();
        let (result, Allocated { live, peak, largest }) = measure(work);
        let peak = self.held + peak + of_sqlite().0 - before;
        self.peak = self.peak.max(peak);
        self.largest = self.largest.max(largest);
        let most = most(self.input_len);
        if peak > most || largest > most {
            let what = format!("{peak} bytes in use, {largest} at once, of {} bytes of input", self.input_len);
            self.too_much.get_or_insert(what);
        }
        (result, live)
    }
}

/// The most memory that SQLite, which has its own allocator, had in use since this was last asked, and how much it has now.
#[allow(unsafe_code)] // There is no safe way to ask.
fn of_sqlite() -> (i64, i64) {
    // SAFETY: SQLite keeps these numbers behind a lock of its own, and needs no connection for them.
    unsafe { (rusqlite::ffi::sqlite3_memory_highwater(1), rusqlite::ffi::sqlite3_memory_used()) }
}
