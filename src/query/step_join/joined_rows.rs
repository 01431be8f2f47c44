//! Rows of the result, from pairs of rows.

use super::keys::{pairs, slice};
use crate::query::scan::run_index::verdicts;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{filter_record_batch, take, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::common::{JoinSide, JoinType, Result as DataFusionResult};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use std::sync::Arc;

/// How a join makes rows from pairs.
#[derive(Debug)]
pub(super) struct JoinedRows {
    /// The rows that the join returns: `Inner`, `Left`, `LeftSemi` or `LeftAnti`, with the probe side on the left.
    pub(super) kind: JoinType,
    /// The side of the replaced join that is the probe side.
    pub(super) probe_side: JoinSide,
    /// The join conditions in addition to the equal keys.
    pub(super) conditions: Vec<JoinFilter>,
    /// The columns of the result.
    pub(super) columns: Vec<ColumnIndex>,
    pub(super) schema: SchemaRef,
}

impl JoinedRows {
    /// Returns whether each row of the result comes from a pair.
    pub(super) fn returns_pairs_only(&self) -> bool {
        matches!(self.kind, JoinType::Inner | JoinType::LeftSemi)
    }

    /// Joins rows whose keys are given.
    pub(super) fn join(
        &self,
        probe: (&RecordBatch, &[u64]),
        build: (&RecordBatch, &[u64]),
    ) -> DataFusionResult<RecordBatch> {
        let ((probe, probe_keys), (build, build_keys)) = (probe, build);
        let (mut probe_at, mut build_at) = pairs(probe_keys, build_keys);
        // The rows of the pairs, unless a condition has excluded some.
        let mut rows = None;
        for condition in &self.conditions {
            if probe_at.is_empty() {
                break;
            }
            let (probe_rows, build_rows) = match rows.take() {
                Some(rows) => rows,
                None => (rows_at(probe, &probe_at)?, rows_at(build, &build_at)?),
            };
            let (schema, columns) = (condition.schema(), condition.column_indices());
            let pairs = self.assemble(schema, columns, &probe_rows, &|i| Ok(Arc::clone(build_rows.column(i))))?;
            let met = verdicts(condition.expression().as_ref(), &pairs)?;
            if met.count_set_bits() == met.len() {
                rows = Some((probe_rows, build_rows));
            } else {
                // A later condition may fail on pairs that an earlier one excludes.
                for rows in [&mut probe_at, &mut build_at] {
                    let mut met = met.iter();
                    rows.retain(|_| met.next() == Some(true));
                }
            }
        }
        let result = |probe: &RecordBatch, build: &dyn Fn(usize) -> Result<ArrayRef, ArrowError>| {
            self.assemble(&self.schema, &self.columns, probe, build)
        };
        let build_of = || {
            let mut build_of = vec![None; probe.num_rows()];
            probe_at.iter().zip(&build_at).for_each(|(&row, &at)| build_of[row as usize] = Some(at));
            build_of
        };
        match self.kind {
            JoinType::Inner | JoinType::LeftSemi => {
                let (probe_rows, build_rows) = match rows {
                    Some(rows) => rows,
                    None => (rows_at(probe, &probe_at)?, rows_at(build, &build_at)?),
                };
                result(&probe_rows, &|i| Ok(Arc::clone(build_rows.column(i))))
            }
            JoinType::Left if probe_at.len() == probe.num_rows() => {
                let build_rows = rows_at(build, &build_at)?;
                result(probe, &|i| Ok(Arc::clone(build_rows.column(i))))
            }
            JoinType::Left => {
                let build_of = UInt32Array::from(build_of());
                result(probe, &|i| take(build.column(i), &build_of, None))
            }
            _ => {
                let is_alone: BooleanArray = build_of().iter().map(|pair| Some(pair.is_none())).collect();
                result(&filter_record_batch(probe, &is_alone)?, &|i| Ok(Arc::clone(build.column(i))))
            }
        }
    }

    /// Makes a batch from columns of the probe side, and of the build side by their index.
    fn assemble(
        &self,
        schema: &SchemaRef,
        columns: &[ColumnIndex],
        probe: &RecordBatch,
        build: &dyn Fn(usize) -> Result<ArrayRef, ArrowError>,
    ) -> DataFusionResult<RecordBatch> {
        let column = |column: &ColumnIndex| match column.side == self.probe_side {
            true => Ok(Arc::clone(probe.column(column.index))),
            false => build(column.index),
        };
        let columns = columns.iter().map(column).collect::<Result<_, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(probe.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }
}

/// Returns the rows at ascending positions, without a copy if they follow each other.
fn rows_at(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch, ArrowError> {
    match slice(rows) {
        Some(range) => Ok(batch.slice(range.start, range.len())),
        None => take_record_batch(batch, &UInt32Array::from(rows.to_vec())),
    }
}
