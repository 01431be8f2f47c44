//! Columns of plan nodes: the inputs of a node, expressions that keep their names, and new unique names.

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Returns the input columns of a node's expressions.
pub(in crate::query) fn input_schema(node: &LogicalPlan) -> DFSchema {
    let mut schema = DFSchema::empty();
    node.inputs().into_iter().for_each(|input| schema.merge(input.schema()));
    schema
}

/// Rewrites the expressions of a node. The resulting columns keep their names.
pub(in crate::query) fn map_expressions(
    node: LogicalPlan,
    mut rewrite: impl FnMut(Expr) -> DataFusionResult<Transformed<Expr>>,
) -> DataFusionResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(rewrite(expr)?.update_data(|expr| name.restore(expr)))
    })
}

/// A generator of column names that do not occur in a plan. They must be unique, because DataFusion looks up
/// columns by name across nodes.
pub(super) struct UniqueNames {
    prefix: String,
    used: usize,
}

impl UniqueNames {
    /// Makes a generator of names with this prefix, extended until no column of the plan starts with it.
    pub(super) fn unlike(plan: &LogicalPlan, prefix: &str) -> DataFusionResult<UniqueNames> {
        let mut prefix = prefix.to_owned();
        plan.apply_with_subqueries(|plan| {
            while plan.schema().fields().iter().any(|field| field.name().starts_with(&prefix)) {
                prefix.push('_');
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(UniqueNames { prefix, used: 0 })
    }

    pub(super) fn next(&mut self) -> String {
        self.used += 1;
        format!("{}{}", self.prefix, self.used)
    }
}
