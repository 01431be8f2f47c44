//! Locking of values that no panic can leave half changed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a value. No code panics while it holds one of these locks, and none of the values has an invariant to break.
pub(super) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
