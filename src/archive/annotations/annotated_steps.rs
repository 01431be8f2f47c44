//! The comparison of annotations with the steps of the archive.

use super::annotation_rows::AnnotationRows;
use crate::archive::parquet::row_views::StepRows;
use crate::board::Board;
use crate::error::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{UInt8Type, UInt32Type};
use std::ops::Range;

/// Compares a run's annotations with its steps, a range of rows. Returns the number of steps without annotations.
pub(in crate::archive) fn compare(
    source: &AnnotationRows,
    rows: &StepRows<'_>,
    range: &Range<usize>,
    annotations: &RecordBatch,
    partial: bool,
) -> Result<u64> {
    let run_id = annotations.column(0).as_primitive::<UInt32Type>().value(0);
    let index = annotations.column(1).as_primitive::<UInt32Type>().values();
    let [teacher, legal] = [3, 4].map(|column| annotations.column(column).as_primitive::<UInt8Type>());
    let at = |step: u32| format!("at step {step} of archive run {run_id}");
    let mut rest = range.clone();
    for (row, &step_index) in index.iter().enumerate() {
        let next = rest.find(|&step| rows.step_index[step] >= step_index);
        let Some(step) = next.filter(|&step| rows.step_index[step] == step_index) else {
            return Err(source.refuse("step_index", "a step of the archive", at(step_index)));
        };
        if let Some(found) = legal.is_valid(row).then(|| legal.value(row))
            && found != rows.legal[step]
            && (rows.tile_65536_mask[step] != 0 || found != Board(rows.board[step]).legal_moves())
        {
            let expected = rows.legal[step].to_string();
            return Err(source.refuse("legal_mask", expected, format!("{found} {}", at(step_index))));
        }
        if teacher.is_valid(row) && rows.moves.is_valid(step) && teacher.value(row) != rows.moves.value(step) {
            let found = format!("{} {}", teacher.value(row), at(step_index));
            return Err(source.refuse("teacher_move", rows.moves.value(step).to_string(), found));
        }
    }
    let missing = range.len() - index.len();
    if missing > 0 && !partial {
        let first = range.clone().zip(index).find(|(step, index)| rows.step_index[*step] != **index);
        let first = first.map_or(range.start + index.len(), |(step, _)| step);
        let expected = format!("all {} steps of the run; `partial` allows fewer", range.len());
        return Err(source.refuse("annotated steps", expected, format!("none {}", at(rows.step_index[first]))));
    }
    Ok(missing as u64)
}
