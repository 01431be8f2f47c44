//! The comparison of annotations with the steps of the archive.

use super::annotation_rows::AnnotationRows;
use crate::board::Board;
use crate::error::{Error, Result};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use std::ops::Range;

/// The columns of `steps` that the comparison needs.
pub(super) const COLUMNS: [&str; 6] = ["run_id", "step_index", "board", "move", "ev_legal", "tile_65536_mask"];

/// The steps of one run in the archive.
#[derive(Default)]
pub(super) struct StepsOfRun {
    steps: Vec<StepFacts>,
}

struct StepFacts {
    index: u32,
    board: u64,
    chosen: Option<u8>,
    legal: u8,
    /// Whether the board has a tile that its nibbles cannot hold.
    is_wide: bool,
}

impl StepsOfRun {
    /// Adds rows of a batch with these [`COLUMNS`].
    pub(super) fn extend(&mut self, batch: &RecordBatch, rows: Range<usize>) -> Result<()> {
        let mistyped = || Error::other("a column of steps has the wrong type");
        let index = batch.column(1).as_primitive_opt::<UInt32Type>().ok_or_else(mistyped)?;
        let board = batch.column(2).as_primitive_opt::<UInt64Type>().ok_or_else(mistyped)?;
        let chosen = batch.column(3).as_primitive_opt::<UInt8Type>().ok_or_else(mistyped)?;
        let legal = batch.column(4).as_primitive_opt::<UInt8Type>().ok_or_else(mistyped)?;
        let wide = batch.column(5).as_primitive_opt::<UInt16Type>().ok_or_else(mistyped)?;
        self.steps.extend(rows.map(|row| StepFacts {
            index: index.value(row),
            board: board.value(row),
            chosen: chosen.is_valid(row).then(|| chosen.value(row)),
            legal: legal.value(row),
            is_wide: wide.is_valid(row) && wide.value(row) != 0,
        }));
        Ok(())
    }

    /// Compares a run's annotations with its steps. Returns the number of steps without annotations.
    pub(super) fn compare(
        &self,
        source: &AnnotationRows,
        rows: &Range<u64>,
        annotations: &RecordBatch,
        partial: bool,
    ) -> Result<u64> {
        let run_id = annotations.column(0).as_primitive::<UInt32Type>().value(0);
        let index = annotations.column(1).as_primitive::<UInt32Type>().values();
        let [teacher, legal] = [3, 4].map(|column| annotations.column(column).as_primitive::<UInt8Type>());
        let boards = source.boards(rows);
        let at = |step: u32| format!("at step {step} of archive run {run_id}");
        let mut steps = self.steps.iter();
        let mut missing = 0;
        for (row, &step_index) in index.iter().enumerate() {
            let step = loop {
                match steps.next() {
                    Some(step) if step.index < step_index => {
                        self.check_complete(source, partial, &at(step.index))?;
                        missing += 1;
                    }
                    Some(step) if step.index == step_index => break step,
                    _ => return Err(source.refuse("step_index", "a step of the archive", at(step_index))),
                }
            };
            if let Some(legal) = legal.is_valid(row).then(|| legal.value(row))
                && legal != step.legal
                && (step.is_wide || legal != Board(step.board).legal_moves())
            {
                return Err(source.refuse("legal_mask", step.legal.to_string(), format!("{legal} {}", at(step_index))));
            }
            if let (true, Some(chosen)) = (teacher.is_valid(row), step.chosen)
                && teacher.value(row) != chosen
            {
                let found = format!("{} {}", teacher.value(row), at(step_index));
                return Err(source.refuse("teacher_move", chosen.to_string(), found));
            }
            if let Some(boards) = &boards
                && boards.is_valid(row)
                && boards.value(row) != step.board
            {
                let found = format!("{:#018x} {}", boards.value(row), at(step_index));
                return Err(source.refuse("board", format!("{:#018x}", step.board), found));
            }
        }
        for step in steps {
            self.check_complete(source, partial, &at(step.index))?;
            missing += 1;
        }
        Ok(missing)
    }

    fn check_complete(&self, source: &AnnotationRows, partial: bool, at: &str) -> Result<()> {
        if partial {
            return Ok(());
        }
        let expected = format!("all {} steps of the run; `partial` allows fewer", self.steps.len());
        Err(source.refuse("annotated steps", expected, format!("none {at}")))
    }
}
