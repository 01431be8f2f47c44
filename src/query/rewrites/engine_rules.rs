//! DataFusion's optimizer rules that give wrong answers, restricted to correct rewrites.
//!
//! | rule | wrong rewrite | statement | apache/datafusion |
//! | --- | --- | --- | --- |
//! | `push_down_filter` | pushes a condition without columns below an aggregate without groups, which then returns a count of 0 instead of no row | `SELECT n FROM (SELECT count(*) AS n FROM steps) WHERE (SELECT max(run_id) FROM runs) < 0` | none found |
//! | `push_down_filter` | takes two comparisons of a column, of which only one has its literal on the left, for different conditions | `SELECT … FROM steps WHERE phase = 'late' AND 'late' = phase` | #24763 |
//! | `FilterPushdown` | matches the columns of a filter by name, although both sides of a join may have a column of that name | `SELECT … FROM steps s RIGHT JOIN runs r ON s.run_id = r.run_id WHERE s.run_id IS NULL` | #25244, #25296 |
//! | all that use sort orders | keep the numbers of unique columns when a projection moves the columns, and drop the rest of an ORDER BY that begins with one | `SELECT m AS k, k AS m FROM (SELECT move AS k, max(board) AS m FROM steps GROUP BY move) AS d ORDER BY k, m` | none found |
//! | all that use sort orders | take a column for constant although GROUPING SETS, CUBE, ROLLUP or an outer join fill it with nulls, and drop an ORDER BY of it | `SELECT … FROM runs r LEFT JOIN (SELECT * FROM runs WHERE engine = 'a') AS d ON … ORDER BY d.engine` | none found |
//! | all that use sort orders | drop a constant column of each input of a UNION ALL from an ORDER BY with a LIMIT, although the inputs share the limit of the other columns | `SELECT … FROM (SELECT 2 AS k, run_id AS n FROM runs UNION ALL SELECT 1, run_id + 9 FROM runs) AS d ORDER BY k, n LIMIT 2` | #23528 |

use super::opaque::{Hides, OpaqueExec};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as DataFusionResult};
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;
type PhysicalPlan = Arc<dyn ExecutionPlan>;

/// Returns DataFusion's logical rules, restricted.
pub(in crate::query) fn logical_rules(rules: Vec<LogicalRule>) -> Vec<LogicalRule> {
    let restricted = |rule: LogicalRule| match rule.name() {
        "push_down_filter" => Arc::new(PushDownFilter(rule)) as LogicalRule,
        _ => rule,
    };
    rules.into_iter().map(restricted).collect()
}

/// Returns DataFusion's physical rules, restricted, and two rules that insert nodes: [`hiding`] and [`yielding`].
pub(in crate::query) fn physical_rules(rules: Vec<PhysicalRule>) -> Vec<PhysicalRule> {
    let restricted = |rule: PhysicalRule| match rule.name() {
        name if name.starts_with("FilterPushdown") => Arc::new(FilterPushdown(rule)) as PhysicalRule,
        _ => rule,
    };
    let mut rules: Vec<PhysicalRule> = rules.into_iter().map(restricted).collect();
    // This rule runs before every rule that uses sort orders, but after the rule that expects a GROUP BY directly
    // under a limit.
    let at = rules.iter().position(|rule| rule.name() == "LimitedDistinctAggregation").map_or(0, |at| at + 1);
    rules.insert(at, Arc::new(NodeRule { name: "hide_false_properties", change: |plan, _| Ok(hiding(plan)) }));
    rules.push(Arc::new(NodeRule { name: "yield_above_joins", change: |plan, _| Ok(yielding(plan)) }));
    rules
}

/// The rule `push_down_filter`, without its wrong rewrites.
#[derive(Debug)]
struct PushDownFilter(LogicalRule);

impl OptimizerRule for PushDownFilter {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DataFusionResult<Transformed<LogicalPlan>> {
        let plan = with_literals_right(plan)?;
        let mut input = &plan.data;
        while let LogicalPlan::Filter(filter) = input {
            input = &filter.input;
        }
        if has_row_of_nothing(input) {
            return Ok(plan);
        }
        plan.transform_data(|plan| self.0.rewrite(plan, config))
    }
}

/// Moves literals to the right side of comparisons, in a filter and in the filters directly below it.
fn with_literals_right(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let LogicalPlan::Filter(filter) = plan else { return Ok(Transformed::no(plan)) };
    let input = with_literals_right(Arc::unwrap_or_clone(filter.input))?;
    let predicate = filter.predicate.transform_up(|expr| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expr else { return Ok(Transformed::no(expr)) };
        Ok(match op.swap() {
            Some(op) if left.as_literal().is_some() && right.as_literal().is_none() => {
                Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: right, op, right: left }))
            }
            _ => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
        })
    })?;
    let changed = input.transformed || predicate.transformed;
    let filter = Filter::try_new(predicate.data, Arc::new(input.data))?;
    Ok(Transformed::new_transformed(LogicalPlan::Filter(filter), changed))
}

/// Returns whether a plan is an aggregate that returns a row even for empty input.
fn has_row_of_nothing(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty()
        || aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_))))
}

/// The rule `FilterPushdown`, which does not see the inputs of joins.
#[derive(Debug)]
struct FilterPushdown(PhysicalRule);

impl PhysicalOptimizerRule for FilterPushdown {
    fn optimize(&self, plan: PhysicalPlan, config: &ConfigOptions) -> DataFusionResult<PhysicalPlan> {
        let marked = plan.transform_up(|plan| match is_join(&plan) {
            true => Ok(Transformed::yes(OpaqueExec::over(plan, Hides::Input))),
            false => Ok(Transformed::no(plan)),
        })?;
        let optimized = self.0.optimize(marked.data, config)?;
        let without_marks = |plan: PhysicalPlan| {
            let node =
                plan.downcast_ref::<OpaqueExec>().filter(|node| node.hides == Hides::Input && is_join(&node.input));
            Ok(match node {
                Some(node) => Transformed::yes(Arc::clone(&node.input)),
                None => Transformed::no(plan),
            })
        };
        Ok(if marked.transformed { optimized.transform_up(without_marks)?.data } else { optimized })
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn is_join(plan: &PhysicalPlan) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
}

/// A rule that replaces each node for which `change` returns another node. It changes a node's inputs first.
#[derive(Debug)]
pub(in crate::query) struct NodeRule {
    pub(in crate::query) name: &'static str,
    pub(in crate::query) change: fn(&PhysicalPlan, &ConfigOptions) -> DataFusionResult<Option<PhysicalPlan>>,
}

impl PhysicalOptimizerRule for NodeRule {
    fn optimize(&self, plan: PhysicalPlan, config: &ConfigOptions) -> DataFusionResult<PhysicalPlan> {
        let changed = plan.transform_up(|plan| {
            Ok(match (self.change)(&plan, config)? {
                Some(changed) => Transformed::yes(changed),
                None => Transformed::no(plan),
            })
        })?;
        Ok(changed.data)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns a node that hides properties of a plan which DataFusion claims wrongly.
fn hiding(plan: &PhysicalPlan) -> Option<PhysicalPlan> {
    let hides = match plan.downcast_ref::<AggregateExec>() {
        Some(aggregate) => match aggregate.group_expr() {
            keys if keys.is_empty() => None,
            keys if keys.has_grouping_set() => Some(Hides::Order),
            _ => (*aggregate.mode() != AggregateMode::Partial).then_some(Hides::Uniqueness),
        },
        None => (fills_equal_columns(plan) || unites_constants(plan)).then_some(Hides::Order),
    };
    hides.map(|hides| OpaqueExec::over(Arc::clone(plan), hides))
}

/// Returns whether a plan is an outer join that fills a side with nulls in which a column equals a constant or another
/// column.
fn fills_equal_columns(plan: &PhysicalPlan) -> bool {
    let hash = || plan.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let nested = || plan.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let merge = || plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type());
    let filled: &[usize] = match hash().or_else(nested).or_else(merge) {
        Some(JoinType::Left) => &[1],
        Some(JoinType::Right) => &[0],
        Some(JoinType::Full) => &[0, 1],
        _ => &[],
    };
    let inputs = plan.children();
    filled.iter().any(|&side| !inputs[side].equivalence_properties().eq_group().is_empty())
}

/// Returns whether a plan is a UNION ALL of inputs with constant columns.
fn unites_constants(plan: &PhysicalPlan) -> bool {
    let has_constants = |input: &&PhysicalPlan| !input.equivalence_properties().constants().is_empty();
    plan.is::<UnionExec>() && plan.children().iter().any(has_constants)
}

/// Returns a yielding node above a join or an UNNEST, so that a stopped query ends.
///
/// A cancelled task ends only when it yields. A join without keys makes many batches from rows in memory, and the nodes
/// above it may consume them without ever waiting.
fn yielding(plan: &PhysicalPlan) -> Option<PhysicalPlan> {
    (is_join(plan) || plan.is::<UnnestExec>()).then(|| Arc::new(CooperativeExec::new(Arc::clone(plan))) as PhysicalPlan)
}
