//! Queries whose results may differ although the data is the same.

use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

/// Returns whether a plan uses random numbers or the time.
pub(in crate::query) fn is_volatile(plan: &LogicalPlan) -> DataFusionResult<bool> {
    let mut is_volatile = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::ScalarFunction(function) = expr {
                    is_volatile |= function.func.signature().volatility != Volatility::Immutable;
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(is_volatile)
}
