//! Names for columns that plan rewrites add.

use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;

/// Names that no column of a plan has. The engine looks columns up by name across nodes, so each name must be unique.
pub(super) struct Names {
    prefix: String,
    used: usize,
}

impl Names {
    /// A generator of names with this prefix, extended until no column of the plan has it.
    pub(super) fn unlike(plan: &LogicalPlan, prefix: &str) -> DataFusionResult<Names> {
        let mut prefix = prefix.to_owned();
        plan.apply_with_subqueries(|plan| {
            while plan.schema().fields().iter().any(|field| field.name().starts_with(&prefix)) {
                prefix.push('_');
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Names { prefix, used: 0 })
    }

    pub(super) fn next(&mut self) -> String {
        self.used += 1;
        format!("{}{}", self.prefix, self.used)
    }
}
