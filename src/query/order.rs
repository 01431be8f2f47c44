//! Row order: plans that keep the natural order, and sorts that make the order of other plans definite.
//!
//! In-order plans ask each scan for one partition per row group. The partitions are then in the order of
//! `(run_id, step_index)`. If every node above the scan keeps the number of partitions and the order within
//! them, concatenating the partitions gives the natural order. Several partitions can still run at once.
//! DataFusion removes a sort that this order already satisfies, so `ORDER BY run_id, step_index` costs nothing.

use super::determinism::Determinism;
use super::errors::query_error;
use super::rewrites::group_by_numbers;
use super::row_origin::RowOrigin;
use super::scan::PartitionPerRowGroup;
use crate::error::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, SortExpr};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// A physical plan and how to read its partitions.
pub(crate) enum Execution {
    /// Reads the partitions one after the other. Skips the first `skip` rows and then takes at most `fetch`.
    InOrder {
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        skip: usize,
        fetch: Option<usize>,
        /// The maximum number of rows that each partition can return.
        max_rows: Vec<usize>,
    },
    /// Reads one stream. Its rows are in the order of the query's ORDER BY, or in any order without one.
    Merged { plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext> },
}

impl Execution {
    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        match self {
            Execution::InOrder { plan, .. } | Execution::Merged { plan, .. } => plan,
        }
    }
}

/// The choice among the results that SQL allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultOrder {
    /// Any rows that SQL allows.
    Any,
    /// The same rows in the same order each time, unless the query is volatile.
    Definite(Determinism),
}

/// Makes the physical plan of a query.
pub(super) async fn plan(context: &SessionContext, plan: LogicalPlan, rows: ResultOrder) -> Result<Execution> {
    // Ties would also decide which rows a LIMIT takes.
    let mut plan =
        break_ties(plan).and_then(|plan| change_below_limits(plan, true, break_ties)).map_err(query_error)?;
    if let Some((skip, fetch, input)) = row_by_row(&plan).map_err(query_error)?
        && let Some(execution) = in_order(context, input, skip, fetch).await.map_err(query_error)?
    {
        return Ok(execution);
    }
    let mut state = context.state();
    if let ResultOrder::Definite(determinism) = rows {
        plan = change_below_limits(plan, false, sort_all).and_then(sort_all).map_err(query_error)?;
        if determinism == Determinism::OrderDependent {
            // Several partitions would interleave their rows in any order.
            state.config_mut().options_mut().execution.target_partitions = 1;
        }
    }
    let plan = state.optimize(&plan).and_then(group_by_numbers).map_err(query_error)?;
    let plan = state.query_planner().create_physical_plan(&plan, &state).await.map_err(query_error)?;
    Ok(Execution::Merged { plan, context: state.task_ctx() })
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
    context: &SessionContext,
    plan: &LogicalPlan,
    skip: usize,
    fetch: Option<usize>,
) -> DataFusionResult<Option<Execution>> {
    let mut state = context.state();
    let config = state.config_mut();
    config.set_extension(Arc::new(PartitionPerRowGroup));
    config.options_mut().optimizer.repartition_file_scans = false;
    config.options_mut().optimizer.enable_round_robin_repartition = false;
    // Otherwise a partition of a scan without a sort order may read the files of another one.
    config.options_mut().execution.enable_file_stream_work_stealing = false;
    let plan = state.optimize(plan)?;
    let mut plan = state.query_planner().create_physical_plan(&plan, &state).await?;
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>().filter(|merge| merge.fetch().is_none()) {
        // The partitions are in order already, so the merge is not needed.
        plan = Arc::clone(merge.input());
    }
    let max_rows = kept_partitions(&plan);
    let context = state.task_ctx();
    Ok(max_rows.map(|max_rows| Execution::InOrder { plan, context, skip, fetch, max_rows }))
}

/// Returns the maximum number of rows of each partition of the scan under `plan`; `None` unless the partitions and
/// their order reach the top of the plan.
fn kept_partitions(plan: &Arc<dyn ExecutionPlan>) -> Option<Vec<usize>> {
    let num_partitions = plan.output_partitioning().partition_count();
    let mut node = plan;
    loop {
        match node.children()[..] {
            [child] if node.maintains_input_order() == [true] => node = child,
            [] => break,
            _ => return None,
        }
        if node.output_partitioning().partition_count() != num_partitions {
            return None;
        }
    }
    let scan = node.downcast_ref::<DataSourceExec>()?;
    let groups = &scan.data_source().downcast_ref::<FileScanConfig>()?.file_groups;
    groups
        .iter()
        .map(|group| match group.files() {
            [file] => file.statistics.as_ref()?.num_rows.get_value().copied(),
            _ => None,
        })
        .collect()
}

/// Adds sort keys that order the rows that the query's own ORDER BY leaves equal. The keys identify a
/// row where the sort sees them. Otherwise they are all columns, so rows that are still equal are identical.
fn break_ties(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            // DataFusion appends columns of the ORDER BY that are not selected, in any order.
            let mut columns = sort.input.schema().columns();
            columns.sort_by_cached_key(Column::flat_name);
            for key in definite_keys(&sort.input, columns) {
                if !sort.expr.contains(&key) {
                    sort.expr.push(key);
                }
            }
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Limit(_) | LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let inputs = plan.inputs().into_iter().cloned().map(break_ties).collect::<DataFusionResult<Vec<_>>>()?;
            plan.with_new_exprs(plan.expressions(), inputs)
        }
        other => Ok(other),
    }
}

/// Changes the input of each LIMIT in the plan, either only sorted inputs or only unsorted ones.
fn change_below_limits(
    plan: LogicalPlan,
    sorted: bool,
    change: fn(LogicalPlan) -> DataFusionResult<LogicalPlan>,
) -> DataFusionResult<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Limit(mut limit) if is_sorted(&limit.input) == sorted => {
            limit.input = Arc::new(change(Arc::unwrap_or_clone(limit.input))?);
            Ok(Transformed::yes(LogicalPlan::Limit(limit)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

/// Sorts a plan that has no ORDER BY by its [`definite_keys`].
fn sort_all(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    if is_sorted(&plan) {
        return Ok(plan);
    }
    let keys = definite_keys(&plan, plan.schema().columns());
    LogicalPlanBuilder::from(plan).sort(keys)?.build()
}

fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Limit(limit) => is_sorted(&limit.input),
        LogicalPlan::Projection(projection) => is_sorted(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_sorted(&alias.input),
        _ => false,
    }
}

/// Returns sort keys for the columns that identify a row of a plan, such as run and step. If there are none, returns keys
/// for all `columns`, with those named `run_id` and `step_index` first.
fn definite_keys(plan: &LogicalPlan, columns: Vec<Column>) -> Vec<SortExpr> {
    let keys: Vec<Column> = match RowOrigin::of(plan).and_then(|origin| origin.keys()) {
        Some(keys) => keys.into_iter().map(|key| plan.schema().qualified_field(key).into()).collect(),
        None => {
            let place = |column: &Column| ["run_id", "step_index"].iter().position(|name| column.name == *name);
            let (mut first, rest): (Vec<Column>, Vec<Column>) =
                columns.into_iter().partition(|column| place(column).is_some());
            first.sort_by_key(place);
            first.into_iter().chain(rest).collect()
        }
    };
    keys.into_iter().map(|column| Expr::Column(column).sort(true, false)).collect()
}
