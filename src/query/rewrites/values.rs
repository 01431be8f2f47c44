//! Values that DataFusion's simplifier would change, and divisions by zero.
//!
//! | expression | DataFusion | here | apache/datafusion |
//! | --- | --- | --- | --- |
//! | `(SELECT x … WHERE FALSE) IS NULL` | false, if `x` is not nullable | the subquery becomes `nullif((SELECT …), NULL)`, which is nullable | #24513 |
//! | `CAST(d AS INT) = 2` for a decimal or a finer timestamp | `d = 2.0`: the cast does not round | `nullif(CAST(…), NULL) = 2`, which the optimizer does not unwrap | #23095 |
//! | `TRY_CAST(70000 AS SMALLINT) > 5` | true | null, in the same way | #24702 |
//! | `CAST(70000 AS SMALLINT) > 5` for a column with this value | true | an error, in the same way | #24702 |
//! | `a OR x IN (SELECT DISTINCT …)` | an error about equal names | the subquery without DISTINCT | none found |
//! | `x IN (1, coalesce(a, b))` | takes a list with columns for constant | `x = 1 OR x = coalesce(a, b)` | none found |
//! | `NOT (x IN (1) AND x IN (2))`, `x IN (1, 2) AND x NOT IN (1, NULL)` | merges the lists, and loses the nulls | the second list is of `nullif(x, NULL)` | none found |
//! | `ORDER BY -f(x)` | an error about orders if it knows no bounds of `f`, and a lost sort at the least integer | `f(x) * -1` | #24683 |
//! | `a / b`, `a % b` of integers and decimals | an error if any `b` is 0, even in a row that another condition excludes | `a / nullif(b, 0)`: null, as in SQLite | none: SQL leaves the order of evaluation open |

use super::columns::ExprRule;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::utils::disjunction;
use datafusion::logical_expr::{BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator, lit, not};
use std::sync::Arc;

/// Rewrites the expressions of a plan whose types are resolved.
pub(in crate::query) const KEEP_VALUES: ExprRule = ExprRule {
    name: "keep_values",
    rewrite: |expr, schema| match expr {
        // The planner finds the keys of a grouping set by their names, so they stay as they are.
        Expr::GroupingSet(_) => Ok(Transformed::no(expr)),
        expr => expr.transform_up(|part| rewrite(part, schema)),
    },
};

fn rewrite(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    match expr {
        Expr::ScalarSubquery(_) if !expr.nullable(schema)? => opaque(expr, schema),
        Expr::Cast(_) | Expr::TryCast(_) if loses_values(&expr, schema) => opaque(expr, schema),
        // `Query::filter` analyzes a plan again.
        Expr::ScalarFunction(mut call)
            if is_opaque(&call) && matches!(&call.args[0], Expr::ScalarFunction(inner) if is_opaque(inner)) =>
        {
            Ok(Transformed::yes(call.args.swap_remove(0)))
        }
        Expr::Negative(value) if !matches!(*value, Expr::Literal(..)) => {
            let dtype = value.get_type(schema)?;
            if dtype.is_signed_integer() || dtype.is_floating() {
                Ok(Transformed::yes(*value * lit(ScalarValue::new_negative_one(&dtype)?)))
            } else {
                Ok(Transformed::no(Expr::Negative(value)))
            }
        }
        Expr::InSubquery(mut subquery) => {
            let plan = without_distinct(Arc::unwrap_or_clone(subquery.subquery.subquery))?;
            subquery.subquery.subquery = Arc::new(plan.data);
            Ok(Transformed::new_transformed(Expr::InSubquery(subquery), plan.transformed))
        }
        Expr::InList(InList { expr, list, negated }) if has_columns(&list) && !expr.is_volatile() => {
            let equal = list.into_iter().map(|value| expr.as_ref().clone().eq(value));
            let is_in = disjunction(equal).unwrap_or_else(|| lit(false));
            Ok(Transformed::yes(if negated { not(is_in) } else { is_in }))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right })
            if loses_nulls(&left, op, &right) =>
        {
            let value = listed(&right).map(|(value, _)| value.clone());
            let right = right.transform_down(|part| {
                if value.as_ref() != Some(&part) {
                    return Ok(Transformed::no(part));
                }
                Ok(Transformed::new(opaque(part, schema)?.data, true, TreeNodeRecursion::Jump))
            })?;
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right: Box::new(right.data) })))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Divide | Operator::Modulo), right })
            if can_be_zero(&right, schema) =>
        {
            let zero = lit(ScalarValue::new_zero(&right.get_type(schema)?)?);
            let right = Box::new(nullif(*right, zero));
            Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right })))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// Returns whether DataFusion merges the lists of two conditions on one value to fewer values, which loses nulls.
fn loses_nulls(left: &Expr, op: Operator, right: &Expr) -> bool {
    let (Some((value, is_left_negated)), Some((other, is_right_negated))) = (listed(left), listed(right)) else {
        return false;
    };
    let is_union = match op {
        Operator::And => is_left_negated && is_right_negated,
        _ => !is_left_negated && !is_right_negated,
    };
    // The optimizer may remove casts before it merges lists.
    without_casts(value) == without_casts(other) && !is_union
}

fn without_casts(mut expr: &Expr) -> &Expr {
    while let Expr::Cast(cast) = expr {
        expr = &cast.expr;
    }
    expr
}

/// Returns the value that a condition compares with a list, and whether it is NOT IN. The list may be `x = 1 OR x = 2`.
fn listed(condition: &Expr) -> Option<(&Expr, bool)> {
    match condition {
        Expr::InList(InList { expr, negated, .. }) => Some((expr, *negated)),
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            (matches!(**left, Expr::Column(_)) && matches!(**right, Expr::Literal(..))).then_some((left, false))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (value, is_negated) = listed(left)?;
            (!is_negated && listed(right)? == (value, false)).then_some((value, false))
        }
        _ => None,
    }
}

/// Returns the plan of a subquery without its DISTINCT.
fn without_distinct(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    plan.transform_down(|node| match node {
        LogicalPlan::Distinct(Distinct::All(input)) => Ok(Transformed::complete(Arc::unwrap_or_clone(input))),
        // A cast to the type of the other side.
        LogicalPlan::Projection(_) => Ok(Transformed::no(node)),
        node => Ok(Transformed::new(node, false, TreeNodeRecursion::Stop)),
    })
}

/// Returns an expression of the same values that the optimizer does not see through.
fn opaque(expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let null = lit(ScalarValue::try_from(&expr.get_type(schema)?)?);
    Ok(Transformed::yes(nullif(expr, null)))
}

/// Returns whether a call is one of [`opaque`].
fn is_opaque(call: &ScalarFunction) -> bool {
    call.name() == "nullif" && matches!(call.args.get(1), Some(Expr::Literal(value, _)) if value.is_null())
}

/// Returns whether a divisor is an exact number that may be 0.
fn can_be_zero(divisor: &Expr, schema: &DFSchema) -> bool {
    let is_exact =
        |dtype: &DataType| dtype.is_integer() || matches!(dtype, DataType::Decimal128(..) | DataType::Decimal256(..));
    let Some(dtype) = divisor.get_type(schema).ok().filter(is_exact) else { return false };
    let is_zero = |value: &ScalarValue| ScalarValue::new_zero(&dtype).is_ok_and(|zero| *value == zero);
    match divisor {
        Expr::Literal(value, _) => is_zero(value),
        Expr::Cast(cast) if matches!(*cast.expr, Expr::Literal(..)) => can_be_zero(&cast.expr, schema),
        // `Query::filter` analyzes a plan again.
        Expr::ScalarFunction(call) => call.name() != "nullif",
        _ => true,
    }
}

/// Returns whether a list has values that may differ between rows, or that come from a subquery.
fn has_columns(list: &[Expr]) -> bool {
    let is_column =
        |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::OuterReferenceColumn(..) | Expr::ScalarSubquery(_));
    list.iter().any(|value| value.exists(|expr| Ok(is_column(expr))).is_ok_and(|found| found))
}

/// Returns whether a cast of a column may make different numbers equal, or return null for a number.
fn loses_values(expr: &Expr, schema: &DFSchema) -> bool {
    let (inner, to, is_try) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type(), false),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type(), true),
        _ => return false,
    };
    let Ok(from) = inner.get_type(schema) else { return false };
    let is_constant = inner.column_refs().is_empty() && !inner.contains_outer();
    !is_constant && (is_try && from.is_numeric() && to.is_numeric() || rounds(&from, to) || narrows(&from, to))
}

/// Returns whether a cast of an integer fails for some values.
fn narrows(from: &DataType, to: &DataType) -> bool {
    let bits = |dtype: &DataType| dtype.primitive_width().unwrap_or_default();
    let holds_all = match (from.is_signed_integer(), to.is_signed_integer()) {
        (true, false) => false,
        (false, true) => bits(from) < bits(to),
        _ => bits(from) <= bits(to),
    };
    from.is_integer() && to.is_integer() && !holds_all
}

/// Returns whether a cast rounds values.
fn rounds(from: &DataType, to: &DataType) -> bool {
    match (from, to) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
        (DataType::Decimal128(_, scale), to) => to.is_integer() && *scale > 0,
        // The finest unit is the greatest.
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => to < from,
        _ => false,
    }
}
