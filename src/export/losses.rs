//! The parts of runs that a format loses, and the warning about them.

use crate::progress::Progress;
use crate::run::Run;

/// A part of a run that some formats lose.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The name for messages, in the plural.
    name: &'static str,
    /// Returns whether the run has the part.
    is_in: fn(&Run) -> bool,
}

pub(super) const FINAL_BOARD: Part = Part { name: "final boards", is_in: |run| run.final_board().is_some() };
/// The moves of a run, if all are known. A reader derives the moves of other runs from the boards again.
pub(super) const MOVES: Part =
    Part { name: "moves", is_in: |run| run.num_steps() > 0 && run.unknown_moves().is_empty() };
pub(super) const VALUES: Part = Part { name: "values", is_in: has_values };
pub(super) const RAW_VALUES: Part = Part { name: "raw values", is_in: |run| run.meta().raw_evs && has_values(run) };
/// The values of chosen moves, which become 1.
pub(super) const CHOSEN_VALUES: Part =
    Part { name: "values of chosen moves", is_in: |run| chosen_values(run).any(|value| value != 1.0) };
/// Values that are not multiples of 1/65535.
pub(super) const EXACT_VALUES: Part = Part { name: "exact values", is_in: has_exact_values };
pub(super) const START_TIME: Part = Part { name: "start times", is_in: |run| run.meta().start_unix_s != 0 };
pub(super) const DURATION: Part = Part { name: "durations", is_in: |run| run.meta().elapsed_s != 0.0 };
pub(super) const SCORE: Part = Part { name: "scores", is_in: |_| true };
pub(super) const ENGINE: Part =
    Part { name: "engine names", is_in: |run| run.meta().engine.as_ref().is_some_and(|engine| !engine.is_empty()) };
pub(super) const SEED: Part = Part { name: "seeds", is_in: |run| run.meta().seed.is_some() };
/// Valuation types, board evaluations, and seeds and ranks of steps.
pub(super) const DETAILS: Part = Part { name: "details of steps", is_in: |run| run.details().is_some() };

/// For each part that the format loses, the number of written runs that had it.
pub(super) struct Losses(Vec<u64>);

impl Losses {
    pub(super) fn new(num_parts: usize) -> Losses {
        Losses(vec![0; num_parts])
    }

    /// Counts a written run. `lost` is the result of [`lost`] for it.
    pub(super) fn add(&mut self, lost: &[bool]) {
        for (count, &is_lost) in self.0.iter_mut().zip(lost) {
            *count += u64::from(is_lost);
        }
    }

    /// Warns once about everything that the format lost.
    pub(super) fn warn(&self, parts: &[Part], format: &str, progress: &dyn Progress) {
        let counts = parts.iter().zip(&self.0).filter(|(_, count)| **count > 0);
        let texts: Vec<String> = counts
            .map(|(part, count)| format!("the {} of {count} {}", part.name, if *count == 1 { "run" } else { "runs" }))
            .collect();
        if !texts.is_empty() {
            progress.warn(&format!("{format} loses {}", texts.join(", ")));
        }
    }
}

/// Returns whether the run has each of the parts.
pub(super) fn lost(parts: &[Part], run: &Run) -> Vec<bool> {
    parts.iter().map(|part| (part.is_in)(run)).collect()
}

fn has_values(run: &Run) -> bool {
    run.has_evs().contains(&true)
}

fn chosen_values(run: &Run) -> impl Iterator<Item = f32> {
    let steps = (0..run.num_steps()).filter_map(|step| run.step(step));
    steps.filter_map(|step| Some(step.branches?.values[step.chosen? as usize]))
}

fn has_exact_values(run: &Run) -> bool {
    let is_rounded = |value: &f32| (value * 65535.0).round() / 65535.0 != *value;
    let values = run.has_evs().iter().zip(run.ev_values()).filter(|(has, _)| **has);
    chosen_values(run).any(|value| value != 1.0) || values.flat_map(|(_, values)| values).any(is_rounded)
}
