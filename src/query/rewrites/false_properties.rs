//! Hides properties that DataFusion claims wrongly for groups and outer joins. The optimizer would drop sorts because of
//! them.
//!
//! DataFusion records that groups are unique by their keys, as column numbers. A projection that moves the
//! columns keeps the old numbers (`EquivalenceProperties::projected_constraints`). Other columns then count as
//! unique, and the optimizer drops the rest of an ORDER BY that begins with one of them. No upstream issue was
//! found.
//!
//! In GROUPING SETS, CUBE and ROLLUP, DataFusion treats a key as constant if its input is constant. But the key
//! is null in some sets, so the optimizer wrongly drops an ORDER BY of it. No upstream issue was found.
//!
//! An outer join fills the columns of one side with nulls. DataFusion still treats such a column as constant if it is
//! constant in the join's input, and drops an ORDER BY of it. No upstream issue was found.
//!
//! Other orders are true, but the optimizer uses them for dropping a sort, then loses them, and rejects its own plan. For
//! example, it deduces that `board` is constant from `1 BETWEEN board AND board`, and that the columns of an aggregate
//! without GROUP BY are ordered. [`physical_plan`] then makes the plan again without orders that no sort and no file
//! has made. Such a plan may sort more often. No upstream issue was found.

use super::barrier::{BarrierExec, Purpose};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as DataFusionResult};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Inserts nodes that hide these properties. Must run before any rule that uses sort orders.
#[derive(Debug, Default)]
pub(in crate::query) struct HideFalseProperties {
    /// Whether to hide the order of every filter, aggregate, join, union and window.
    all_orders: bool,
}

/// Makes the physical plan of an optimized plan.
pub(in crate::query) async fn physical_plan(
    state: &SessionState,
    plan: &LogicalPlan,
) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
    let error = match state.query_planner().create_physical_plan(plan, state).await {
        Err(error) if error.to_string().contains(REJECTED) => error,
        made => return made,
    };
    let hide: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::new(HideFalseProperties { all_orders: true });
    let rules = state.physical_optimizers().iter();
    let rules = rules.map(|rule| if rule.name() == hide.name() { Arc::clone(&hide) } else { Arc::clone(rule) });
    let rules = rules.collect();
    let state = SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(rules).build();
    // The first error is about the plan that the user would see otherwise.
    state.query_planner().create_physical_plan(plan, &state).await.map_err(|_| error)
}

/// A part of the message of the rule `SanityCheckPlan` for a sort that is missing.
const REJECTED: &str = "does not satisfy order requirements";

impl PhysicalOptimizerRule for HideFalseProperties {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let above = |plan: Arc<dyn ExecutionPlan>| {
            if (self.all_orders && makes_no_order(&plan)) || fills_equal_columns(&plan) {
                return Ok(Transformed::yes(BarrierExec::over(plan, Purpose::HideOrder)));
            }
            let purpose = plan.downcast_ref::<AggregateExec>().and_then(|aggregate| {
                let is_final = !matches!(aggregate.mode(), AggregateMode::Partial);
                match aggregate.group_expr() {
                    keys if keys.is_empty() => None,
                    keys if !keys.is_single() || keys.has_grouping_set() => Some(Purpose::HideOrder),
                    _ => is_final.then_some(Purpose::HideUniqueness),
                }
            });
            Ok(match purpose {
                Some(purpose) => Transformed::yes(BarrierExec::over(plan, purpose)),
                None => Transformed::no(plan),
            })
        };
        Ok(plan.transform_up(above)?.data)
    }

    fn name(&self) -> &'static str {
        "hide_false_properties"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns whether a plan is a node whose output order is that of its input, or was deduced.
fn makes_no_order(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>()
        || plan.is::<AggregateExec>()
        || plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<UnionExec>()
        || plan.is::<WindowAggExec>()
        || plan.is::<BoundedWindowAggExec>()
}

/// Returns whether a plan is an outer join that fills a side with nulls in which a column equals a constant or another
/// column.
fn fills_equal_columns(plan: &Arc<dyn ExecutionPlan>) -> bool {
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
