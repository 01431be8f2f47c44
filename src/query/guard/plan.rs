//! Checks of a plan before analysis: the plan only reads, and no expression is much larger than the statement's text.

use crate::error::{Error, Result};
use crate::query::engine::errors::external;
use arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::SQLOptions;

/// Checks a plan before it is analyzed.
pub(in crate::query) fn check(plan: &LogicalPlan) -> DataFusionResult<()> {
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    read_only.verify_plan(plan)?;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|part| check_part(part).map_err(external).map(|()| TreeNodeRecursion::Continue))
        })
    })?;
    Ok(())
}

fn check_part(part: &Expr) -> Result<()> {
    match part {
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) if is_wide(field.data_type()) => {
            let why = format!("expected at most {MAX_FIXED} values in a fixed-size list");
            Err(Error::refused(format!("the type {}", field.data_type()), why))
        }
        Expr::AggregateFunction(call)
            if matches!(
                (call.func.name(), call.params.args.len()),
                ("approx_percentile_cont", 3..) | ("approx_percentile_cont_with_weight", 4..)
            ) =>
        {
            Err(Error::refused(format!("the function {}", call.func.name()), "leave out the number of centroids"))
        }
        Expr::WindowFunction(window) if ["array_agg", "string_agg"].contains(&window.fun.name()) => {
            let what = format!("the function {} over a window", window.fun.name());
            Err(Error::refused(what, "each row would hold all rows before it"))
        }
        _ => Ok(()),
    }
}

/// The maximum number of values of a fixed-size list or bytes of a fixed-size binary. Even each null takes this
/// space.
const MAX_FIXED: i32 = 1024;

fn is_wide(dtype: &DataType) -> bool {
    match dtype {
        DataType::FixedSizeBinary(len) => *len > MAX_FIXED,
        DataType::FixedSizeList(field, len) => *len > MAX_FIXED || is_wide(field.data_type()),
        DataType::List(field) | DataType::LargeList(field) => is_wide(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| is_wide(field.data_type())),
        _ => false,
    }
}
