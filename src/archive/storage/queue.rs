//! The order of commits among writers that no lock excludes.

use super::backend::Backend;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::process::lock;
use std::sync::Mutex;
use std::time::Duration;

/// The place of a writer among those that have reserved run ids.
///
/// Of many writers that commit whenever they can, most would lose. So they commit in the order of their reservations: a
/// writer waits as long as those before it need. The next writer passes a writer that died.
#[derive(Debug, Default)]
pub(in crate::archive) struct Queue(Mutex<Place>);

#[derive(Debug, Default)]
struct Place {
    /// The first run ids of earlier reservations.
    earlier: Vec<u64>,
    /// About the time between the commits of two writers that follow each other.
    slot: Duration,
    is_crowded: bool,
}

impl Queue {
    /// The number of earlier reservations that a writer looks at.
    pub(in crate::archive) const LENGTH: usize = 200;
    /// The time between two commits, until it is measured.
    const SLOT: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(60);

    /// Joins the queue behind earlier reservations. A reservation took this time.
    pub(in crate::archive) fn join(&self, earlier: Vec<u64>, reservation: Duration) {
        *lock(&self.0) = Place { earlier, slot: reservation * 13 / 10, is_crowded: false };
    }

    pub(in crate::archive) fn leave(&self) {
        lock(&self.0).earlier.clear();
    }

    /// Returns the number of writers before this writer. All runs that are committed have ids below `next_run_id`.
    pub(in crate::archive) fn num_before(&self, next_run_id: u64) -> u32 {
        let mut place = lock(&self.0);
        let count = place.earlier.iter().filter(|&&first| first >= next_run_id).count() as u32;
        place.is_crowded |= count > 1;
        count
    }

    /// Returns whether several writers were before this writer when it last committed.
    pub(in crate::archive) fn is_crowded(&self) -> bool {
        lock(&self.0).is_crowded
    }

    /// Pauses while this many writers commit.
    pub(in crate::archive) fn pause_for(
        &self,
        num_writers: u32,
        storage: &dyn Backend,
        cancel: &CancellationToken,
    ) -> Result<()> {
        self.pause(f64::from(num_writers) * (0.75 + 0.5 * uniform()?), storage, cancel)
    }

    /// Pauses for a random time, longer after each loss.
    pub(in crate::archive) fn pause_after(
        &self,
        losses: usize,
        storage: &dyn Backend,
        cancel: &CancellationToken,
    ) -> Result<()> {
        self.pause(f64::from(1 << losses.min(6)) * uniform()?, storage, cancel)
    }

    fn pause(&self, slots: f64, storage: &dyn Backend, cancel: &CancellationToken) -> Result<()> {
        const SLICE: Duration = Duration::from_millis(100);
        let slot = Some(lock(&self.0).slot).filter(|slot| !slot.is_zero()).unwrap_or(Queue::SLOT);
        let mut rest = slot.mul_f64(slots).min(Queue::LONGEST);
        while !rest.is_zero() {
            cancel.check()?;
            let slice = rest.min(SLICE);
            storage.sleep(slice);
            rest -= slice;
        }
        Ok(())
    }
}

/// Returns a random number from 0 to 1.
fn uniform() -> Result<f64> {
    Ok(getrandom::u64().map_err(Error::other)? as f64 / u64::MAX as f64)
}
