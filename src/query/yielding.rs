//! Joins that give their thread back now and then, so that a query that was stopped stops.
//!
//! A task ends where it waits. A join without keys makes batch after batch out of what it holds in memory, whatever is above
//! it takes them, and neither ever waits. The engine's own node for that, above every join, counts batches and waits.

use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct YieldAboveJoins;

impl PhysicalOptimizerRule for YieldAboveJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let above = |plan: Arc<dyn ExecutionPlan>| {
            let multiplies = plan.downcast_ref::<CrossJoinExec>().is_some()
                || plan.downcast_ref::<NestedLoopJoinExec>().is_some()
                || plan.downcast_ref::<HashJoinExec>().is_some()
                || plan.downcast_ref::<SortMergeJoinExec>().is_some()
                || plan.downcast_ref::<UnnestExec>().is_some();
            Ok(match multiplies {
                true => Transformed::yes(Arc::new(CooperativeExec::new(plan)) as Arc<dyn ExecutionPlan>),
                false => Transformed::no(plan),
            })
        };
        Ok(plan.transform_up(above)?.data)
    }

    fn name(&self) -> &'static str {
        "yield_above_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
