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

use super::barrier::{BarrierExec, Purpose};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as DataFusionResult};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use std::sync::Arc;

/// Inserts nodes that hide these properties. Must run before any rule that uses sort orders.
#[derive(Debug)]
pub(in crate::query) struct HideFalseProperties;

impl PhysicalOptimizerRule for HideFalseProperties {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let above = |plan: Arc<dyn ExecutionPlan>| {
            if fills_equal_columns(&plan) {
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
