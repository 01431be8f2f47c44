//! Columns of plan nodes: the inputs of a node, and expressions that keep their names.

use datafusion::common::tree_node::Transformed;
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
