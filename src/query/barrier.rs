//! Which filters go into the Parquet reader, and keeping the others above it.
//!
//! A filter inside the reader saves the decoding of rows that it drops, where these come in long runs: a phase is over once it is
//! over. Rows that fall out one by one (every fourth has this move) save nothing, since their pages are decompressed anyway,
//! and taking the others out of a page one by one costs more than decoding all of it. So a filter is tried on a sample, and
//! goes into the reader if it drops much and changes its mind seldom; the others are evaluated on whole batches.

use arrow::array::{Array, AsArray};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result as DataFusionResult, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, collect};
use std::fmt;
use std::sync::Arc;

/// Rows that filters are tried on.
pub(super) const SAMPLE_ROWS: usize = 1 << 14;
/// Rows between two changes, from which on a filter belongs in the reader.
const ROWS_PER_CHANGE: usize = 512;

/// Columns that change a few times in a run at most.
const CLUSTERED: [&str; 4] = ["max_exp", "phase", "has_evs", "step_index"];

/// Whether it is known without a sample that a filter changes its mind seldom.
pub(super) fn is_clustered(filter: &Expr) -> bool {
    filter.column_refs().iter().all(|column| CLUSTERED.contains(&column.name()))
}

/// Whether a filter saves the reader nothing, by its verdicts on the rows of a plan.
pub(super) async fn saves_nothing(
    filter: &Expr,
    sample: Arc<dyn ExecutionPlan>,
    state: &dyn datafusion::catalog::Session,
) -> DataFusionResult<bool> {
    let schema = DFSchema::try_from(sample.schema())?;
    let filter = state.create_physical_expr(filter.clone(), &schema)?;
    let (mut num_rows, mut num_kept, mut changes, mut last) = (0, 0, 0, false);
    for batch in collect(sample, state.task_ctx()).await? {
        // What fails here would fail in the query, if it comes to those rows.
        let Ok(verdicts) = filter.evaluate(&batch).and_then(|value| value.into_array(batch.num_rows())) else {
            return Ok(true);
        };
        let verdicts = verdicts.as_boolean();
        for row in 0..verdicts.len() {
            let keeps = verdicts.is_valid(row) && verdicts.value(row);
            num_kept += usize::from(keeps);
            changes += usize::from(keeps != last);
            last = keeps;
        }
        num_rows += batch.num_rows();
    }
    Ok(changes * ROWS_PER_CHANGE > num_rows || num_kept * 4 > num_rows * 3)
}

/// Passes rows on; filters above it stay there.
#[derive(Debug)]
pub(super) struct FilterBarrier {
    input: Arc<dyn ExecutionPlan>,
}

impl FilterBarrier {
    pub(super) fn over(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        Arc::new(FilterBarrier { input })
    }
}

impl DisplayAs for FilterBarrier {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilterBarrier")
    }
}

impl ExecutionPlan for FilterBarrier {
    fn name(&self) -> &'static str {
        "FilterBarrier"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let children: Result<[_; 1], _> = children.try_into();
        match children {
            Ok([input]) => Ok(FilterBarrier::over(input)),
            Err(children) => datafusion::common::internal_err!("expected 1 input, found {}", children.len()),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> DataFusionResult<Arc<Statistics>> {
        Ok(input_stats.first().map_or_else(|| Arc::new(Statistics::new_unknown(&self.schema())), Arc::clone))
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
}
