//! Rows of the result, from pairs of rows.

use super::keys::{Pairs, pairs};
use crate::query::scan::run_index::verdicts;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{filter_record_batch, take, take_record_batch};
use arrow::datatypes::SchemaRef;
use datafusion::common::Result as DataFusionResult;
use datafusion::physical_plan::PhysicalExpr;
use std::sync::Arc;

/// The rows that a join returns. The names are those of SQL, with the probe side on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinKind {
    Inner,
    Outer,
    Semi,
    Anti,
}

/// A side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Probe,
    Build,
}

/// A join condition in addition to the equal keys: a boolean expression over columns of both inputs.
#[derive(Clone, Debug)]
pub(super) struct MatchCondition {
    pub(super) expr: Arc<dyn PhysicalExpr>,
    pub(super) columns: Vec<(Side, usize)>,
    pub(super) schema: SchemaRef,
}

impl MatchCondition {
    /// Returns for each pair whether it meets the condition. Row `i` of `probe` and row `i` of `build` are a pair.
    fn evaluate(&self, probe: &RecordBatch, build: &RecordBatch) -> DataFusionResult<BooleanArray> {
        let rows = assemble(&self.schema, &self.columns, probe, build.columns())?;
        Ok(BooleanArray::new(verdicts(self.expr.as_ref(), &rows)?, None))
    }
}

/// How a join makes rows from pairs.
#[derive(Debug)]
pub(super) struct JoinedRows {
    pub(super) kind: JoinKind,
    pub(super) conditions: Vec<MatchCondition>,
    /// The columns of the result.
    pub(super) columns: Vec<(Side, usize)>,
    pub(super) schema: SchemaRef,
}

impl JoinedRows {
    /// Returns whether each row of the result comes from a pair.
    pub(super) fn returns_pairs_only(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Semi)
    }

    /// Joins rows whose keys are given.
    pub(super) fn join(
        &self,
        probe: (&RecordBatch, &[u64]),
        build: (&RecordBatch, &[u64]),
    ) -> DataFusionResult<RecordBatch> {
        let ((probe, probe_keys), (build, build_keys)) = (probe, build);
        let pairs = pairs(probe_keys, build_keys);
        let (probe_rows, build_rows) = match &pairs {
            Pairs::Slices { probe: from, build: to } => {
                (probe.slice(from.start, from.len()), build.slice(to.start, to.len()))
            }
            Pairs::Rows { probe: from, build: to } => {
                let position = |rows: &[u32]| UInt32Array::from(rows.to_vec());
                (take_record_batch(probe, &position(from))?, take_record_batch(build, &position(to))?)
            }
        };
        let mut met: Option<BooleanArray> = None;
        for condition in &self.conditions {
            let (probe_rows, build_rows) = match &met {
                // A later condition may fail on pairs that an earlier one excludes.
                Some(met) => (filter_record_batch(&probe_rows, met)?, filter_record_batch(&build_rows, met)?),
                None => (probe_rows.clone(), build_rows.clone()),
            };
            if probe_rows.num_rows() == 0 {
                break;
            }
            let verdicts = condition.evaluate(&probe_rows, &build_rows)?;
            met = Some(match met {
                Some(before) => narrowed(&before, &verdicts),
                None => verdicts,
            });
        }
        let met = met.filter(|met| met.true_count() < met.len());
        match (self.kind, met) {
            (JoinKind::Inner, None) => self.assemble(&probe_rows, build_rows.columns()),
            (JoinKind::Inner, Some(met)) => self
                .assemble(&filter_record_batch(&probe_rows, &met)?, filter_record_batch(&build_rows, &met)?.columns()),
            (JoinKind::Outer, None) if probe_rows.num_rows() == probe.num_rows() => {
                self.assemble(probe, build_rows.columns())
            }
            (JoinKind::Outer, met) => {
                let build_of = positions(&pairs, met.as_ref(), probe.num_rows());
                let columns = self.take_build(build, &UInt32Array::from(build_of))?;
                self.assemble(probe, &columns)
            }
            (JoinKind::Semi | JoinKind::Anti, met) => {
                let build_of = positions(&pairs, met.as_ref(), probe.num_rows());
                let is_kept = |row: &Option<u32>| row.is_some() == (self.kind == JoinKind::Semi);
                let kept: BooleanArray = build_of.iter().map(|row| Some(is_kept(row))).collect();
                self.assemble(&filter_record_batch(probe, &kept)?, &[])
            }
        }
    }

    /// Returns the columns of the build side at these positions; null for a missing position. Columns that the result
    /// lacks may be empty.
    fn take_build(&self, build: &RecordBatch, positions: &UInt32Array) -> DataFusionResult<Vec<ArrayRef>> {
        let taken = build.columns().iter().enumerate().map(|(i, column)| {
            let is_needed = self.columns.contains(&(Side::Build, i));
            if is_needed { take(column, positions, None) } else { Ok(column.slice(0, 0)) }
        });
        Ok(taken.collect::<Result<_, _>>()?)
    }

    fn assemble(&self, probe: &RecordBatch, build: &[ArrayRef]) -> DataFusionResult<RecordBatch> {
        assemble(&self.schema, &self.columns, probe, build)
    }
}

/// Makes a batch from columns of both sides.
fn assemble(
    schema: &SchemaRef,
    columns: &[(Side, usize)],
    probe: &RecordBatch,
    build: &[ArrayRef],
) -> DataFusionResult<RecordBatch> {
    let column = |&(side, i): &(Side, usize)| match side {
        Side::Probe => Arc::clone(probe.column(i)),
        Side::Build => Arc::clone(&build[i]),
    };
    let options = RecordBatchOptions::new().with_row_count(Some(probe.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.iter().map(column).collect(), &options)?)
}

/// Sets those values of `all` to false whose verdict is false. There is one verdict for each true value.
fn narrowed(all: &BooleanArray, verdicts: &BooleanArray) -> BooleanArray {
    let mut next = verdicts.values().iter();
    all.values().iter().map(|met| Some(met && next.next() == Some(true))).collect()
}

/// Returns, for each of the probe rows, the position of its pair; `None` if it has no pair, or its pair fails a
/// condition.
fn positions(pairs: &Pairs, met: Option<&BooleanArray>, num_rows: usize) -> Vec<Option<u32>> {
    let mut positions = vec![None; num_rows];
    let is_met = |pair: usize| met.is_none_or(|met| met.value(pair));
    match pairs {
        Pairs::Slices { probe, build } => {
            for (pair, (row, at)) in probe.clone().zip(build.clone()).enumerate() {
                positions[row] = is_met(pair).then_some(at as u32);
            }
        }
        Pairs::Rows { probe, build } => {
            for (pair, (&row, &at)) in probe.iter().zip(build).enumerate() {
                positions[row as usize] = is_met(pair).then_some(at);
            }
        }
    }
    positions
}
