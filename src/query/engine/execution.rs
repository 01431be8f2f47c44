//! The physical plan of a query, and the order in which its rows are read. A filtered scan needs no sort.
//!
//! In-order plans ask each scan for one partition per row group. The partitions are then in the order of
//! `(run_id, step_index)`. If every node above the scan keeps the number of partitions and the order within
//! them, concatenating the partitions gives the natural order. Several partitions can still run at once.
//! DataFusion removes a sort that this order already satisfies, so `ORDER BY run_id, step_index` costs nothing.

use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::rewrites::{group_by_numbers, sort_lists};
use crate::query::scan::parquet_scan::{PartitionPerRowGroup, num_rows, scan_of};
use crate::query::tasks::Division;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::datasource::physical_plan::FileGroup;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::expr::Sort as SortExpr;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, FetchType, LogicalPlan, Operator, SkipType, Sort};
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
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

/// Returns a session for one execution, whose time begins now.
pub(in crate::query) fn begun(session: &SessionState) -> SessionState {
    let mut state = session.clone();
    state.mark_start_execution();
    state
}

/// Optimizes an analyzed plan. [`SessionState::optimize`] would analyze it again.
pub(in crate::query) fn optimized(state: &SessionState, plan: &LogicalPlan) -> DataFusionResult<LogicalPlan> {
    state.optimizer().optimize(plan.clone(), state, |_, _| {})
}

/// Makes the physical plan of a query, for tasks if there is a division.
pub(in crate::query) async fn plan(
    session: &SessionState,
    plan: &LogicalPlan,
    division: Option<Division>,
) -> Result<Execution> {
    let mut state = begun(session);
    if let Some(division) = division {
        let config = state.config_mut();
        config.set_extension(Arc::new(division));
        config.options_mut().execution.target_partitions = division.others;
        config.options_mut().optimizer.enable_round_robin_repartition = false;
    }
    let mut whole = None;
    if let Some((skip, fetch, input)) = row_by_row(plan).map_err(query_error)? {
        let input = optimized(&state, input).map_err(query_error)?;
        if may_be_in_order(&input).map_err(query_error)? {
            let config = state.config().clone();
            if let Some(execution) = in_order(&mut state, &input, skip, fetch).await.map_err(query_error)? {
                return Ok(execution);
            }
            *state.config_mut() = config;
        }
        whole = (skip == 0 && fetch.is_none()).then_some(input);
    }
    let rows = Rows::Merged { is_sorted: is_sorted(plan) };
    let plan = whole.map_or_else(|| optimized(&state, plan), Ok);
    let plan = plan.and_then(sort_lists).and_then(group_by_numbers).map_err(query_error)?;
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

/// Returns whether an optimized plan may keep the order of its scan. A join, as of a subquery, does not.
fn may_be_in_order(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut node = plan;
    loop {
        let mut has_subquery = false;
        node.apply_subqueries(|_| {
            has_subquery = true;
            Ok(TreeNodeRecursion::Stop)
        })?;
        node = match node {
            _ if has_subquery => return Ok(false),
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Sort(sort) if !may_be_satisfied(sort) => return Ok(false),
            LogicalPlan::Sort(sort) => &sort.input,
            LogicalPlan::EmptyRelation(empty) => return Ok(!empty.produce_one_row),
            node => return Ok(matches!(node, LogicalPlan::TableScan(_))),
        }
    }
}

/// Returns whether the order of a scan may satisfy a sort. It does not if the first key needs other columns than the first
/// of that order, and no condition makes one of them constant.
fn may_be_satisfied(sort: &Sort) -> bool {
    let Some(SortExpr { expr: key, asc, .. }) = sort.expr.first() else { return true };
    let (mut node, mut columns) = (&sort.input, key.column_refs());
    let mut may_be_constant = false;
    while !columns.is_empty() {
        let check = |condition: &Expr| {
            may_be_constant |= !is_inequality(condition) && !condition.column_refs().is_disjoint(&columns);
        };
        node = match node.as_ref() {
            LogicalPlan::Filter(filter) => {
                split_conjunction(&filter.predicate).into_iter().for_each(check);
                &filter.input
            }
            LogicalPlan::Projection(projection) => {
                let expr_of = |column| projection.expr.get(projection.schema.maybe_index_of_column(column)?);
                columns = columns.into_iter().filter_map(expr_of).flat_map(Expr::column_refs).collect();
                &projection.input
            }
            LogicalPlan::TableScan(scan) => {
                scan.filters.iter().for_each(check);
                let is_first = |column: &&Column| match scan.table_name.table() {
                    "annotations" => ["model", "run_id", "step_index"].contains(&column.name()),
                    _ => column.name() == "run_id",
                };
                return may_be_constant || columns.iter().any(is_first) && (*asc || !matches!(key, Expr::Column(_)));
            }
            _ => return true,
        }
    }
    !key.is_volatile()
}

fn is_inequality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { op, .. }) = condition else { return false };
    matches!(op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq | Operator::NotEq)
}

/// Makes a plan of an optimized one, with one partition per row group; `None` if a node does not keep their order.
async fn in_order(
    state: &mut SessionState,
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
    let mut plan = state.query_planner().create_physical_plan(plan, state).await?;
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
    if node.is::<EmptyExec>() {
        return Some((vec![0; num_partitions], true));
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::QueryOptions;
    use crate::query::engine::session;
    use crate::system::runtime::block_on;
    use crate::{Archive, CancellationToken, Phases, SimulateOptions};

    #[test]
    fn most_plans_without_the_order_of_a_scan_are_recognized_before_they_are_made() {
        let (folder, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::never());
        let runs = folder.path().join("runs");
        crate::simulate(&runs, &SimulateOptions::default().with_runs(3), &(), cancel).unwrap();
        let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
        archive.ingest([&runs], &Default::default(), &(), cancel).unwrap();
        for (text, expected) in [
            ("SELECT board FROM steps WHERE move = 1", (true, true)),
            ("SELECT board FROM steps WHERE run_id = 9", (true, true)),
            ("SELECT board FROM steps WHERE 1 = 2", (true, true)),
            ("SELECT run_id AS r, step_index AS s FROM steps ORDER BY r, s", (true, true)),
            ("SELECT * FROM steps WHERE run_id = 1 ORDER BY step_index", (false, false)),
            ("SELECT * FROM steps ORDER BY run_id DESC", (false, false)),
            ("SELECT * FROM steps ORDER BY run_id, move", (true, false)),
            ("SELECT * FROM runs WHERE max_score > 5 ORDER BY max_score DESC", (false, false)),
            ("SELECT * FROM steps WHERE 1 = 1 OR run_id IN (SELECT run_id FROM runs)", (true, true)),
            ("SELECT *, (SELECT 1) AS one FROM steps", (false, false)),
            ("SELECT * FROM steps ORDER BY CASE WHEN 1 = 2 THEN max_score END, run_id, step_index", (true, true)),
            ("SELECT * FROM steps ORDER BY max_score IS NULL, run_id, step_index", (true, true)),
            ("SELECT * FROM steps WHERE move = 1 ORDER BY move, run_id, step_index", (true, true)),
            ("SELECT * FROM steps ORDER BY move", (false, false)),
            ("SELECT move + 1 AS run_id FROM steps WHERE run_id = 1 ORDER BY run_id", (false, false)),
            ("SELECT * FROM runs WHERE num_steps > 5 ORDER BY random()", (false, false)),
            ("SELECT * FROM steps WHERE run_id IN (SELECT run_id FROM runs)", (false, false)),
            ("SELECT * FROM steps WHERE run_id = (SELECT max(run_id) FROM runs)", (false, false)),
        ] {
            let session = session::state(&archive, &QueryOptions::default()).unwrap();
            let planned = async move {
                let mut state = begun(&session);
                let plan = state.create_logical_plan(text).await.map_err(query_error)?;
                assert!(row_by_row(&plan).map_err(query_error)?.is_some());
                let plan = state.optimize(&plan).map_err(query_error)?;
                let may_be = may_be_in_order(&plan).map_err(query_error)?;
                let is = in_order(&mut state, &plan, 0, None).await.map_err(query_error)?.is_some();
                Ok((may_be, is))
            };
            assert_eq!(block_on(planned).unwrap(), expected, "{text}");
        }
    }
}
