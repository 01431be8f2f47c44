//! The physical plan of a query, and the order in which its rows are read. A filtered scan needs no sort.
//!
//! In-order plans ask each scan for one partition per row group. The partitions are then in the order of
//! `(run_id, step_index)`. If every node above the scan keeps the number of partitions and the order within
//! them, concatenating the partitions gives the natural order. Several partitions can still run at once.
//! DataFusion removes a sort that this order already satisfies, so `ORDER BY run_id, step_index` costs nothing.

use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::rewrites::group_by_numbers;
use crate::query::scan::parquet_scan::{PartitionPerRowGroup, num_rows, scan_of};
use crate::query::tasks::Division;
use datafusion::common::Result as DataFusionResult;
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::{FetchType, LogicalPlan, SkipType};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// A physical plan and how to read its partitions.
#[derive(Clone)]
pub(crate) struct Execution {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    pub(crate) context: Arc<TaskContext>,
    pub(crate) rows: Rows,
}

/// The order in which to read a plan's partitions.
#[derive(Clone)]
pub(crate) enum Rows {
    /// Reads the partitions one after the other. Skips the first `skip` rows and then takes at most `fetch`.
    InOrder {
        skip: usize,
        fetch: Option<usize>,
        /// The maximum number of rows that each partition can return.
        max_rows: Vec<usize>,
        /// Whether each partition returns this number of rows.
        is_exact: bool,
    },
    /// Reads one stream. If `is_sorted`, its rows are in the order of the query's ORDER BY, else in any order.
    Merged { is_sorted: bool },
}

impl Rows {
    /// Returns whether the query determines the order of the rows.
    pub(crate) fn has_order(&self) -> bool {
        matches!(self, Rows::InOrder { .. } | Rows::Merged { is_sorted: true })
    }
}

/// Makes the physical plan of a query, for tasks if there is a division.
pub(in crate::query) async fn plan(
    context: &SessionContext,
    plan: &LogicalPlan,
    division: Option<Division>,
) -> Result<Execution> {
    let mut state = context.state();
    if let Some(division) = division {
        let config = state.config_mut();
        config.set_extension(Arc::new(division));
        config.options_mut().execution.target_partitions = division.others;
        config.options_mut().optimizer.enable_round_robin_repartition = false;
    }
    if let Some((skip, fetch, input)) = row_by_row(plan).map_err(query_error)?
        && let Some(execution) = in_order(state.clone(), input, skip, fetch).await.map_err(query_error)?
    {
        return Ok(execution);
    }
    let rows = Rows::Merged { is_sorted: is_sorted(plan) };
    let plan = state.optimize(plan).and_then(group_by_numbers).map_err(query_error)?;
    let plan = state.query_planner().create_physical_plan(&plan, &state).await.map_err(query_error)?;
    Ok(Execution { plan, context: state.task_ctx(), rows })
}

/// Returns the skip, the fetch and the input of a top-level LIMIT, if the input consists of scans, filters,
/// projections and sorts only.
fn row_by_row(plan: &LogicalPlan) -> DataFusionResult<Option<(usize, Option<usize>, &LogicalPlan)>> {
    let (skip, fetch, input) = match plan {
        LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(skip), FetchType::Literal(fetch)) => (skip, fetch, limit.input.as_ref()),
            _ => return Ok(None),
        },
        plan => (0, None, plan),
    };
    let mut node = input;
    loop {
        node = match node {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => &sort.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::TableScan(_) => return Ok(Some((skip, fetch, input))),
            _ => return Ok(None),
        };
    }
}

/// Makes a plan with one partition per row group; `None` if a node does not keep their order.
async fn in_order(
    mut state: SessionState,
    plan: &LogicalPlan,
    skip: usize,
    fetch: Option<usize>,
) -> DataFusionResult<Option<Execution>> {
    let config = state.config_mut();
    config.set_extension(Arc::new(PartitionPerRowGroup));
    config.options_mut().optimizer.repartition_file_scans = false;
    config.options_mut().optimizer.enable_round_robin_repartition = false;
    // Otherwise a partition of a scan without a sort order may read the files of another partition.
    config.options_mut().execution.enable_file_stream_work_stealing = false;
    let plan = state.optimize(plan)?;
    let mut plan = state.query_planner().create_physical_plan(&plan, &state).await?;
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>().filter(|merge| merge.fetch().is_none()) {
        // The partitions are in order already, so the merge is not needed.
        plan = Arc::clone(merge.input());
    }
    let rows = kept_partitions(&plan).map(|(max_rows, is_exact)| Rows::InOrder { skip, fetch, max_rows, is_exact });
    Ok(rows.map(|rows| Execution { plan, context: state.task_ctx(), rows }))
}

/// Returns the maximum number of rows of each partition of the scan under `plan`, and whether each partition returns
/// exactly that number; `None` unless the partitions and their order reach the top of the plan.
fn kept_partitions(plan: &Arc<dyn ExecutionPlan>) -> Option<(Vec<usize>, bool)> {
    let num_partitions = plan.output_partitioning().partition_count();
    let (mut node, mut is_exact) = (plan, true);
    loop {
        is_exact &= node.children().is_empty() || matches!(node.cardinality_effect(), CardinalityEffect::Equal);
        match node.children()[..] {
            [child] if node.maintains_input_order() == [true] => node = child,
            [] => break,
            _ => return None,
        }
        if node.output_partitioning().partition_count() != num_partitions {
            return None;
        }
    }
    let rows_of = |group: &FileGroup| match group.files() {
        [file] => num_rows(file),
        _ => None,
    };
    let scan = scan_of(node)?;
    let is_exact = is_exact && scan.file_source().filter().is_none() && scan.limit.is_none();
    Some((scan.file_groups.iter().map(rows_of).collect::<Option<_>>()?, is_exact))
}

/// Returns whether the plan's own ORDER BY determines the order of its rows.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Limit(limit) => is_sorted(&limit.input),
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_sorted(&alias.input),
        _ => false,
    }
}
