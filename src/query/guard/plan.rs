//! Checks of a plan, before it is analyzed: it only reads, and calls no excluded function.

use crate::error::Error;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SQLOptions;

/// DataFusion's scalar functions that statements cannot call. They reveal files or the host, or make values of
/// any size from a few words.
pub(super) const EXCLUDED: [&str; 11] = [
    "array_repeat",
    "array_resize",
    "arrow_metadata",
    "cast_to_type",
    "file_row_index",
    "generate_series",
    "input_file_name",
    "range",
    "repeat",
    "try_cast_to_type",
    "version",
];

/// Checks a plan before it is analyzed.
pub(in crate::query) fn check(plan: &LogicalPlan) -> DataFusionResult<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| expr.apply(|part| check_part(part).map(|()| TreeNodeRecursion::Continue)))
    })?;
    Ok(())
}

fn check_part(part: &Expr) -> DataFusionResult<()> {
    match part {
        // Operators and syntax become functions too, without a lookup in the registry.
        Expr::ScalarFunction(call) if EXCLUDED.contains(&call.name()) => {
            Err(refused(&format!("the function {}", call.name()), "it is not supported"))
        }
        Expr::WindowFunction(window) if ["array_agg", "string_agg"].contains(&window.fun.name()) => {
            let what = format!("the function {} over a window", window.fun.name());
            Err(refused(&what, "each row would hold all rows before it"))
        }
        _ => Ok(()),
    }
}

fn refused(what: &str, why: &str) -> DataFusionError {
    DataFusionError::External(Error::refused(what, why).into())
}
