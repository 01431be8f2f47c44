//! Work in parts on several threads.

use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::process::{catch_panic, lock};
use crate::system::workers;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Returns the number of cores that this process may use.
pub(in crate::table) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Computes parts on some threads, and returns their values in order. The first error or a cancellation stops all
/// threads after their current parts.
pub(in crate::table) fn in_parts<T: Send>(
    num_threads: usize,
    num_parts: usize,
    cancel: &CancellationToken,
    part: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (next, first_error) = (AtomicUsize::new(0), Mutex::new(None));
    let found = Mutex::new(Vec::with_capacity(num_parts));
    let work = || -> Result<()> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= num_parts || lock(&first_error).is_some() {
                return Ok(());
            }
            if number > 0 {
                cancel.check()?;
            }
            let value = part(number)?;
            lock(&found).push((number, value));
        }
    };
    workers::side_by_side(num_parts.min(num_threads).max(1), || {
        // A reader may panic on damaged data.
        let failed = || Err(Error::query("the query engine panicked; the data may be damaged"));
        if let Err(error) = catch_panic(work).unwrap_or_else(failed) {
            lock(&first_error).get_or_insert(error);
        }
    });
    if let Some(error) = lock(&first_error).take() {
        return Err(error);
    }
    if num_parts > 1 {
        // Some cancellations reach only the caller's thread, and other threads may have done most of the work.
        cancel.check()?;
    }
    let mut found: Vec<(usize, T)> = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, value)| value).collect())
}
