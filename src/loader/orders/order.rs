//! The order of an epoch: position → row, a function of seed, epoch and position, in constant time.

use crate::error::{Error, Result};
use crate::loader::options::{LoaderOptions, Sampling};
use crate::loader::orders::draws::{AliasTable, Draws, scale};
use crate::loader::orders::permutation::Permutation;
use crate::loader::orders::strata::{Strata, StratifiedOrder};
use crate::loader::orders::windowed::{self, WindowedOrder};
use crate::system::cancellation::CancellationToken;
use crate::table::{StepTable, TableMix};
use std::sync::Arc;

/// The shared part of the orders of all epochs: [`Sampling`] with the data that it needs of the table.
#[derive(Clone, Debug)]
pub(in crate::loader) enum SamplingPlan {
    Sequential,
    Shuffled,
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
pub(in crate::loader) enum EpochOrder {
    Sequential,
    Shuffled(Permutation),
    Windowed(Box<WindowedOrder>),
    Uniform { draws: Draws, num_rows: u64 },
    Weighted { draws: Draws, table: Arc<AliasTable> },
    Stratified(Box<StratifiedOrder>),
}

impl SamplingPlan {
    pub(in crate::loader) fn new(
        table: &StepTable,
        options: &LoaderOptions,
        cancel: &CancellationToken,
    ) -> Result<SamplingPlan> {
        Ok(match &options.sampling {
            Sampling::Sequential => SamplingPlan::Sequential,
            Sampling::Shuffled => SamplingPlan::Shuffled,
            Sampling::Windowed { window } => {
                if *window == 0 {
                    return Err(Error::argument("window", "at least 1", window));
                }
                SamplingPlan::Windowed { shift: windowed::block_shift(*window, table.num_rows()) }
            }
            Sampling::Uniform => SamplingPlan::Uniform,
            Sampling::Weighted { column } => SamplingPlan::Weighted(Arc::new(AliasTable::new(table, column, cancel)?)),
            Sampling::Stratified { column, quotas } => {
                SamplingPlan::Stratified(Arc::new(Strata::new(table, column, quotas.as_deref(), cancel)?))
            }
        })
    }

    /// Returns whether a row may repeat within an epoch, so that an epoch may have any length.
    pub(in crate::loader) fn repeats(&self) -> bool {
        matches!(self, SamplingPlan::Uniform | SamplingPlan::Weighted(_) | SamplingPlan::Stratified(_))
    }

    /// Returns the name of the orders, which identifies a state. Plans with equal names have equal orders.
    pub(in crate::loader) fn name(&self, sampling: &Sampling) -> String {
        match self {
            SamplingPlan::Windowed { shift } => Sampling::Windowed { window: windowed::BLOCKS << shift }.to_string(),
            SamplingPlan::Stratified(strata) => strata.name(),
            // Equal orders have equal options here, so the options are the name.
            SamplingPlan::Sequential | SamplingPlan::Shuffled | SamplingPlan::Uniform | SamplingPlan::Weighted(_) => {
                sampling.to_string()
            }
        }
    }

    /// Returns the order of an epoch of `num_rows` rows.
    pub(in crate::loader) fn order(&self, num_rows: u64, seed: u64, epoch: u64) -> Result<EpochOrder> {
        Ok(match self {
            SamplingPlan::Sequential => EpochOrder::Sequential,
            SamplingPlan::Shuffled => EpochOrder::Shuffled(Permutation::new(num_rows, seed, epoch)?),
            SamplingPlan::Windowed { shift } => {
                EpochOrder::Windowed(Box::new(WindowedOrder::new(num_rows, *shift, seed, epoch)?))
            }
            SamplingPlan::Uniform => EpochOrder::Uniform { draws: Draws::new(seed, epoch), num_rows },
            SamplingPlan::Weighted(table) => {
                EpochOrder::Weighted { draws: Draws::new(seed, epoch), table: Arc::clone(table) }
            }
            SamplingPlan::Stratified(strata) => {
                EpochOrder::Stratified(Box::new(StratifiedOrder::new(Arc::clone(strata), seed, epoch)))
            }
        })
    }
}

impl EpochOrder {
    /// Sets each slot of `out` to the row at its position, from `start` on.
    pub(in crate::loader) fn fill(&mut self, rows: &TableMix, start: u64, out: &mut [u64]) -> Result<()> {
        match self {
            EpochOrder::Sequential => out.iter_mut().zip(start..).for_each(|(slot, position)| *slot = position),
            EpochOrder::Shuffled(permutation) => permutation.fill(start, out),
            EpochOrder::Windowed(windowed) => {
                windowed.fill(start, out, |positions, soon| rows.advise(positions, soon))?;
            }
            EpochOrder::Uniform { draws, num_rows } => {
                draws.fill(start, out);
                out.iter_mut().for_each(|word| *word = scale(*word, *num_rows));
            }
            EpochOrder::Weighted { draws, table } => table.fill(*draws, start, out),
            EpochOrder::Stratified(strata) => strata.fill(start, out)?,
        }
        Ok(())
    }
}
