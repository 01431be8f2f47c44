//! Which plans keep the natural order of the rows, and how the others get a definite one.
//!
//! A scan asked for one partition per row group has its partitions in the order of `(run_id, step_index)`. While every
//! node above it keeps the order within partitions and their number, reading the partitions one after the other gives
//! the natural order, and several can be read at once. DataFusion itself removes a sort that this order already
//! satisfies, so `ORDER BY run_id, step_index` costs nothing either.

use super::catalog::PartitionPerRowGroup;
use super::query_error;
use crate::error::Result;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, FetchType, LogicalPlan, LogicalPlanBuilder, SkipType, SortExpr};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// A physical plan and how to read it.
pub(crate) enum Execution {
    /// Partitions follow each other; of all their rows, `skip` are left out and then at most `fetch` taken.
    InOrder {
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
        skip: usize,
        fetch: Option<usize>,
        /// The most rows that each partition can give.
        max_rows: Vec<usize>,
    },
    /// One stream, in whatever order it comes: that of the query's ORDER BY, if it has one.
    Merged { plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext> },
}

impl Execution {
    pub(crate) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        match self {
            Execution::InOrder { plan, .. } | Execution::Merged { plan, .. } => plan,
        }
    }
}

/// Plans a query; with `definite`, the order of its rows depends on nothing but the rows.
pub(super) async fn plan(context: &SessionContext, plan: LogicalPlan, definite: bool) -> Result<Execution> {
    let plan = break_ties(plan).map_err(query_error)?;
    if let Some((skip, fetch, input)) = row_by_row(&plan).map_err(query_error)?
        && let Some(execution) = in_order(context, input, skip, fetch).await.map_err(query_error)?
    {
        return Ok(execution);
    }
    let plan = if definite { sort_all(plan).map_err(query_error)? } else { plan };
    let plan = context.state().create_physical_plan(&plan).await.map_err(query_error)?;
    Ok(Execution::Merged { plan, context: context.task_ctx() })
}

/// The plan under a top-level LIMIT, if it is made of scans, filters, expressions and sorts alone.
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

/// A plan of one partition per row group, if it keeps their order.
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
    let mut plan = state.create_physical_plan(plan).await?;
    if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>().filter(|merge| merge.fetch().is_none()) {
        // What is merged is already in order from one partition to the next.
        plan = Arc::clone(merge.input());
    }
    let max_rows = kept_partitions(&plan);
    let context = context.task_ctx();
    Ok(max_rows.map(|max_rows| Execution::InOrder { plan, context, skip, fetch, max_rows }))
}

/// The most rows of each partition of the scan under `plan`, if the partitions and their order reach its top.
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

/// Orders rows that the query's own ORDER BY leaves equal, by run and step where the sort can see them.
fn break_ties(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    match plan {
        LogicalPlan::Sort(mut sort) => {
            let keys = natural_keys(&sort.input);
            let new: Vec<SortExpr> = keys.into_iter().filter(|key| !sort.expr.contains(key)).collect();
            sort.expr.extend(new);
            Ok(LogicalPlan::Sort(sort))
        }
        LogicalPlan::Limit(_) | LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) => {
            let inputs = plan.inputs().into_iter().cloned().map(break_ties).collect::<DataFusionResult<Vec<_>>>()?;
            plan.with_new_exprs(plan.expressions(), inputs)
        }
        other => Ok(other),
    }
}

/// Sorts a plan without an ORDER BY of its own by run and step, where it has them, and then by all it has.
fn sort_all(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    if is_sorted(&plan) {
        return Ok(plan);
    }
    let mut keys = natural_keys(&plan);
    for column in plan.schema().columns() {
        let key = Expr::Column(column).sort(true, false);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
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

/// `run_id, step_index`, as far as a plan's result has them.
fn natural_keys(plan: &LogicalPlan) -> Vec<SortExpr> {
    let column = |name: &str| plan.schema().columns().into_iter().find(|column: &Column| column.name == name);
    ["run_id", "step_index"].into_iter().filter_map(column).map(|c| Expr::Column(c).sort(true, false)).collect()
}
