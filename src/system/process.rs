//! Per-process singletons, recreated after a fork; locks and messages after panics.

// `PerProcess` returns `'static` references to values that it never frees.
#![allow(unsafe_code)]

use crate::error::Result;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The process that created a value. A forked child is another process: it has none of its parent's threads, and the
/// parent's locks may stay held forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessId(u32);

impl ProcessId {
    pub(crate) fn current() -> ProcessId {
        ProcessId(std::process::id())
    }

    /// Returns whether the value was created in the current process, and not in a process that it was forked from.
    pub(crate) fn is_current(self) -> bool {
        self == ProcessId::current()
    }
}

/// A value of this process, created on first use and never freed.
///
/// A child process has neither its parent's threads nor the owners of its locks. So a forked child ignores the
/// inherited value and creates its own. This type has no lock that a fork could leave held.
pub struct PerProcess<T: 'static>(AtomicPtr<Owned<T>>);

struct Owned<T> {
    process: ProcessId,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Returns a value that no process has made yet.
    #[must_use]
    #[allow(clippy::new_without_default)] // Only statics use it, and they need a constant.
    pub const fn new() -> Self {
        PerProcess(AtomicPtr::new(null_mut()))
    }

    /// Returns the value. If several threads create it at once, all of them get the first value that was stored.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn get_or_make(&self, mut make: impl FnMut() -> Result<T>) -> Result<&'static T> {
        loop {
            let found = self.0.load(Ordering::Acquire);
            // SAFETY: a stored pointer came from `Box::into_raw`. Its value is never changed and never freed, and the
            // load has acquired it.
            if let Some(owned) = unsafe { found.as_ref() }
                && owned.process.is_current()
            {
                return Ok(&owned.value);
            }
            let made = Box::into_raw(Box::new(Owned { process: ProcessId::current(), value: make()? }));
            if self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                // SAFETY: `made` came from `Box::into_raw`, and a stored value is never freed.
                return Ok(unsafe { &(*made).value });
            }
            // SAFETY: `made` came from `Box::into_raw` above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

thread_local! {
    /// Whether a caller on this thread turns panics into errors.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Suppresses panic messages on this thread, and returns whether they were already suppressed. Use it where a caller
/// turns panics into errors.
///
/// Parquet readers, for example, panic on some damaged files.
pub(crate) fn silence_panics() -> bool {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                others(panic);
            }
        }));
    });
    IS_CAUGHT.replace(true)
}

/// Runs code that may panic on damaged data. Returns `None` if it panicked.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = silence_panics();
    let outcome = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    outcome.ok()
}

/// Locks a value, even if a thread panicked while it held the lock.
pub fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catch_panic_returns_none_after_a_panic() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| [0][std::env::args().count().max(1)]), None);
        assert!(!IS_CAUGHT.get());
    }

    #[test]
    fn all_threads_get_one_value() {
        static ONE: PerProcess<String> = PerProcess::new();
        let get = || ONE.get_or_make(|| Ok("one".to_owned())).unwrap().as_ptr() as usize;
        let first = get();
        let others: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(others.iter().all(|&other| other == first));
    }
}
