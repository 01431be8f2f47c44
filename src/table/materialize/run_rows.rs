//! Runs → the rows of a table.

use crate::error::Result;
use crate::format::WideStep;
use crate::run::Run;
use crate::system::cancellation::CancellationToken;
use crate::table::materialize::materialize_options::ChosenEv;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::row_output::RowMemory;
use crate::table::rows::runs::{RunFacts, Runs};
use crate::table::rows::wide::{WideColumns, WideOffsets};
use crate::table::step_table::StepTable;
use rayon::prelude::*;

/// A table that is filled run by run.
pub(in crate::table) struct RunRows {
    columns: WideColumns,
    layout: RowLayout,
    chosen_ev: ChosenEv,
    memory: RowMemory,
    facts: RunFacts,
}

impl RunRows {
    /// Returns a table without rows that has these wide columns.
    pub(in crate::table) fn new(columns: WideColumns, chosen_ev: ChosenEv, memory: RowMemory) -> RunRows {
        let layout = RowLayout::new(columns.fields().collect());
        RunRows { columns, layout, chosen_ev, memory, facts: RunFacts::default() }
    }

    /// Appends the steps of runs with ascending ids. The threads of the current pool write them.
    pub(in crate::table) fn append(&mut self, runs: &[(u32, Run)]) -> Result<()> {
        let (stride, offsets) = (self.layout.stride(), WideOffsets::of(&self.layout));
        let mut num_steps = 0;
        for (run_id, run) in runs {
            self.columns.check(run)?;
            num_steps += run.num_steps();
            self.facts.push(*run_id, run.meta().max_score, run.game(), run.meta().engine.clone());
        }
        let mut rest = self.memory.extend(num_steps.saturating_mul(stride))?;
        let mut parts = Vec::with_capacity(runs.len());
        for (run_id, run) in runs {
            let (rows, after) = rest.split_at_mut(run.num_steps() * stride);
            parts.push((*run_id, run, rows));
            rest = after;
        }
        let chosen_ev = self.chosen_ev;
        parts.into_par_iter().try_for_each(|(run_id, run, rows)| {
            rows.chunks_exact_mut(stride).zip(run.steps()).try_for_each(|(row, step)| {
                let mut step = WideStep::from_step(run_id.into(), &step)?;
                let chosen = step.step.ev_values.get_mut(usize::from(step.step.chosen));
                // A step without values has four NaNs.
                if let (ChosenEv::One, Some(value)) = (chosen_ev, chosen.filter(|value| !value.is_nan())) {
                    *value = 1.0;
                }
                offsets.write(&step, row);
                Ok(())
            })
        })
    }

    pub(in crate::table) fn into_table(self, cancel: &CancellationToken) -> Result<StepTable> {
        self.memory.into_table(self.layout, Runs::of_facts(self.facts), None, cancel)
    }
}
