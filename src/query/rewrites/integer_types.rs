//! The types of integer literals, and of the unary minus.
//!
//! DataFusion gives an integer literal the type int64. Beside a uint64, such as a board, it casts both to
//! `DECIMAL(20, 0)`: `board * 3` would fail instead of wrapping around, and `board / 10` would have decimal places. So
//! a literal of at least 0 is cast to uint64 there. A literal 0 or 1 beside a boolean is cast to a boolean. An unsigned
//! operand of the unary minus is cast to int64. The number of places of `round` becomes an int32. No upstream issue was
//! found.
//!
//! [`TypeOperands`] does this while the statement is planned, because the planner checks the arguments of functions.
//! [`TYPE_LITERALS`] does it for the expressions that DataFusion plans itself, and for parameters once they have values.
//! DataFusion omits casts from column names, so columns keep their names.

use super::columns::ExprRule;
use crate::query::output::type_names::type_name;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion, TreeNodeRewriter};
use datafusion::common::{DFSchema, Result as DataFusionResult, plan_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::type_coercion::is_signed_numeric;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, cast, lit};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercionRewriter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::BinaryOperator;

/// The operator that replaces the unary minus, with any left operand. Planners see only operators with two operands.
pub(in crate::query) const UNARY_MINUS: &str = "unary minus";

/// Types the operands of operators while a statement is planned.
#[derive(Debug)]
pub(in crate::query) struct TypeOperands;

impl ExprPlanner for TypeOperands {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        if matches!(&expr.op, BinaryOperator::Custom(name) if name == UNARY_MINUS) {
            return Ok(PlannerResult::Planned(negative(expr.right, schema)?));
        }
        type_operands(&mut expr.left, &mut expr.right, schema);
        Ok(PlannerResult::Original(expr))
    }
}

fn negative(operand: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let operand = match operand.get_type(schema)? {
        dtype if dtype.is_unsigned_integer() => cast(operand, DataType::Int64),
        dtype if is_signed_numeric(&dtype) || matches!(dtype, DataType::Null | DataType::Interval(_)) => operand,
        dtype => return plan_err!("-: expected a number, found {}", type_name(&dtype)),
    };
    Ok(Expr::Negative(Box::new(operand)))
}

/// Types literals in a plan whose parameters have values. It runs before type coercion, which would use decimals.
pub(in crate::query) const TYPE_LITERALS: ExprRule =
    ExprRule { name: "type_literals", rewrite: |expr, schema| expr.transform_up(|part| typed(part, schema)) };

fn typed(mut expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let is_typed = match &mut expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => type_operands(left, right, schema),
        Expr::ScalarFunction(call) if is_choice(call.name()) => {
            as_uint64(&mut call.args.iter_mut().collect::<Vec<_>>(), schema)
        }
        // Otherwise the number of places gets a cast, and the type of the result changes when that is folded.
        Expr::ScalarFunction(call) if call.name() == "round" => call.args.get_mut(1).is_some_and(as_int32),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            as_uint64(&mut results.chain(case.else_expr.as_deref_mut()).collect::<Vec<_>>(), schema)
        }
        // The operand became unsigned, because a literal in it was cast.
        Expr::Negative(operand) if operand.get_type(schema).is_ok_and(|dtype| dtype.is_unsigned_integer()) => {
            cast_in_place(operand, DataType::Int64);
            true
        }
        _ => false,
    };
    match expr {
        // Until its types are coerced, the expressions and columns above it see the type of its first branch.
        Expr::Case(_) => TypeCoercionRewriter::new(schema).f_up(expr),
        expr => Ok(Transformed::new(expr, is_typed, TreeNodeRecursion::Continue)),
    }
}

/// Returns whether a function returns one of its arguments.
fn is_choice(name: &str) -> bool {
    matches!(name, "coalesce" | "nullif" | "nvl" | "nvl2" | "greatest" | "least")
}

fn type_operands(left: &mut Expr, right: &mut Expr, schema: &DFSchema) -> bool {
    as_uint64(&mut [left, right], schema) || as_boolean(left, right, schema) || as_boolean(right, left, schema)
}

/// Casts literals of at least 0 to uint64, if another of the expressions has this type.
fn as_uint64(exprs: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let (mut literals, others): (Vec<_>, Vec<_>) =
        exprs.iter_mut().partition(|expr| integer(expr).is_some_and(|number| number >= 0));
    if literals.is_empty() || !others.iter().any(|expr| is_uint64(expr, schema)) {
        return false;
    }
    literals.iter_mut().for_each(|literal| cast_in_place(literal, DataType::UInt64));
    true
}

/// Returns whether an expression is a uint64. Until types are coerced, a CASE has the type of its first branch.
fn is_uint64(expr: &Expr, schema: &DFSchema) -> bool {
    let has_case = expr.exists(|part| Ok(matches!(part, Expr::Case(_)))).is_ok_and(|has_case| has_case);
    let coerced = has_case.then(|| expr.clone().rewrite(&mut TypeCoercionRewriter::new(schema)).ok()).flatten();
    let dtype = coerced.as_ref().map_or(expr, |coerced| &coerced.data).get_type(schema);
    dtype.is_ok_and(|dtype| dtype == DataType::UInt64)
}

/// Casts a literal 0 or 1 beside a boolean to a boolean.
fn as_boolean(literal: &mut Expr, other: &Expr, schema: &DFSchema) -> bool {
    let is_cast =
        matches!(integer(literal), Some(0 | 1)) && other.get_type(schema).is_ok_and(|dtype| dtype == DataType::Boolean);
    if is_cast {
        cast_in_place(literal, DataType::Boolean);
    }
    is_cast
}

/// Replaces a literal by an int32, if it is one.
fn as_int32(expr: &mut Expr) -> bool {
    let number = match &*expr {
        Expr::Negative(operand) => integer(operand).and_then(i64::checked_neg),
        other => integer(other),
    };
    let Some(number) = number.and_then(|number| i32::try_from(number).ok()) else { return false };
    *expr = lit(number);
    true
}

fn cast_in_place(expr: &mut Expr, dtype: DataType) {
    *expr = cast(std::mem::take(expr), dtype);
}

/// Returns the value of a literal of type int64. The planner and Python give other integers this type only if they fit.
fn integer(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        _ => None,
    }
}
