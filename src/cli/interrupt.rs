//! Ctrl-C asks long work to stop; a second one ends the process at once.

use crate::error::{ErrorKind, Result};
use crate::progress::{Cancellable, Progress, check};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether somebody has asked to stop.
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn new() -> Result<Interrupt> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order, so that the first signal does not meet its own mark.
            flag::register_conditional_default(signal, Arc::clone(&flag))?;
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Interrupt(flag))
    }

    /// Whether somebody has.
    #[cfg(unix)]
    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Progress that stops when asked to.
    pub(super) fn watch<'a>(&'a self, progress: &'a dyn Progress) -> Cancellable<'a, dyn Progress + 'a> {
        Cancellable::new(progress, &self.0)
    }

    /// Sleeps so long, unless asked to stop.
    pub(super) fn sleep(&self, period: Duration) -> Result<()> {
        let end = Instant::now() + period;
        while let Some(rest) = end.checked_duration_since(Instant::now()) {
            if self.0.load(Ordering::Relaxed) {
                return Err(ErrorKind::Cancelled.into());
            }
            std::thread::sleep(rest.min(Duration::from_millis(50)));
        }
        check(&self.watch(&()))
    }
}
