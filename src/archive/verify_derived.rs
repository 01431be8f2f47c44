//! The check of the columns of `steps` that repeat or derive from others.

use super::phases::Phases;
use super::row_views::{RunFacts, StepRows};
use crate::format::SourceFormat;
use arrow::array::Array;
use std::ops::Range;

impl StepRows<'_> {
    /// Checks the columns of a run that repeat or derive from others. Returns the name, the expected and the
    /// found value of each problem.
    pub(super) fn check_derived(
        &self,
        rows: Range<usize>,
        facts: Option<&RunFacts>,
        phases: Phases,
    ) -> Vec<(&'static str, String, String)> {
        let mut wrong = Vec::new();
        let mut expect = |name, expected: &dyn ToString, found: &dyn ToString| {
            wrong.push((name, expected.to_string(), found.to_string()));
        };
        let first = rows.start;
        if let Some(facts) = facts {
            let counted = rows.len() as u32;
            if counted != facts.num_steps {
                expect("number of steps", &facts.num_steps, &counted);
            }
            if self.num_steps[first] != facts.num_steps {
                expect("num_steps", &facts.num_steps, &self.num_steps[first]);
            }
            if self.max_score[first].unsigned_abs() != facts.meta.max_score {
                expect("max_score", &facts.meta.max_score, &self.max_score[first]);
            }
            if self.highest_tile[first] != facts.meta.highest_tile {
                expect("highest_tile", &facts.meta.highest_tile, &self.highest_tile[first]);
            }
            if self.engine.get(first) != facts.meta.engine.as_deref() {
                let name = |engine: Option<&str>| engine.unwrap_or("null").to_owned();
                expect("engine", &name(facts.meta.engine.as_deref()), &name(self.engine.get(first)));
            }
        }
        // Without a row of `runs`, the format of the run is not known.
        let sampled = facts.is_none_or(|facts| SourceFormat::may_be_sampled(&facts.format));
        let is_gap = |(place, &index): (usize, &u32)| place as u32 != index;
        if !sampled && let Some(gap) = self.step_index[rows.clone()].iter().enumerate().position(is_gap) {
            expect("step_index", &gap, &self.step_index[first + gap]);
        }
        for row in rows {
            let at = |what: &dyn ToString| format!("{} at step {}", what.to_string(), self.step_index[row]);
            let differs = [
                ("num_steps", self.num_steps[row] != self.num_steps[first]),
                ("max_score", self.max_score[row] != self.max_score[first]),
                ("highest_tile", self.highest_tile[row] != self.highest_tile[first]),
                ("engine", self.engine.get(row) != self.engine.get(first)),
            ];
            if let Some((name, _)) = differs.into_iter().find(|(_, differs)| *differs) {
                let found = at(&format!("a {name} that differs from the run's first step"));
                wrong.push(("columns of the run", "equal values at every step".into(), found));
            }
            let max_exp = match self.board(row) {
                Ok(board) => board.max_exp(),
                Err(error) => {
                    wrong.push(("tile_65536_mask", "cells with the exponent 15".into(), at(&error)));
                    continue;
                }
            };
            if self.max_exp[row] != max_exp {
                wrong.push(("max_exp", max_exp.to_string(), at(&self.max_exp[row])));
            }
            let phase = phases.of_max_exp(max_exp).name();
            if self.phase.get(row) != Some(phase) {
                wrong.push(("phase", phase.into(), at(&self.phase.get(row).unwrap_or("null"))));
            }
            let has_evs = self.has_evs.value(row);
            let valid =
                (0..4).filter(|&branch| self.evs[branch].is_valid(row)).fold(0, |mask, branch| mask | 1 << branch);
            let expected = if has_evs { self.legal[row] } else { 0 };
            if valid != expected {
                wrong.push(("values that are not null", format!("{expected:04b}"), at(&format!("{valid:04b}"))));
            }
            if self.moves.is_valid(row) && self.moves.value(row) > 3 {
                wrong.push(("move", "0..=3".into(), at(&self.moves.value(row))));
            }
            if wrong.len() > 8 {
                break;
            }
        }
        wrong
    }
}
