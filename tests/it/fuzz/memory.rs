//! The memory limit of a parser, and its use of memory.

use crate::allocations::{Allocated, measure};

/// Returns the memory limit for an input of this length, in bytes.
fn most(input_len: usize) -> i64 {
    4 * input_len as i64 + (8 << 20)
}

/// The memory of one execution: the allocations of all threads and of SQLite.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    input_len: usize,
    /// Bytes that an open file holds.
    held: i64,
    /// The peak of live bytes over all executions.
    pub(super) peak: i64,
    /// The largest single allocation over all executions.
    pub(super) largest: i64,
    /// The first excess of this execution.
    too_much: Option<String>,
}

impl Gauge {
    pub(super) fn begin(&mut self, input_len: usize) {
        (self.input_len, self.held, self.too_much) = (input_len, 0, None);
    }

    /// Measures `work`, whose result stays alive for the rest of the execution.
    pub(super) fn hold<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (result, live) = self.measured(work);
        self.held += live;
        result
    }

    /// Measures `work`, whose result is dropped before the next call.
    pub(super) fn call<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.measured(work).0
    }

    /// Returns an error if this execution exceeded the memory limit.
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

/// Returns the peak of SQLite's memory since the last call, and its memory now. SQLite has a separate allocator.
#[allow(unsafe_code)] // rusqlite has no safe call for these numbers.
fn of_sqlite() -> (i64, i64) {
    // SAFETY: SQLite guards these numbers with a lock, and needs no connection to return them.
    unsafe { (rusqlite::ffi::sqlite3_memory_highwater(1), rusqlite::ffi::sqlite3_memory_used()) }
}
