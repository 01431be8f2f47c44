//! The parts of runs that a format loses, and the warning about them.

use super::format::ExportFormat;
use super::options::ExportOptions;
use crate::format::BEST;
use crate::run::Run;
use crate::system::progress::Progress;

/// A part of a run that some formats lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    FinalBoard,
    /// The moves of a run, if all are known. A reader derives the moves of other runs from the boards again.
    Moves,
    Values,
    RawValues,
    /// The values of chosen moves, which become 1.
    ChosenValues,
    /// Raw values of chosen moves above [`BEST`], which become 1.
    RawChosenValues,
    /// Values that are not multiples of 1/65535.
    ExactValues,
    StartTime,
    Duration,
    Score,
    Engine,
    Seed,
    /// Valuation types and board evaluations.
    Details,
}

impl Part {
    /// Returns the name for messages, in the plural.
    fn name(self) -> &'static str {
        match self {
            Part::FinalBoard => "final boards",
            Part::Moves => "moves",
            Part::Values => "values",
            Part::RawValues => "raw values",
            Part::ChosenValues => "values of chosen moves",
            Part::RawChosenValues => "raw values of chosen moves",
            Part::ExactValues => "exact values",
            Part::StartTime => "start times",
            Part::Duration => "durations",
            Part::Score => "scores",
            Part::Engine => "engine names",
            Part::Seed => "seeds",
            Part::Details => "details of steps",
        }
    }

    fn is_in(self, run: &Run) -> bool {
        let meta = run.meta();
        match self {
            Part::FinalBoard => run.final_board().is_some(),
            Part::Moves => run.num_steps() > 0 && run.unknown_moves().is_empty(),
            Part::Values => run.has_evs().contains(&true),
            Part::RawValues => meta.raw_evs && run.has_evs().contains(&true),
            Part::ChosenValues => chosen_values(run).any(|value| value != 1.0),
            Part::RawChosenValues => meta.raw_evs && chosen_values(run).any(|value| value > BEST && value != 1.0),
            Part::ExactValues => has_exact_values(run),
            Part::StartTime => meta.start_unix_s != 0,
            Part::Duration => meta.elapsed_s != 0.0,
            Part::Score => true,
            Part::Engine => meta.engine.as_ref().is_some_and(|engine| !engine.is_empty()),
            Part::Seed => meta.seed.is_some(),
            Part::Details => run.details().is_some(),
        }
    }
}

/// Returns the parts of runs that the format may lose.
fn parts(options: &ExportOptions) -> &'static [Part] {
    use Part::*;
    match options.format {
        ExportFormat::Original => &[],
        ExportFormat::A2t1 => &[Values, Seed, Details],
        ExportFormat::A2run2 | ExportFormat::A2pack => &[RawValues, Seed, Details],
        ExportFormat::PackDat => &[FinalBoard, RawValues, ExactValues, Seed, Details],
        ExportFormat::Npy => &[FinalBoard, RawValues, ChosenValues, Seed, Details],
        ExportFormat::Session => &[FinalBoard, Values, StartTime, Duration, Details, Moves, Engine],
        ExportFormat::Macroxue => &[FinalBoard, StartTime, Duration, Engine],
        ExportFormat::Jsonl if options.by_step && options.compact => {
            &[FinalBoard, StartTime, Duration, Score, Engine, Seed, Details]
        }
        ExportFormat::Jsonl if options.by_step => {
            &[FinalBoard, RawChosenValues, StartTime, Duration, Score, Engine, Seed, Details]
        }
        ExportFormat::Jsonl if options.compact => &[Values, Seed, Details],
        ExportFormat::Jsonl => &[Values, Engine, Seed, Details],
    }
}

/// For each part that the format may lose, the number of written runs that had it.
pub(super) struct Losses(Vec<(Part, u64)>);

impl Losses {
    pub(super) fn new(options: &ExportOptions) -> Losses {
        Losses(parts(options).iter().map(|&part| (part, 0)).collect())
    }

    /// Adds the parts that a written run had, as [`parts_of`] returns them.
    pub(super) fn add(&mut self, had: &[bool]) {
        for ((_, count), &had) in self.0.iter_mut().zip(had) {
            *count += u64::from(had);
        }
    }

    /// Warns once about all parts that the format lost. `keeps` returns whether this output has a part.
    pub(super) fn warn(&self, keeps: impl Fn(Part) -> bool, layout: &str, progress: &dyn Progress) {
        let lost = self.0.iter().filter(|(part, count)| *count > 0 && !keeps(*part));
        let texts: Vec<String> = lost
            .map(|(part, count)| format!("the {} of {count} {}", part.name(), if *count == 1 { "run" } else { "runs" }))
            .collect();
        if !texts.is_empty() {
            progress.warn(&format!("{layout} loses {}", texts.join(", ")));
        }
    }
}

/// Returns whether the run has each of the parts that the format may lose.
pub(super) fn parts_of(run: &Run, options: &ExportOptions) -> Vec<bool> {
    parts(options).iter().map(|part| part.is_in(run)).collect()
}

fn chosen_values(run: &Run) -> impl Iterator<Item = f32> {
    run.steps().filter_map(|step| Some(step.branches?.values[step.chosen? as usize]))
}

fn has_exact_values(run: &Run) -> bool {
    let is_rounded = |value: &f32| (value * 65535.0).round() / 65535.0 != *value;
    let values = run.has_evs().iter().zip(run.ev_values()).filter(|(has, _)| **has);
    chosen_values(run).any(|value| value != 1.0) || values.flat_map(|(_, values)| values).any(is_rounded)
}
