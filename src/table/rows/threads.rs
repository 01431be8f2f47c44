//! Coordination of the threads that fill a table: the order in which they append, and the first error.

use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::process::{catch_panic, lock};
use crate::system::workers;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Returns the number of cores that this process may use.
pub(in crate::table) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The first error of several threads. It makes the others stop.
#[derive(Default)]
pub(in crate::table) struct StopOnError(Mutex<Option<Error>>);

impl StopOnError {
    pub(in crate::table) fn check(&self, cancel: &CancellationToken) -> Result<()> {
        if lock(&self.0).is_some() {
            return Err(ErrorKind::Cancelled.into());
        }
        cancel.check()
    }
}

/// Runs `work` on some threads. The first error stops all threads and is returned.
pub(in crate::table) fn on_cores(num_threads: usize, work: impl Fn(&StopOnError) -> Result<()> + Sync) -> Result<()> {
    let stop = StopOnError::default();
    workers::side_by_side(num_threads.max(1), || {
        // A reader may panic on damaged data. Other threads must not wait forever for its turn.
        let failed = || Err(Error::query("the query engine panicked; the data may be damaged"));
        if let Err(error) = catch_panic(|| work(&stop)).unwrap_or_else(failed) {
            lock(&stop.0).get_or_insert(error);
        }
    });
    stop.0.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Computes parts on all cores, and returns their values in order. The first error or a cancellation stops all threads.
pub(in crate::table) fn in_parts<T: Send>(
    num_parts: usize,
    cancel: &CancellationToken,
    part: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(num_parts)));
    on_cores(num_parts.min(cores()), |stop| {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= num_parts {
                return Ok(());
            }
            if number > 0 {
                stop.check(cancel)?;
            }
            let value = part(number)?;
            lock(&found).push((number, value));
        }
    })?;
    if num_parts > 1 {
        // Some cancellations reach only the caller's thread, and other threads may have done most of the work.
        cancel.check()?;
    }
    let mut found: Vec<(usize, T)> = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, value)| value).collect())
}

/// A value that threads access one after the other, in the order of their places.
pub(in crate::table) struct Sequencer<T> {
    /// The place whose turn it is, and the value.
    state: Mutex<(usize, T)>,
    changed: Condvar,
}

impl<T> Sequencer<T> {
    pub(in crate::table) fn new(value: T) -> Self {
        Self { state: Mutex::new((0, value)), changed: Condvar::new() }
    }

    /// Waits for the turn of a place, and passes the value to `work`. If it succeeds, the next place has its turn.
    pub(in crate::table) fn in_turn(
        &self,
        place: usize,
        stop: &StopOnError,
        cancel: &CancellationToken,
        work: impl FnOnce(&mut T) -> Result<()>,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.0 != place {
            stop.check(cancel)?;
            // A failed thread never takes its turn, so waiting threads check for errors regularly.
            let pause = std::time::Duration::from_millis(20);
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        work(&mut state.1)?;
        state.0 += 1;
        self.changed.notify_all();
        Ok(())
    }

    pub(in crate::table) fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }
}
