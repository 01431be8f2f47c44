//! Hides the uniqueness of GROUP BY keys from the optimizer, which would drop sorts because of it.
//!
//! DataFusion records that groups are unique by their keys, as column numbers. A projection that moves the
//! columns keeps the old numbers (`EquivalenceProperties::projected_constraints`). Other columns then count as
//! unique, and the optimizer drops the rest of an ORDER BY that begins with one of them. No upstream issue was
//! found.
//!
//! In GROUPING SETS, CUBE and ROLLUP, DataFusion treats a key as constant if its input is constant. But the key
//! is null in some sets, so the optimizer wrongly drops an ORDER BY of it. No upstream issue was found.

use super::barrier::{BarrierExec, Purpose};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use std::sync::Arc;

/// Inserts nodes that hide the uniqueness. Must run before any rule that uses sort orders.
#[derive(Debug)]
pub(in crate::query) struct HideGroupUniqueness;

impl PhysicalOptimizerRule for HideGroupUniqueness {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let above = |plan: Arc<dyn ExecutionPlan>| {
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
        "hide_group_uniqueness"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
