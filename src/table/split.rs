//! Splits into runs for training and held-out runs, which stay the same when data is added.

use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use crate::table::step_table::StepTable;

/// The games that a split holds out: those whose hash is below `share × 2^64`. The hash is the first eight bytes of
/// BLAKE3 key derivation from the seed and the game, as an integer. If the game is unknown, the id of the run replaces
/// it.
#[derive(Clone, Debug)]
pub struct HeldOut {
    of_seed: blake3::Hasher,
    share: f64,
}

impl HeldOut {
    /// Returns the split of this seed with this share of held-out runs. `argument` names the share in an error.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless the share is between 0 and 1.
    pub fn new(argument: &'static str, share: f64, seed: u64) -> Result<HeldOut> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::argument(argument, "0.0..=1.0", share));
        }
        let mut of_seed = blake3::Hasher::new_derive_key("a2store 2026 split by run");
        of_seed.update(&seed.to_le_bytes());
        Ok(HeldOut { of_seed, share })
    }

    /// Returns whether a run is held out.
    #[must_use]
    pub fn has(&self, game: Option<i64>, run_id: u32) -> bool {
        let mut hasher = self.of_seed.clone();
        match game {
            Some(game) => hasher.update(&game.to_le_bytes()),
            None => hasher.update(&run_id.to_le_bytes()),
        };
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        // The product is exact, because multiplying by a power of two only changes the exponent.
        self.share >= 1.0 || u64::from_le_bytes(hash) < (self.share * 2_f64.powi(64)) as u64
    }
}

impl StepTable {
    /// Splits the table by run into two views: the rows that are not held out, and those that are. They are disjoint and
    /// together have all rows. Checks for cancellation every few milliseconds.
    ///
    /// The seed and the run's game ([`Run::game`](crate::Run::game)) determine the side. So a run keeps its side when
    /// the archive grows, no run leaves the second view when the share grows, and runs of one game are on one side. In a
    /// table whose runs are unknown, such as a loaded NumPy array, the run's id replaces the game. To split a view
    /// again, use another seed.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled); any error of reading the archive's runs.
    pub fn split(&self, held_out: &HeldOut, cancel: &CancellationToken) -> Result<(StepTable, StepTable)> {
        let facts = self.runs.facts()?;
        let is_held_out = |run_id: u32| held_out.has(facts.as_ref().and_then(|facts| facts.game(run_id)), run_id);
        let train = self.select(|run_id| !is_held_out(run_id), |_| true, cancel)?;
        let val = self.select(is_held_out, |_| true, cancel)?;
        Ok((self.of_selection(train), self.of_selection(val)))
    }
}
