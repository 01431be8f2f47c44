//! Cooperative yielding above joins, so that a stopped query ends.
//!
//! A cancelled task ends only when it yields. A join without keys makes many batches from rows in memory, and
//! the nodes above it may consume them without ever waiting. DataFusion's `CooperativeExec` above every join
//! counts batches and yields.

use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::unnest::UnnestExec;
use std::sync::Arc;

/// Inserts a yielding node above each join and each UNNEST.
#[derive(Debug)]
pub(in crate::query) struct YieldAboveJoins;

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
