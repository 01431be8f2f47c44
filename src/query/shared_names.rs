//! Keeps filters above nodes whose columns share names.
//!
//! The engine's physical filter pushdown finds the columns of a filter again by their names. The two sides of a join may have
//! columns of one name, and then a filter on one of them becomes a filter on the other: `… RIGHT JOIN u ON s.run_id = u.run_id
//! WHERE s.run_id IS NULL` keeps rows by `u.run_id`. The logical optimizer, which knows tables, has moved what it can before.

use super::passing::{Passing, Purpose, below};
use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::HashSet;
use std::sync::Arc;

/// Another rule, to which nodes whose columns share names are closed.
#[derive(Debug)]
pub(super) struct ClosedToFilters(pub(super) Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for ClosedToFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let closed = plan.transform_up(|plan| {
            Ok(match has_shared_names(&plan) {
                true => Transformed::yes(Passing::over(plan, Purpose::SharedNames)),
                false => Transformed::no(plan),
            })
        })?;
        let optimized = self.0.optimize(closed.data, config)?;
        let opened = optimized.transform_up(|plan| {
            Ok(match below(&plan, Purpose::SharedNames) {
                Some(input) => Transformed::yes(Arc::clone(input)),
                None => Transformed::no(plan),
            })
        })?;
        Ok(opened.data)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn has_shared_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    !plan.schema().fields().iter().all(|field| names.insert(field.name().clone()))
}
