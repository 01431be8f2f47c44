//! Checks of a plan, before it is analyzed: it only reads.

use super::super::errors::external;
use crate::error::Error;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SQLOptions;

/// Checks a plan before it is analyzed.
pub(in crate::query) fn check(plan: &LogicalPlan) -> DataFusionResult<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| match part {
                Expr::WindowFunction(window) if ["array_agg", "string_agg"].contains(&window.fun.name()) => {
                    let what = format!("the function {} over a window", window.fun.name());
                    Err(external(Error::refused(what, "each row would hold all rows before it")))
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(())
}
