//! Runs → the rows of a table.

use super::layout::RowLayout;
use super::materialize_options::ChosenEv;
use super::row_output::RowMemory;
use super::runs::{RunFacts, Runs};
use super::step_table::StepTable;
use super::wide::{MissingColumns, WideColumns, WideOffsets};
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::format::WideStep;
use crate::run::Run;
use crate::step::Step;
use rayon::prelude::*;

/// The layout of rows that are made from runs.
pub(super) struct RunLayout<'m> {
    columns: WideColumns,
    missing: &'m MissingColumns,
    layout: RowLayout,
    offsets: WideOffsets,
    chosen_ev: ChosenEv,
}

/// A table that is filled run by run.
pub(super) struct RunRows<'m> {
    layout: RunLayout<'m>,
    memory: RowMemory,
    facts: RunFacts,
}

impl<'m> RunLayout<'m> {
    /// Returns rows with these wide columns.
    pub(super) fn new(columns: WideColumns, missing: &'m MissingColumns, chosen_ev: ChosenEv) -> RunLayout<'m> {
        let layout = RowLayout::new(columns.fields().collect());
        let offsets = WideOffsets::of(&layout);
        RunLayout { columns, missing, layout, offsets, chosen_ev }
    }

    /// Returns the size of a row in bytes.
    pub(super) fn stride(&self) -> usize {
        self.layout.stride()
    }

    /// Writes the steps of a run to `rows`, which has room for exactly these.
    fn write(&self, run_id: u32, run: &Run, rows: &mut [u8]) -> Result<()> {
        rows.chunks_exact_mut(self.stride()).zip(run.steps()).try_for_each(|(row, step)| {
            let mut step = WideStep::from_step(run_id.into(), &step)?;
            self.choose(&mut step.step);
            self.offsets.write(&step, row);
            Ok(())
        })
    }

    /// Sets the value of the chosen move to 1.0 if the options ask for it and the step has values.
    fn choose(&self, step: &mut Step) {
        if self.chosen_ev == ChosenEv::One
            && let Some(value) = step.ev_values.get_mut(usize::from(step.chosen)).filter(|value| !value.is_nan())
        {
            *value = 1.0;
        }
    }
}

impl<'m> RunRows<'m> {
    pub(super) fn new(layout: RunLayout<'m>, memory: RowMemory) -> RunRows<'m> {
        RunRows { layout, memory, facts: RunFacts::default() }
    }

    /// Appends the steps of runs with ascending ids. The threads of the current pool write them.
    pub(super) fn append(&mut self, runs: &[(u32, Run)]) -> Result<()> {
        let RunRows { layout, memory, facts } = self;
        let mut num_steps = 0;
        for (run_id, run) in runs {
            layout.columns.check(run, layout.missing)?;
            num_steps += run.num_steps();
            facts.push(*run_id, run.meta().max_score, run.game(), run.meta().engine.clone());
        }
        let mut rest = memory.extend(num_steps.saturating_mul(layout.stride()))?;
        let mut parts = Vec::with_capacity(runs.len());
        for (run_id, run) in runs {
            let (rows, after) = rest.split_at_mut(run.num_steps() * layout.stride());
            parts.push((*run_id, run, rows));
            rest = after;
        }
        parts.into_par_iter().try_for_each(|(run_id, run, rows)| layout.write(run_id, run, rows))
    }

    pub(super) fn into_table(self, cancel: &CancellationToken) -> Result<StepTable> {
        self.memory.into_table(self.layout.layout, Runs::of_facts(self.facts), None, cancel)
    }
}
