//! The order of an epoch: position → row, a function of seed, epoch and position, in constant time.

use super::alias::AliasTable;
use super::permutation::{LastPermutation, Permutation};
use super::strata::{Strata, StratifiedOrder};
use super::windowed::{self, WindowedOrder};
use super::{LoaderOptions, Sampling};
use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::table::StepTable;
use std::sync::Arc;

/// The shared part of the orders of all epochs: [`Sampling`] with the data that it needs of the table.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Sequential,
    Shuffled(Arc<LastPermutation>),
    Windowed {
        /// The binary logarithm of the rows of a block.
        shift: u32,
    },
    Uniform,
    Weighted(Arc<AliasTable>),
    Stratified(Arc<Strata>),
}

/// The order of one epoch.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Sequential,
    Shuffled(Permutation),
    Windowed(Box<WindowedOrder>),
    Uniform { draws: Draws, num_rows: u64 },
    Weighted { draws: Draws, table: Arc<AliasTable> },
    Stratified(Box<StratifiedOrder>),
}

impl Plan {
    pub(super) fn new(table: &StepTable, options: &LoaderOptions, progress: &dyn Progress) -> Result<Plan> {
        Ok(match &options.sampling {
            Sampling::Sequential => Plan::Sequential,
            Sampling::Shuffled => Plan::Shuffled(Arc::default()),
            Sampling::Windowed { window } => {
                if *window == 0 {
                    return Err(Error::argument("window", "at least 1", window));
                }
                Plan::Windowed { shift: windowed::block_shift(*window, table.num_rows()) }
            }
            Sampling::Uniform => Plan::Uniform,
            Sampling::Weighted { column } => Plan::Weighted(Arc::new(AliasTable::new(table, column, progress)?)),
            Sampling::Stratified { column, quotas } => {
                Plan::Stratified(Arc::new(Strata::new(table, column, quotas.as_deref(), progress)?))
            }
        })
    }

    /// Whether a row may repeat within an epoch, so that an epoch may have any length.
    pub(super) fn repeats(&self) -> bool {
        matches!(self, Plan::Uniform | Plan::Weighted(_) | Plan::Stratified(_))
    }

    /// The name of the orders, which identifies a state. Plans with equal names have equal orders.
    pub(super) fn name(&self, sampling: &Sampling) -> String {
        match self {
            Plan::Windowed { shift } => Sampling::Windowed { window: windowed::BLOCKS << shift }.to_string(),
            Plan::Stratified(strata) => strata.name(),
            // These options have only one spelling.
            Plan::Sequential | Plan::Shuffled(_) | Plan::Uniform | Plan::Weighted(_) => sampling.to_string(),
        }
    }

    /// Whether the orders equal those of states of version 2. Small permutations have changed since.
    pub(super) fn is_as_in_version_2(&self, num_rows: u64) -> bool {
        match self {
            Plan::Sequential | Plan::Uniform | Plan::Weighted(_) => true,
            Plan::Shuffled(_) => !Permutation::is_stored(num_rows),
            // The order has changed for tables with few blocks and for last windows with few rows.
            Plan::Windowed { .. } => false,
            Plan::Stratified(strata) => strata.is_as_in_version_2(),
        }
    }

    /// Returns the order of an epoch of `num_rows` rows.
    pub(super) fn order(&self, num_rows: u64, seed: u64, epoch: u64) -> Result<Order> {
        Ok(match self {
            Plan::Sequential => Order::Sequential,
            Plan::Shuffled(last) => Order::Shuffled(last.keyed(num_rows, &[seed, epoch])?),
            Plan::Windowed { shift } => Order::Windowed(Box::new(WindowedOrder::new(num_rows, *shift, seed, epoch)?)),
            Plan::Uniform => Order::Uniform { draws: Draws::new(seed, epoch), num_rows },
            Plan::Weighted(table) => Order::Weighted { draws: Draws::new(seed, epoch), table: Arc::clone(table) },
            Plan::Stratified(strata) => {
                Order::Stratified(Box::new(StratifiedOrder::new(Arc::clone(strata), seed, epoch)))
            }
        })
    }
}

impl Order {
    /// Sets each slot of `out` to the row at its position, from `start` on.
    pub(super) fn fill(&mut self, table: &StepTable, start: u64, out: &mut [u64]) -> Result<()> {
        match self {
            Order::Sequential => out.iter_mut().zip(start..).for_each(|(slot, position)| *slot = position),
            Order::Shuffled(permutation) => permutation.fill(start, out),
            Order::Windowed(windowed) => {
                windowed.fill(start, out, |rows, soon| table.advise(rows, soon))?;
            }
            Order::Uniform { draws, num_rows } => {
                draws.fill(start, out);
                out.iter_mut().for_each(|word| *word = scale(*word, *num_rows));
            }
            Order::Weighted { draws, table } => table.fill(*draws, start, out),
            Order::Stratified(strata) => strata.fill(start, out)?,
        }
        Ok(())
    }
}

/// Independent random words, one per position: SplitMix64 (Steele, Lea and Flood, *Fast Splittable Pseudorandom
/// Number Generators*, OOPSLA 2014). Its state is a counter, so any position can be computed directly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    fn new(seed: u64, epoch: u64) -> Draws {
        let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 loader draws");
        hasher.update(&seed.to_le_bytes()).update(&epoch.to_le_bytes());
        let mut key = [0; 8];
        hasher.finalize_xof().fill(&mut key);
        Draws(u64::from_le_bytes(key))
    }

    pub(super) fn fill(self, start: u64, out: &mut [u64]) {
        for (slot, position) in out.iter_mut().zip(start..) {
            let mut x = self.0.wrapping_add(position.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            *slot = x ^ x >> 31;
        }
    }
}

/// Returns a number below `n` from all bits of `word`.
#[inline(always)]
pub(super) fn scale(word: u64, n: u64) -> u64 {
    ((u128::from(word) * u128::from(n)) >> 64) as u64
}
