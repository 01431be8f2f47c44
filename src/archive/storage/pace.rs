//! The pace of commits among writers that no lock excludes.

use super::backend::Backend;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The mean pause before an attempt to commit, in milliseconds: 0 until another writer has committed first.
///
/// Many writers of one object store would mostly collide. A writer that has lost pauses twice as long as before, and one
/// that has committed pauses three quarters as long, so most attempts succeed.
#[derive(Debug, Default)]
pub(in crate::archive) struct Pace(AtomicU64);

impl Pace {
    const SHORTEST: u64 = 500;
    const LONGEST: u64 = 60_000;

    pub(in crate::archive) fn is_slow(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(in crate::archive) fn lost(&self) {
        self.change(|mean| (2 * mean).clamp(Pace::SHORTEST, Pace::LONGEST));
    }

    pub(in crate::archive) fn won(&self) {
        self.change(|mean| if mean > Pace::SHORTEST { mean / 4 * 3 } else { 0 });
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        // Two commits of one archive at once may both count as one.
        self.0.store(change(self.0.load(Ordering::Relaxed)), Ordering::Relaxed);
    }

    /// Pauses for a random time.
    pub(in crate::archive) fn pause(&self, storage: &dyn Backend, cancel: &CancellationToken) -> Result<()> {
        const SLICE: u64 = 100;
        let longest = 2 * self.0.load(Ordering::Relaxed);
        let mut rest = if longest == 0 { 0 } else { random::seed()? % longest };
        while rest > 0 {
            cancel.check()?;
            let slice = rest.min(SLICE);
            storage.sleep(Duration::from_millis(slice));
            rest -= slice;
        }
        Ok(())
    }
}
