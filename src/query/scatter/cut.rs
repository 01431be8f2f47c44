//! The parts of a physical plan that can be divided into tasks, and their slices.

use super::texts::TextKeys;
use crate::query::engine::execution::{Execution, Rows};
use crate::query::rewrites::OpaqueExec;
use crate::query::scan::parquet_scan::{self, SortedRows, scan_of};
use crate::query::step_join::StepJoinExec;
use datafusion::common::{JoinType, Result as DataFusionResult, internal_err};
use datafusion::datasource::physical_plan::parquet::ParquetAccessPlan;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfig, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::ops::Range;
use std::sync::Arc;

pub(super) type Plan = Arc<dyn ExecutionPlan>;

/// A subtree of a plan that works on the partitions of its scans one by one, and is worth tasks of its own.
pub(super) struct Cut {
    pub(super) plan: Plan,
    /// The results of the scalar subqueries that the subtree may use, and their number.
    pub(super) scalars: Vec<(ScalarSubqueryResults, usize)>,
    /// The number of rows of each partition that are enough.
    pub(super) max_rows: Option<usize>,
    pub(super) texts: TextKeys,
}

impl Cut {
    fn new(plan: &Plan, scalars: &[(ScalarSubqueryResults, usize)], max_rows: Option<usize>) -> Cut {
        Cut { plan: Arc::clone(plan), scalars: scalars.to_vec(), max_rows, texts: TextKeys::of(plan) }
    }

    pub(super) fn num_partitions(&self) -> usize {
        self.plan.output_partitioning().partition_count()
    }

    /// Returns whether the tasks read all their rows, although few rows are enough.
    pub(super) fn reduces(&self) -> bool {
        does(&self.plan, reduces)
    }

    /// Returns whether two cuts need the same scalar subqueries, so that their tasks can start together.
    pub(super) fn starts_with(&self, other: &Cut) -> bool {
        let same = |((one, _), (other, _)): (&(ScalarSubqueryResults, usize), &(ScalarSubqueryResults, usize))| {
            ScalarSubqueryResults::ptr_eq(one, other)
        };
        self.scalars.len() == other.scalars.len() && self.scalars.iter().zip(&other.scalars).all(same)
    }
}

/// Returns the cuts of a plan, from the root down and from left to right.
pub(super) fn cuts(execution: &Execution) -> Vec<Cut> {
    let max_rows = match execution.rows {
        Rows::InOrder { skip, fetch: Some(fetch), .. } => Some(skip + fetch),
        _ => None,
    };
    let mut found = Vec::new();
    find(&execution.plan, &[], max_rows, true, &mut found);
    found
}

/// Returns the whole plan as a cut, if it works on the partitions of its scans one by one.
pub(super) fn whole(execution: &Execution) -> Option<Cut> {
    let merged = execution.plan.downcast_ref::<CoalescePartitionsExec>().filter(|merge| merge.fetch().is_none());
    let plan = merged.map_or(&execution.plan, CoalescePartitionsExec::input);
    let takes_some = does(plan, |plan| reduces(plan) || plan.fetch().is_some())
        || matches!(execution.rows, Rows::InOrder { skip, fetch, .. } if skip > 0 || fetch.is_some());
    (is_divided(plan) && !takes_some).then(|| Cut::new(plan, &[], None))
}

fn find(
    plan: &Plan,
    scalars: &[(ScalarSubqueryResults, usize)],
    max_rows: Option<usize>,
    is_root: bool,
    found: &mut Vec<Cut>,
) {
    if is_cut(plan, is_root) {
        found.push(Cut::new(plan, scalars, max_rows));
        return;
    }
    let max_rows = match plan.downcast_ref::<GlobalLimitExec>() {
        Some(limit) => limit.fetch().map(|fetch| limit.skip() + fetch),
        None if plan.is::<CoalescePartitionsExec>() || plan.is::<SortPreservingMergeExec>() => plan.fetch(),
        None => None,
    };
    let scope = plan.downcast_ref::<ScalarSubqueryExec>();
    for (i, child) in plan.children().into_iter().enumerate() {
        let is_root = is_root && i == 0 && keeps_root(plan);
        match scope.filter(|_| i == 0) {
            Some(scope) => {
                let own = (scope.results().clone(), scope.subqueries().len());
                find(child, &[scalars, &[own]].concat(), None, is_root, found);
            }
            None => find(child, scalars, max_rows, is_root, found),
        }
    }
}

/// Returns whether a subtree gets tasks of its own. Below other nodes, it must return far fewer rows than it reads.
fn is_cut(plan: &Plan, is_root: bool) -> bool {
    let is_worth = does(plan, reduces) || is_root && does(plan, chooses);
    is_worth && is_divided(plan)
}

/// Returns whether a node between the root and its first input only passes rows on, or computes on them.
fn keeps_root(plan: &Plan) -> bool {
    plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<ScalarSubqueryExec>()
        || plan.is::<CooperativeExec>()
}

/// Returns the inputs of a node that are divided like its output; `None` if the node needs all partitions together.
/// Each task reads the other inputs whole.
fn divided_inputs(plan: &Plan) -> Option<&'static [usize]> {
    let keeps_right = |kind: JoinType| {
        matches!(
            kind,
            JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
        )
    };
    let is_row_by_row = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<UnnestExec>()
        || plan.is::<CooperativeExec>()
        || plan.is::<OpaqueExec>();
    let sort = plan.downcast_ref::<SortExec>().is_some_and(SortExec::preserve_partitioning);
    let aggregate = plan.downcast_ref::<AggregateExec>().is_some_and(|node| *node.mode() == AggregateMode::Partial);
    if is_row_by_row || sort || aggregate {
        return Some(&[0]);
    }
    if plan.is::<StepJoinExec>() {
        return Some(&[0, 1]);
    }
    let collected: Option<&Plan> = if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let fits = *join.partition_mode() == PartitionMode::CollectLeft && !join.null_aware;
        (fits && keeps_right(*join.join_type())).then(|| join.left())
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        keeps_right(*join.join_type()).then(|| join.left())
    } else {
        plan.downcast_ref::<CrossJoinExec>().map(CrossJoinExec::left)
    };
    collected.filter(|left| is_small(left)).map(|_| &[1][..])
}

/// Returns whether a subtree works on the partitions of its scans one by one.
fn is_divided(plan: &Plan) -> bool {
    if let Some(config) = scan_of(plan) {
        return reads_sorted_rows(config);
    }
    if let Some(join) = plan.downcast_ref::<StepJoinExec>() {
        // The build side, which may be `runs`, is divided like the probe side.
        return is_divided(&join.probe);
    }
    let Some(inputs) = divided_inputs(plan) else { return false };
    let children = plan.children();
    let count = |plan: &Plan| plan.output_partitioning().partition_count();
    inputs.iter().all(|&i| count(children[i]) == count(plan) && is_divided(children[i]))
}

/// Returns whether a subtree reads no steps and no annotations, and returns the same rows in each process. The rows of a
/// LIMIT, a window or an aggregate that depends on the order of its input may differ.
fn is_small(plan: &Plan) -> bool {
    const ALIKE: [&str; 7] = ["avg", "bool_and", "bool_or", "count", "max", "min", "sum"];
    let is_alike = plan.fetch().is_none()
        && if let Some(config) = scan_of(plan) {
            !reads_sorted_rows(config) && config.limit.is_none()
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            aggregate.aggr_expr().iter().all(|expr| ALIKE.contains(&expr.fun().name()))
        } else {
            plan.is::<DataSourceExec>()
                || plan.is::<FilterExec>()
                || plan.is::<ProjectionExec>()
                || plan.is::<CoalescePartitionsExec>()
                || plan.is::<CooperativeExec>()
                || plan.is::<RepartitionExec>()
                || plan.is::<HashJoinExec>()
                || plan.is::<CrossJoinExec>()
                || plan.is::<OpaqueExec>()
                || plan.is::<EmptyExec>()
        };
    is_alike && plan.children().into_iter().all(is_small)
}

/// Returns whether a scan reads steps or annotations.
fn reads_sorted_rows(config: &FileScanConfig) -> bool {
    let mut files = config.file_groups.iter().flat_map(FileGroup::files);
    files.any(|file| file.extension::<SortedRows>().is_some_and(|rows| !rows.are_runs()))
}

/// Returns whether a divided node of a subtree is of a kind.
pub(super) fn does(plan: &Plan, is_kind: impl Fn(&Plan) -> bool + Copy) -> bool {
    let children = plan.children();
    is_kind(plan) || divided_inputs(plan).unwrap_or_default().iter().any(|&i| does(children[i], is_kind))
}

/// Returns whether a node returns few of many rows: an aggregate, or a sort with a LIMIT.
fn reduces(plan: &Plan) -> bool {
    plan.is::<AggregateExec>() || plan.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_some())
}

/// Returns whether a node is a join, a filter, or a scan that reads only some rows.
fn chooses(plan: &Plan) -> bool {
    let of_scan = |config: &FileScanConfig| {
        let source = config.file_source().downcast_ref::<ParquetSource>();
        let mut files = config.file_groups.iter().flat_map(FileGroup::files);
        source.is_some_and(|source| source.filter().is_some())
            || files.any(|file| file.extension::<ParquetAccessPlan>().is_some())
    };
    let is_join = plan.is::<StepJoinExec>() || plan.is::<HashJoinExec>();
    is_join || plan.is::<FilterExec>() || scan_of(plan).is_some_and(of_scan)
}

/// Returns the number of rows of the scans' row groups.
pub(super) fn num_rows(plan: &Plan) -> usize {
    let groups = scan_of(plan).into_iter().flat_map(|config| &config.file_groups);
    let own: usize = groups.flat_map(FileGroup::files).filter_map(parquet_scan::num_rows).sum();
    let children = plan.children();
    own + divided_inputs(plan).unwrap_or_default().iter().map(|&i| num_rows(children[i])).sum::<usize>()
}

/// Returns a divided subtree for some of its partitions.
pub(super) fn slice(plan: &Plan, partitions: &Range<usize>) -> DataFusionResult<Plan> {
    if let Some(config) = scan_of(plan) {
        let Some(groups) = config.file_groups.get(partitions.clone()) else {
            return internal_err!("partitions {partitions:?} of {}", config.file_groups.len());
        };
        let config = FileScanConfigBuilder::from(config.clone()).with_file_groups(groups.to_vec());
        return Ok(DataSourceExec::from_data_source(config.build()));
    }
    let Some(inputs) = divided_inputs(plan) else { return internal_err!("{} is not divided", plan.name()) };
    let mut children: Vec<Plan> = plan.children().into_iter().cloned().collect();
    for &i in inputs {
        children[i] = slice(&children[i], partitions)?;
    }
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    Arc::clone(plan).replace_children(children, options)
}
