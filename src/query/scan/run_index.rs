//! An index from runs to their rows of `steps`, so that run-level filters read no steps.
//!
//! `steps` repeats five columns of `runs`. The rows of a run are contiguous and in order, and their number is
//! `num_steps`. So a condition on those columns alone is evaluated once per run and selects ranges of rows. The
//! reader does not decompress pages outside these ranges, and does not read the columns of the condition. If
//! every step of a run was recorded, `step_index` is the position of a step in its run. A bound on `step_index`
//! then narrows the ranges too.
//!
//! Invariant: the runs of a file have as many rows as the file.

use crate::archive::{DataFile, TableName, table_schema};
use crate::format::SourceFormat;
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::compute::{
    SortColumn, cast, filter_record_batch, lexsort_to_indices, prep_null_mask_filter, take_record_batch,
};
use arrow::datatypes::{DataType, UInt32Type};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::physical_plan::PhysicalExpr;
use std::ops::Range;
use std::sync::Arc;

/// The columns of `steps` that have the same value in all steps of a run.
const RUN_COLUMNS: [&str; 5] = ["run_id", "max_score", "highest_tile", "num_steps", "engine"];

/// The runs of a version, with the numbers of their steps.
#[derive(Debug)]
pub(in crate::query) struct RunIndex {
    /// `RUN_COLUMNS`, one row per run, sorted by run id.
    runs: RecordBatch,
    run_ids: ScalarBuffer<u32>,
    num_steps: ScalarBuffer<u32>,
    sampled: BooleanBuffer,
}

/// Returns whether a condition uses only columns of runs.
pub(in crate::query) fn is_about_runs(filter: &Expr) -> bool {
    // This includes a condition without columns. The optimizer may have simplified its columns away, and no other
    // node evaluates it.
    filter.column_refs().iter().all(|column| RUN_COLUMNS.contains(&column.name()))
}

/// Returns the conditions of an optimized plan that are evaluated once per run, as a line of text; empty if
/// there are none.
pub(in crate::query) fn describe(plan: &LogicalPlan) -> DataFusionResult<String> {
    let mut filters = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && scan.table_name.table() == "steps"
        {
            let about_runs = scan.filters.iter().filter(|filter| is_about_runs(filter));
            filters.extend(about_runs.map(|filter| filter.human_display().to_string()));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(if filters.is_empty() { String::new() } else { format!("filters on runs: {}\n", filters.join(" AND ")) })
}

impl RunIndex {
    /// Returns the positions of the columns of `runs` that an index needs.
    pub(in crate::query) fn columns() -> DataFusionResult<Vec<usize>> {
        let schema = table_schema(TableName::Runs);
        let names = RUN_COLUMNS.into_iter().chain(["format"]);
        Ok(names.map(|name| schema.index_of(name)).collect::<Result<_, _>>()?)
    }

    /// Makes an index from these [`columns`](RunIndex::columns) of all runs, in any order.
    pub(in crate::query) fn new(all: &RecordBatch) -> DataFusionResult<RunIndex> {
        let by_id = [SortColumn { values: Arc::clone(all.column(0)), options: None }];
        let all = take_record_batch(all, &lexsort_to_indices(&by_id, None)?)?;

        let numbers = |i: usize| all.column(i).as_primitive::<UInt32Type>().values().clone();
        let (run_ids, num_steps) = (numbers(0), numbers(3));
        let formats = cast(all.column(RUN_COLUMNS.len()), &DataType::Utf8)?;
        let formats = formats.as_string::<i32>();
        let sampled = BooleanBuffer::collect_bool(formats.len(), |run| {
            formats.is_null(run) || SourceFormat::may_be_sampled(formats.value(run))
        });
        let runs = all.project(&(0..RUN_COLUMNS.len()).collect::<Vec<_>>())?;
        Ok(RunIndex { runs, run_ids, num_steps, sampled })
    }

    /// Returns the runs that have steps and meet all conditions. Evaluates each condition for the runs that meet the
    /// conditions before it.
    pub(in crate::query) fn matching(&self, filters: &[&Expr], state: &dyn Session) -> DataFusionResult<BooleanBuffer> {
        let schema = DFSchema::try_from(self.runs.schema())?;
        let mut matching = BooleanBuffer::collect_bool(self.num_steps.len(), |run| self.num_steps[run] > 0);
        for filter in filters {
            let condition = state.create_physical_expr((*filter).clone(), &schema)?;
            let chosen = filter_record_batch(&self.runs, &BooleanArray::new(matching.clone(), None))?;
            let verdicts = verdicts(condition.as_ref(), &chosen)?;
            let mut next = verdicts.iter();
            let holds = |run| matching.value(run) && next.next() == Some(true);
            matching = BooleanBuffer::collect_bool(matching.len(), holds);
        }
        Ok(matching)
    }

    /// Returns the rows of a file that belong to these runs, limited to these steps in runs with every step
    /// recorded. Returns `None` if the runs have more or fewer rows than the file.
    pub(in crate::query) fn rows_of(
        &self,
        file: &DataFile,
        runs: &BooleanBuffer,
        steps: &Range<u64>,
    ) -> Option<Vec<Range<usize>>> {
        let first = self.run_ids.partition_point(|&id| id < file.first_run_id);
        let last = self.run_ids.partition_point(|&id| id <= file.last_run_id);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let mut start = 0;
        for run in first..last {
            let len = self.num_steps[run] as usize;
            if runs.value(run) {
                let within = if self.sampled.value(run) { 0..len } else { clamp(steps, len) };
                let (from, to) = (start + within.start, start + within.end);
                match ranges.last_mut() {
                    _ if from >= to => {}
                    Some(range) if range.end == from => range.end = to,
                    _ => ranges.push(from..to),
                }
            }
            start += len;
        }
        (start as u64 == file.num_rows).then_some(ranges)
    }
}

/// Returns the rows for which a condition is true.
pub(in crate::query) fn verdicts(condition: &dyn PhysicalExpr, rows: &RecordBatch) -> DataFusionResult<BooleanBuffer> {
    let verdicts = condition.evaluate(rows)?.into_array(rows.num_rows())?;
    Ok(match verdicts.as_boolean_opt() {
        Some(verdicts) if verdicts.null_count() > 0 => prep_null_mask_filter(verdicts).values().clone(),
        Some(verdicts) => verdicts.values().clone(),
        // An untyped NULL.
        None => BooleanBuffer::new_unset(rows.num_rows()),
    })
}

fn clamp(steps: &Range<u64>, len: usize) -> Range<usize> {
    let at_most = |step: u64| usize::try_from(step).unwrap_or(usize::MAX).min(len);
    at_most(steps.start)..at_most(steps.end)
}

/// Returns the range of steps that pass all comparisons of `step_index` with numbers.
pub(in crate::query) fn step_range(filters: &[Expr]) -> Range<u64> {
    let mut range = 0..u64::MAX;
    for filter in filters {
        // The optimizer puts the column on the left.
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { continue };
        let (Expr::Column(column), Expr::Literal(value, _)) = (&**left, &**right) else { continue };
        let Ok(ScalarValue::UInt64(Some(number))) = value.cast_to(&DataType::UInt64) else { continue };
        let after = number.saturating_add(1);
        match op {
            _ if column.name() != "step_index" => {}
            Operator::Eq => range = range.start.max(number)..range.end.min(after),
            Operator::Lt => range.end = range.end.min(number),
            Operator::LtEq => range.end = range.end.min(after),
            Operator::Gt => range.start = range.start.max(after),
            Operator::GtEq => range.start = range.start.max(number),
            _ => {}
        }
    }
    range
}
