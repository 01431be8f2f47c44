//! Keeping from the engine by what the rows of groups are unique.
//!
//! The engine notes that groups are unique by their keys, as numbers of columns, and leaves these numbers as they are where
//! a projection puts the columns elsewhere (`EquivalenceProperties::projected_constraints`). Then columns count as unique
//! that are not, and of an ORDER BY that begins with such a column the rest is dropped.
//!
//! In GROUPING SETS, CUBE and ROLLUP it takes a key for constant if its input is, although the key is null in some sets. Then
//! an ORDER BY of the key is dropped.

use super::super::passing::{Passing, Purpose};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use std::sync::Arc;

/// To be applied before any rule that looks at orders.
#[derive(Debug)]
pub(crate) struct ForgetKeysOfGroups;

impl PhysicalOptimizerRule for ForgetKeysOfGroups {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let above = |plan: Arc<dyn ExecutionPlan>| {
            let purpose = plan.downcast_ref::<AggregateExec>().and_then(|aggregate| {
                let is_final = !matches!(aggregate.mode(), AggregateMode::Partial);
                match aggregate.group_expr() {
                    keys if keys.is_empty() => None,
                    keys if !keys.is_single() || keys.has_grouping_set() => Some(Purpose::ForgetOrder),
                    _ => is_final.then_some(Purpose::ForgetKeys),
                }
            });
            Ok(match purpose {
                Some(purpose) => Transformed::yes(Passing::over(plan, purpose)),
                None => Transformed::no(plan),
            })
        };
        Ok(plan.transform_up(above)?.data)
    }

    fn name(&self) -> &'static str {
        "forget_keys_of_groups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
