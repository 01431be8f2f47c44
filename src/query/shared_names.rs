//! Keeps filters above nodes whose columns share names.
//!
//! The engine's physical filter pushdown finds the columns of a filter again by their names. The two sides of a join may have
//! columns of one name, and then a filter on one of them becomes a filter on the other: `… RIGHT JOIN u ON s.run_id = u.run_id
//! WHERE s.run_id IS NULL` keeps rows by `u.run_id`. The logical optimizer, which knows tables, has moved what it can before.
//!
//! A semi join passes filters on its keys to its other side, also by name, although the other key may be another column.

use super::passing::{Passing, Purpose, below};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{JoinType, Result as DataFusionResult};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};
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
            if has_shared_names(&plan) {
                return Ok(Transformed::yes(closed(plan)));
            }
            let Some(side) = plan.downcast_ref::<HashJoinExec>().and_then(misled_side) else {
                return Ok(Transformed::no(plan));
            };
            let mut inputs: Vec<_> = plan.children().into_iter().cloned().collect();
            inputs[side] = closed(Arc::clone(&inputs[side]));
            Ok(Transformed::yes(replace_children_if_necessary(plan, inputs)?))
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

fn closed(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    Passing::over(plan, Purpose::SharedNames)
}

/// The side of a semi join that is not its output, if it has a column of the name of an output key that is another column.
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

fn has_shared_names(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut names = HashSet::new();
    !plan.schema().fields().iter().all(|field| names.insert(field.name().clone()))
}
