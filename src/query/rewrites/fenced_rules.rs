//! DataFusion's optimizer rules that give wrong answers, restricted to correct rewrites.
//!
//! A fence keeps a rule from one wrong rewrite. It is a [`BarrierExec`] that is removed after the rule, or a filter that
//! the rule does not see. This list has an example statement for each wrong rewrite, and the upstream issue if one
//! was found:
//!
//! | rule | wrong rewrite | statement | apache/datafusion |
//! | --- | --- | --- | --- |
//! | `push_down_filter` | pushes a condition without columns below an aggregate without groups, which then returns a count of 0 instead of no row | `SELECT n FROM (SELECT count(*) AS n FROM steps) WHERE (SELECT max(run_id) FROM runs) < 0` | none found |
//! | `push_down_filter` | takes two comparisons of a column, of which only one has its literal on the left, for different conditions | `SELECT … FROM steps WHERE phase = 'late' AND 'late' = phase` | #24763 |
//! | `aggregate_statistics` | mistakes an inner aggregate without FILTER for the first stage of an outer aggregate with FILTER, and returns the inner result | `SELECT count(n) FILTER (WHERE n <> 1) FROM (SELECT count(*) AS n FROM runs)` | none found |
//! | `LimitAggregation` | mistakes a computed column for a GROUP BY key of the same name, and keeps only the first groups | `SELECT -n AS n FROM (SELECT DISTINCT move AS n FROM steps) ORDER BY n LIMIT 2` | none found |
//! | `FilterPushdown` | matches the columns of a filter by name, although both sides of a join may have a column of that name | `SELECT … FROM steps s RIGHT JOIN runs r ON s.run_id = r.run_id WHERE s.run_id IS NULL` | #25244, #25296 |
//! | `FilterPushdown` | copies a filter on the keys of a semi join to the other side by name, although the other key may be another column | `SELECT … WHERE run_id IN (SELECT CAST(seed AS INT) AS run_id FROM …)` below a join | #25244 |
//! | `EnsureRequirements` | moves a sort below a LIMIT with OFFSET, and then returns too few rows, by the OFFSET | `SELECT … FROM (SELECT … ORDER BY board LIMIT 50 OFFSET 3) ORDER BY board` | #24958 |
//! | `EnsureRequirements` | drops a sort below an OFFSET without LIMIT | `SELECT sum(a) FROM (SELECT a FROM … ORDER BY b OFFSET 2)` | #23534 |
//! | `EnsureRequirements` | moves a sort into a UNION, where a column equals another one or a constant, and then does not find the order again, which is an error | `SELECT move AS a, move AS b FROM … UNION ALL SELECT step_index, 1 FROM … ORDER BY b` | like #17372 |

use super::barrier::{BarrierExec, Purpose, below};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result as DataFusionResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Aggregate, BinaryExpr, Expr, Filter, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary};
use std::collections::HashSet;
use std::sync::Arc;

type LogicalRule = Arc<dyn OptimizerRule + Send + Sync>;
type PhysicalRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;
type PhysicalPlan = Arc<dyn ExecutionPlan>;

/// Returns DataFusion's logical rules, with fences.
pub(in crate::query) fn fenced_logical(rules: Vec<LogicalRule>) -> Vec<LogicalRule> {
    let fenced = |rule: LogicalRule| match rule.name() {
        "push_down_filter" => Arc::new(AboveAggregates(rule)) as LogicalRule,
        _ => rule,
    };
    rules.into_iter().map(fenced).collect()
}

/// Returns DataFusion's physical rules, with fences.
pub(in crate::query) fn fenced_physical(rules: Vec<PhysicalRule>) -> Vec<PhysicalRule> {
    let fenced = |rule: PhysicalRule| match rule.name() {
        name if name.starts_with("FilterPushdown") => {
            Arc::new(Fenced { rule, purpose: Purpose::BlockNamedFilters, fence: fence_names }) as PhysicalRule
        }
        "aggregate_statistics" => Arc::new(Cut { rule, hides_inputs: is_filtered_stage }),
        "LimitAggregation" => Arc::new(Cut { rule, hides_inputs: needs_all_rows }),
        "EnsureRequirements" => {
            let rule = Arc::new(Fenced { rule, purpose: Purpose::BlockSorts, fence: fence_offset_and_union });
            Arc::new(Fenced { rule, purpose: Purpose::RequireOrder, fence: fence_below_offset })
        }
        _ => rule,
    };
    rules.into_iter().map(fenced).collect()
}

/// The rule `push_down_filter`, which does not see the conditions that must stay above an aggregate. Comparisons have their
/// literal on the right.
#[derive(Debug)]
struct AboveAggregates(LogicalRule);

impl OptimizerRule for AboveAggregates {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DataFusionResult<Transformed<LogicalPlan>> {
        let plan = with_literals_right(plan)?;
        let swapped = plan.transformed;
        let plan = plan.data;
        let mut input = &plan;
        while let LogicalPlan::Filter(filter) = input {
            input = &filter.input;
        }
        match (&plan, input) {
            (LogicalPlan::Filter(_), LogicalPlan::Aggregate(aggregate)) if has_row_of_nothing(aggregate) => {}
            _ => {
                let mut moved = self.0.rewrite(plan, config)?;
                moved.transformed |= swapped;
                return Ok(moved);
            }
        }
        let (mut plan, mut constant, mut others) = (plan, Vec::new(), Vec::new());
        let mut num_filters = 0;
        while let LogicalPlan::Filter(filter) = plan {
            num_filters += 1;
            for condition in split_conjunction_owned(filter.predicate) {
                let side = if condition.column_refs().is_empty() { &mut constant } else { &mut others };
                side.push(condition);
            }
            plan = Arc::unwrap_or_clone(filter.input);
        }
        let mut changed = swapped || num_filters > 1;
        if let Some(movable) = conjunction(others) {
            let moved = self.0.rewrite(LogicalPlan::Filter(Filter::try_new(movable, Arc::new(plan))?), config)?;
            changed |= moved.transformed;
            plan = moved.data;
        }
        if let Some(constant) = conjunction(constant) {
            plan = LogicalPlan::Filter(Filter::try_new(constant, Arc::new(plan))?);
        }
        Ok(Transformed::new_transformed(plan, changed))
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

/// Returns whether an aggregate returns a row even for empty input.
fn has_row_of_nothing(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(|key| matches!(key, Expr::GroupingSet(_)))
}

/// A rule that does not see the inputs of some nodes. It runs on each of these inputs by itself.
#[derive(Debug)]
struct Cut {
    rule: PhysicalRule,
    /// Whether the inputs of a node are hidden.
    hides_inputs: fn(&PhysicalPlan) -> bool,
}

impl PhysicalOptimizerRule for Cut {
    fn optimize(&self, plan: PhysicalPlan, config: &ConfigOptions) -> DataFusionResult<PhysicalPlan> {
        let hidden = plan.transform_down(|plan| {
            if !(self.hides_inputs)(&plan) {
                return Ok(Transformed::no(plan));
            }
            let hide = |input: &PhysicalPlan| {
                let input = self.optimize(Arc::clone(input), config)?;
                Ok(BarrierExec::over(input, Purpose::HideInput))
            };
            let inputs = plan.children().into_iter().map(hide).collect::<DataFusionResult<Vec<_>>>()?;
            let plan = replace_children_if_necessary(plan, inputs)?;
            Ok(Transformed::new(plan, true, TreeNodeRecursion::Jump))
        })?;
        let optimized = self.rule.optimize(hidden.data, config)?;
        let open = optimized.transform_down(|plan| {
            Ok(match below(&plan, Purpose::HideInput) {
                Some(input) => Transformed::new(Arc::clone(input), true, TreeNodeRecursion::Jump),
                None => Transformed::no(plan),
            })
        })?;
        Ok(open.data)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

/// Returns whether a plan is the first stage of an aggregate with FILTER and without groups.
fn is_filtered_stage(plan: &PhysicalPlan) -> bool {
    plan.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        aggregate.mode().input_mode() == AggregateInputMode::Raw
            && aggregate.group_expr().is_empty()
            && aggregate.filter_expr().iter().any(Option::is_some)
    })
}

/// Returns whether the limit of a sort must not move below a node. The rule follows the sort key by its name alone, and
/// does not know which nodes need all rows of their input.
fn needs_all_rows(plan: &PhysicalPlan) -> bool {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let input = projection.input().schema();
        let is_other = |expr: &ProjectionExpr| {
            let own = expr.expr.downcast_ref::<Column>().is_some_and(|column| column.name() == expr.alias);
            !own && input.column_with_name(&expr.alias).is_some()
        };
        return projection.expr().iter().any(is_other);
    }
    let keeps_rows = plan.is::<AggregateExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<BarrierExec>();
    !keeps_rows && !plan.children().is_empty()
}

/// Inserts fences into a plan.
type Fence = fn(PhysicalPlan, Purpose) -> DataFusionResult<Transformed<PhysicalPlan>>;

/// A rule that runs on a plan with fences. The fences are removed afterwards.
#[derive(Debug)]
struct Fenced {
    rule: PhysicalRule,
    purpose: Purpose,
    fence: Fence,
}

impl PhysicalOptimizerRule for Fenced {
    fn optimize(&self, plan: PhysicalPlan, config: &ConfigOptions) -> DataFusionResult<PhysicalPlan> {
        let fenced = plan.transform_up(|plan| (self.fence)(plan, self.purpose))?;
        let optimized = self.rule.optimize(fenced.data, config)?;
        if !fenced.transformed {
            return Ok(optimized);
        }
        let open = optimized.transform_up(|plan| {
            Ok(match below(&plan, self.purpose) {
                Some(input) => Transformed::yes(Arc::clone(input)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(open.data)
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}

fn fence_offset_and_union(plan: PhysicalPlan, purpose: Purpose) -> DataFusionResult<Transformed<PhysicalPlan>> {
    let has_offset = plan.downcast_ref::<GlobalLimitExec>().is_some_and(|limit| limit.skip() > 0);
    Ok(match has_offset || is_union_of_equal_columns(&plan) {
        true => Transformed::yes(BarrierExec::over(plan, purpose)),
        false => Transformed::no(plan),
    })
}

/// Returns whether a plan is a union with an input in which a column equals a constant or another column. DataFusion then
/// sorts that input by fewer keys and does not recognize the order of the union.
fn is_union_of_equal_columns(plan: &PhysicalPlan) -> bool {
    let has_equal = |input: &PhysicalPlan| !input.equivalence_properties().eq_group().is_empty();
    plan.is::<UnionExec>() && plan.children().into_iter().any(has_equal)
}

fn fence_below_offset(plan: PhysicalPlan, purpose: Purpose) -> DataFusionResult<Transformed<PhysicalPlan>> {
    let is_endless = |limit: &GlobalLimitExec| limit.skip() > 0 && limit.fetch().is_none();
    let Some(limit) = plan.downcast_ref::<GlobalLimitExec>().filter(|limit| is_endless(limit)) else {
        return Ok(Transformed::no(plan));
    };
    let input = fence_sort(Arc::clone(limit.input()), purpose)?;
    Ok(Transformed::yes(replace_children_if_necessary(plan, vec![input])?))
}

/// Inserts a fence above the sort that determines the order of a plan's output.
fn fence_sort(plan: PhysicalPlan, purpose: Purpose) -> DataFusionResult<PhysicalPlan> {
    if plan.is::<SortExec>() {
        return Ok(BarrierExec::over(plan, purpose));
    }
    match plan.children()[..] {
        [input] if plan.maintains_input_order() == [true] => {
            let input = fence_sort(Arc::clone(input), purpose)?;
            replace_children_if_necessary(plan, vec![input])
        }
        _ => Ok(plan),
    }
}

fn fence_names(plan: PhysicalPlan, purpose: Purpose) -> DataFusionResult<Transformed<PhysicalPlan>> {
    let mut names = HashSet::new();
    if !plan.schema().fields().iter().all(|field| names.insert(field.name().clone())) {
        return Ok(Transformed::yes(BarrierExec::over(plan, purpose)));
    }
    let Some(side) = plan.downcast_ref::<HashJoinExec>().and_then(misled_side) else {
        return Ok(Transformed::no(plan));
    };
    let mut inputs: Vec<_> = plan.children().into_iter().cloned().collect();
    inputs[side] = BarrierExec::over(Arc::clone(&inputs[side]), purpose);
    Ok(Transformed::yes(replace_children_if_necessary(plan, inputs)?))
}

/// Returns the side of a semi join that is not part of its output, if a filter may match a wrong column there. This
/// happens if a column of that side has the name of an output key, but is not the key that it is compared with.
fn misled_side(join: &HashJoinExec) -> Option<usize> {
    let (side, other) = match join.join_type() {
        JoinType::LeftSemi => (1, join.right()),
        JoinType::RightSemi => (0, join.left()),
        _ => return None,
    };
    let schema = other.schema();
    let name = |key: &Arc<dyn PhysicalExpr>| key.downcast_ref::<Column>().map(|column| column.name().to_owned());
    let is_misled = join.on().iter().any(|(left, right)| {
        let (output, other) = if side == 1 { (name(left), name(right)) } else { (name(right), name(left)) };
        output.is_some_and(|output| schema.column_with_name(&output).is_some() && other != Some(output))
    });
    is_misled.then_some(side)
}
