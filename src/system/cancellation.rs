//! Cancellation of long work.

use crate::error::{ErrorKind, Result};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to cancel work, which the work checks often.
///
/// Clones share their state: if one is cancelled, all are, and they stay cancelled. Any thread may cancel or check.
///
/// # Examples
///
/// ```
/// use a2store::{CancellationToken, ErrorKind, SimulateOptions};
///
/// let folder = tempfile::tempdir()?;
/// let cancel = CancellationToken::new();
/// cancel.clone().cancel();
/// let error = a2store::simulate(folder.path(), &SimulateOptions::default(), &(), &cancel).unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::Cancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CancellationToken(Option<Arc<State<dyn Fn() -> bool + Send + Sync>>>);

struct State<F: ?Sized> {
    cancelled: AtomicBool,
    /// Returns whether to cancel the work, although nothing called [`CancellationToken::cancel`].
    poll: F,
}

impl CancellationToken {
    /// Returns a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        CancellationToken::polling(|| false)
    }

    /// Returns a token that is also cancelled once `poll` returns true. Each check calls `poll`, on the thread that
    /// checks, so it must be cheap.
    pub fn polling(poll: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        CancellationToken(Some(Arc::new(State { cancelled: AtomicBool::new(false), poll })))
    }

    /// Returns a token that nothing can cancel. Allocates nothing.
    #[must_use]
    pub fn never() -> &'static Self {
        static NEVER: CancellationToken = CancellationToken(None);
        &NEVER
    }

    /// Asks the work to stop. It stops at its next check.
    pub fn cancel(&self) {
        if let Some(state) = &self.0 {
            state.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether to cancel the work.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let Some(state) = &self.0 else { return false };
        if state.cancelled.load(Ordering::Relaxed) {
            return true;
        }
        let is_cancelled = (state.poll)();
        if is_cancelled {
            self.cancel();
        }
        is_cancelled
    }

    /// Does nothing until the work is cancelled.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] from then on.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(ErrorKind::Cancelled.into()) } else { Ok(()) }
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        CancellationToken::new()
    }
}

impl fmt::Debug for CancellationToken {
    /// Does not poll.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cancelled = self.0.as_ref().is_some_and(|state| state.cancelled.load(Ordering::Relaxed));
        f.debug_struct("CancellationToken").field("is_cancelled", &is_cancelled).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_cancelled_together() {
        let (token, other) = (CancellationToken::new(), CancellationToken::new());
        let clone = token.clone();
        token.check().unwrap();
        clone.cancel();
        assert!(matches!(token.check().unwrap_err().kind(), ErrorKind::Cancelled));
        assert!(!other.is_cancelled());
        assert!(!CancellationToken::never().is_cancelled());
    }

    #[test]
    fn a_polling_token_polls_at_each_check_until_it_is_cancelled() {
        let polls = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counter = Arc::clone(&polls);
        let token = CancellationToken::polling(move || counter.fetch_add(1, Ordering::Relaxed) == 2);
        let found = [(); 5].map(|()| token.is_cancelled());
        assert_eq!((found, polls.load(Ordering::Relaxed)), ([false, false, true, true, true], 3));
    }
}
