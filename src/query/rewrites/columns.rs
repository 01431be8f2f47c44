//! Input columns of plan nodes, and analyzer rules that rewrite expressions and keep the names of columns.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Union};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;

/// Returns the input columns of a node's expressions.
pub(in crate::query) fn input_schema(node: &LogicalPlan) -> DFSchema {
    let mut schema = DFSchema::empty();
    node.inputs().into_iter().for_each(|input| schema.merge(input.schema()));
    schema
}

/// A rule of the analyzer that rewrites the expressions of each node. The resulting columns keep their names.
#[derive(Debug)]
pub(in crate::query) struct ExprRule {
    pub(in crate::query) name: &'static str,
    /// Rewrites an expression over these input columns.
    pub(in crate::query) rewrite: fn(Expr, &DFSchema) -> DataFusionResult<Transformed<Expr>>,
}

impl AnalyzerRule for ExprRule {
    fn name(&self) -> &str {
        self.name
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let (schema, names) = (input_schema(&node), NamePreserver::new(&node));
            let node = node.map_expressions(|expr| {
                if matches!(expr, Expr::Column(_)) {
                    return Ok(Transformed::no(expr));
                }
                let name = names.save(&expr);
                Ok((self.rewrite)(expr, &schema)?.update_data(|expr| name.restore(expr)))
            })?;
            // Types and nullability of this node or its inputs may have changed.
            node.map_data(|node| match node {
                // Until its types are coerced, a union has those of its first input.
                LogicalPlan::Union(Union { inputs, .. }) => {
                    TypeCoercionRewriter::coerce_union(Union::try_new_with_loose_types(inputs)?)
                }
                node => node.recompute_schema(),
            })
        })?;
        Ok(rewritten.data)
    }
}
