//! The steps of runs as rows of the table `steps`.

use crate::archive::phases::{Phase, Phases};
use crate::archive::schema::{table_schema, text_dictionary};
use crate::archive::table_name::TableName;
use crate::board::Board;
use crate::error::{Error, Result};
use crate::run::Run;
use crate::step_details::{StepDetail, StepDetails};
use arrow::array::{
    ArrayRef, BooleanArray, DictionaryArray, Float32Array, Int32Array, Int64Array, RecordBatch, StringArray,
    StringDictionaryBuilder, UInt8Array, UInt16Array, UInt32Array, UInt64Array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Int32Type};
use std::sync::Arc;

/// A run's id in the archive, and the run.
type NumberedRun<'a> = (u32, &'a Run);

/// Returns the steps of runs, in order.
pub(in crate::archive) fn steps_batch(runs: &[NumberedRun<'_>], phases: Phases) -> Result<RecordBatch> {
    let columns = StepsBatchBuilder::of(runs, phases)?;
    RecordBatch::try_new(table_schema(TableName::Steps), columns).map_err(Error::other)
}

/// A builder of the columns of `steps`, one function per column. Its loops run over slices, because the
/// compiler vectorizes these and not chained iterators.
struct StepsBatchBuilder<'a> {
    runs: &'a [NumberedRun<'a>],
    num_rows: usize,
}

impl StepsBatchBuilder<'_> {
    fn of(runs: &[NumberedRun<'_>], phases: Phases) -> Result<Vec<ArrayRef>> {
        let num_rows = runs.iter().map(|(_, run)| run.num_steps()).sum();
        let columns = StepsBatchBuilder { runs, num_rows };
        let boards: Vec<u64> = columns.joined(|run| bytemuck::cast_slice(run.boards()));
        let masks: Vec<u16> = columns.joined_or(Run::tile_65536_masks, |_| 0);
        let mut max_exp: Vec<u8> = boards.iter().map(|&board| Board(board).max_exp()).collect();
        max_exp.iter_mut().zip(&masks).filter(|(_, mask)| **mask != 0).for_each(|(exp, _)| *exp = 16);
        let phase_of: [i32; 32] = std::array::from_fn(|exp| phases.of_max_exp(exp.min(16) as u8) as i32);
        let phase: Vec<i32> = max_exp.iter().map(|&exp| phase_of[usize::from(exp & 31)]).collect();
        let names = Arc::new(StringArray::from(Phase::ALL.map(Phase::name).to_vec()));
        let phase = DictionaryArray::try_new(Int32Array::from(phase), names).map_err(Error::other)?;
        let legal: Vec<u8> = columns.joined(Run::ev_legal);
        let has_evs: Vec<bool> = columns.joined(Run::has_evs);
        let moves: Vec<u8> = columns.joined(|run| bytemuck::cast_slice(run.moves()));
        let step_index: Vec<u32> = columns.joined_or(Run::step_indices, |index| index);
        let [up, down, left, right] = columns.evs(&legal, &has_evs);
        Ok(vec![
            columns.repeated(|&(run_id, _)| run_id),
            Arc::new(UInt32Array::from(step_index)),
            Arc::new(UInt64Array::from(boards)),
            Arc::new(UInt16Array::from(masks)),
            Arc::new(UInt8Array::new(moves.into(), columns.known_moves())),
            up,
            down,
            left,
            right,
            columns.board_evals(),
            columns.valuation_types(),
            Arc::new(UInt8Array::from(legal)),
            Arc::new(BooleanArray::from(has_evs)),
            Arc::new(UInt8Array::from(max_exp)),
            Arc::new(phase),
            Arc::new(Int64Array::from(columns.repeat(|(_, run)| run.meta().max_score as i64))),
            columns.repeated(|(_, run)| run.meta().highest_tile),
            columns.repeated(|(_, run)| run.num_steps() as u32),
            columns.engines(),
        ])
    }

    /// Returns a column that runs have in memory, one run after the other.
    fn joined<T: Copy>(&self, values: impl Fn(&Run) -> &[T]) -> Vec<T> {
        let mut column = Vec::with_capacity(self.num_rows);
        self.runs.iter().for_each(|(_, run)| column.extend_from_slice(values(run)));
        column
    }

    /// Returns a column that some runs have in memory. The value in a step of any other run depends on its index.
    fn joined_or<T: Copy>(&self, values: impl Fn(&Run) -> Option<&[T]>, default: impl Fn(u32) -> T) -> Vec<T> {
        let mut column = Vec::with_capacity(self.num_rows);
        for (_, run) in self.runs {
            match values(run) {
                Some(values) => column.extend_from_slice(values),
                None => column.extend((0..run.num_steps() as u32).map(&default)),
            }
        }
        column
    }

    /// Returns a bitmap of the known moves; `None` if all are known.
    fn known_moves(&self) -> Option<NullBuffer> {
        if self.runs.iter().all(|(_, run)| run.unknown_moves().is_empty()) {
            return None;
        }
        let mut known = vec![true; self.num_rows];
        let mut start = 0;
        for (_, run) in self.runs {
            for &step in run.unknown_moves() {
                known[start + step as usize] = false;
            }
            start += run.num_steps();
        }
        Some(NullBuffer::from(known))
    }

    /// Returns a value of each run, repeated for each of its steps.
    fn repeat<T: Copy>(&self, value: impl Fn(&NumberedRun<'_>) -> T) -> Vec<T> {
        let mut column = Vec::with_capacity(self.num_rows);
        for numbered in self.runs {
            column.resize(column.len() + numbered.1.num_steps(), value(numbered));
        }
        column
    }

    fn repeated(&self, value: impl Fn(&NumberedRun<'_>) -> u32) -> ArrayRef {
        Arc::new(UInt32Array::from(self.repeat(value)))
    }

    /// Returns the values of the four branches. A value is null if the branch is illegal or the step has no
    /// values.
    fn evs(&self, legal: &[u8], has_evs: &[bool]) -> [ArrayRef; 4] {
        if !has_evs.contains(&true) {
            return std::array::from_fn(|_| new_null_array(&DataType::Float32, self.num_rows));
        }
        let mut values: [Vec<f32>; 4] = std::array::from_fn(|_| vec![0.0; self.num_rows]);
        let mut start = 0;
        for (_, run) in self.runs {
            let rows = run.ev_values();
            for (branch, column) in values.iter_mut().enumerate() {
                let column = &mut column[start..start + rows.len()];
                for i in 0..column.len() {
                    column[i] = rows[i][branch];
                }
            }
            start += rows.len();
        }
        let masks: Vec<u8> =
            legal.iter().zip(has_evs).map(|(&legal, &has)| legal & u8::from(has).wrapping_neg()).collect();
        let mut branch = 0;
        values.map(|values| {
            let bit = 1_u8 << branch;
            branch += 1;
            let valid = BooleanBuffer::collect_bool(masks.len(), |row| masks[row] & bit != 0);
            Arc::new(Float32Array::new(ScalarBuffer::from(values), Some(NullBuffer::new(valid)))) as ArrayRef
        })
    }

    fn board_evals(&self) -> ArrayRef {
        if !self.have_details(StepDetails::has_board_evals) {
            return new_null_array(&DataType::Int32, self.num_rows);
        }
        Arc::new(self.details().map(|detail| detail.board_eval).collect::<Int32Array>())
    }

    fn valuation_types(&self) -> ArrayRef {
        if !self.have_details(StepDetails::has_valuation_types) {
            return new_null_array(&text_dictionary(), self.num_rows);
        }
        Arc::new(self.details().map(|detail| detail.valuation_type).collect::<DictionaryArray<Int32Type>>())
    }

    fn have_details(&self, has: impl Fn(&StepDetails) -> bool) -> bool {
        self.runs.iter().any(|(_, run)| run.details().is_some_and(&has))
    }

    /// Returns the details of all steps.
    fn details(&self) -> impl Iterator<Item = StepDetail<'_>> {
        self.runs.iter().flat_map(|(_, run)| {
            let details = run.details();
            (0..run.num_steps()).map(move |step| details.map(|details| details.get(step)).unwrap_or_default())
        })
    }

    fn engines(&self) -> ArrayRef {
        let mut column = StringDictionaryBuilder::<Int32Type>::with_capacity(self.num_rows, 1, 16);
        // A name of a run without steps would be a value that no row has.
        for run in self.runs.iter().map(|(_, run)| run).filter(|run| run.num_steps() > 0) {
            column.append_options(run.meta().engine.as_deref(), run.num_steps());
        }
        Arc::new(column.finish())
    }
}
