//! Splits into rows for training and held-out rows, which stay the same when data is added.

use super::step_table::StepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::step::Step;
use std::str::FromStr;

/// What a split keeps together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SplitUnit {
    /// All steps of a run are on one side, and so are all runs of a game ([`Run::game`](crate::Run::game)).
    #[default]
    Run,
    /// Each step is assigned separately, so both sides may have steps of one run.
    Step,
}

impl FromStr for SplitUnit {
    type Err = Error;

    fn from_str(name: &str) -> Result<SplitUnit> {
        match name {
            "run" => Ok(SplitUnit::Run),
            "step" => Ok(SplitUnit::Step),
            other => Err(Error::argument("unit", "\"run\" or \"step\"", format!("{other:?}"))),
        }
    }
}

/// The games or steps that a split holds out: those whose hash is below `share × 2^64`. The hash is the first eight
/// bytes of BLAKE3 key derivation from the seed, the game and the step's index, as an integer. If the game is unknown,
/// the id of the run replaces it.
#[derive(Clone, Debug)]
pub(crate) struct HeldOut {
    of_seed: blake3::Hasher,
    share: f64,
}

impl HeldOut {
    /// Returns the split of this seed with this share of held-out runs or steps. `argument` names the share in an
    /// error.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless the share is between 0 and 1.
    pub(crate) fn new(argument: &'static str, share: f64, seed: u64, unit: SplitUnit) -> Result<HeldOut> {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::argument(argument, "0.0..=1.0", share));
        }
        let context = match unit {
            SplitUnit::Run => "a2store 2026 split by run",
            SplitUnit::Step => "a2store 2026 split by step",
        };
        let mut of_seed = blake3::Hasher::new_derive_key(context);
        of_seed.update(&seed.to_le_bytes());
        Ok(HeldOut { of_seed, share })
    }

    /// Returns whether a run is held out.
    pub(crate) fn run(&self, game: Option<i64>, run_id: u32) -> bool {
        self.has(game, run_id, &[])
    }

    /// Returns whether a step is held out.
    pub(crate) fn step(&self, game: Option<i64>, run_id: u32, step_index: u32) -> bool {
        self.has(game, run_id, &step_index.to_le_bytes())
    }

    fn has(&self, game: Option<i64>, run_id: u32, step: &[u8]) -> bool {
        let mut hasher = self.of_seed.clone();
        match game {
            Some(game) => hasher.update(&game.to_le_bytes()),
            None => hasher.update(&run_id.to_le_bytes()),
        };
        hasher.update(step);
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        // The product is exact, because multiplying by a power of two only changes the exponent.
        self.share >= 1.0 || u64::from_le_bytes(hash) < (self.share * 2_f64.powi(64)) as u64
    }
}

impl StepTable {
    /// Splits the table by run into two views `(train, val)`. It is
    /// [`train_test_split`](StepTable::train_test_split) with [`SplitUnit::Run`].
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless `val` is between 0 and 1.
    pub fn split(&self, val: f64, seed: u64) -> Result<(StepTable, StepTable)> {
        let held_out = HeldOut::new("val", val, seed, SplitUnit::Run)?;
        self.split_by(&held_out, SplitUnit::Run, CancellationToken::never())
    }

    /// Splits the table into two views `(train, test)`. They are disjoint and together have all rows. The second view
    /// has approximately the share `test_size` of the runs or steps.
    ///
    /// The seed and the run's game determine the side, for [`SplitUnit::Step`] together with the step's index. So a run
    /// or step keeps its side when the archive grows, and no run or step leaves the second view when `test_size` grows.
    /// Runs of one game are divided alike: equal steps are on the same side. In a table whose runs are unknown, such as
    /// a loaded NumPy array, the run's id replaces the game. To split a view again, use another seed. A view by step
    /// takes about 20 bytes per range of consecutive rows.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless `test_size` is between 0 and 1; any error of reading
    /// the archive's runs.
    pub fn train_test_split(&self, test_size: f64, seed: u64, unit: SplitUnit) -> Result<(StepTable, StepTable)> {
        self.split_by(&HeldOut::new("test_size", test_size, seed, unit)?, unit, CancellationToken::never())
    }

    /// Returns both sides of a split, first the rows that are not held out. Checks for cancellation every few
    /// milliseconds.
    pub(crate) fn split_by(
        &self,
        held_out: &HeldOut,
        unit: SplitUnit,
        cancel: &CancellationToken,
    ) -> Result<(StepTable, StepTable)> {
        let facts = self.runs.facts()?;
        let game = |run_id: u32| facts.as_ref()?.game(run_id);
        let side = |is_test: bool| match unit {
            SplitUnit::Run => self.select(|run| held_out.run(game(run), run) == is_test, |_, _| true, cancel),
            SplitUnit::Step => {
                let is_held_out = |step: &Step, row: &[u8]| {
                    held_out.step(game(step.run_id), step.run_id, self.layout().step_index_of(row))
                };
                self.select(|_| true, |step, row| is_held_out(step, row) == is_test, cancel)
            }
        };
        Ok((self.of_selection(side(false)?), self.of_selection(side(true)?)))
    }
}
