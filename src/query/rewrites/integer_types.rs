//! The types of integers beside unsigned columns, as people expect them.
//!
//! DataFusion gives an integer literal the type int64. Beside a uint64, such as a board, both become
//! `DECIMAL(20, 0)`: `board * 3` was an error instead of wrapping, and `board & 15` had another type. This rule
//! gives a literal of at least 0 the type uint64 there. It also lets a boolean be compared with 0 and 1, and gives the
//! negative of an unsigned integer a signed type. DataFusion's planner rejects such a negative before any rule runs, so
//! the parser writes it as a call of [`Negation`], which the rule replaces.

use super::columns::{input_schema, map_expressions};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, internal_err, plan_err};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

/// Types integer literals and negations. It runs before type coercion, which would use decimals.
#[derive(Debug)]
pub(in crate::query) struct TypeIntegers;

impl AnalyzerRule for TypeIntegers {
    fn name(&self) -> &'static str {
        "type_integers"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let typed = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            let node = map_expressions(node, |expr| expr.transform_up(|part| Ok(typed(part, &schema))))?;
            // The types of the inputs may have changed too.
            Ok(Transformed::yes(node.data.recompute_schema()?))
        })?;
        Ok(typed.data)
    }
}

fn typed(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let type_of = |expr: &Expr| expr.get_type(schema).ok();
    match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let is_typed = if is_arithmetic(op) {
                as_uint64(&mut [&mut left, &mut right], schema)
            } else if op.supports_propagation() {
                let (of_left, of_right) = (type_of(&left), type_of(&right));
                of_left == Some(DataType::Boolean) && as_boolean(&mut right)
                    || of_right == Some(DataType::Boolean) && as_boolean(&mut left)
            } else {
                false
            };
            Transformed::new(Expr::BinaryExpr(BinaryExpr { left, op, right }), is_typed, TreeNodeRecursion::Continue)
        }
        Expr::ScalarFunction(mut call) if call.name() == NEGATION => {
            let Some(inner) = call.args.pop() else { return Transformed::no(Expr::ScalarFunction(call)) };
            let is_unsigned = type_of(&inner).is_some_and(|dtype| dtype.is_unsigned_integer());
            let signed = if is_unsigned { Expr::Cast(Cast::new(Box::new(inner), DataType::Int64)) } else { inner };
            Transformed::yes(Expr::Negative(Box::new(signed)))
        }
        Expr::ScalarFunction(mut call) if is_choice(call.name()) => {
            let is_typed = as_uint64(&mut call.args.iter_mut().collect::<Vec<_>>(), schema);
            Transformed::new(Expr::ScalarFunction(call), is_typed, TreeNodeRecursion::Continue)
        }
        Expr::Case(mut case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| &mut **then);
            let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
            let is_typed = as_uint64(&mut results, schema);
            Transformed::new(Expr::Case(case), is_typed, TreeNodeRecursion::Continue)
        }
        other => Transformed::no(other),
    }
}

/// Types the literals of operators while the statement is planned, because the planner checks the arguments of functions.
#[derive(Debug)]
pub(in crate::query) struct TypeLiterals;

impl ExprPlanner for TypeLiterals {
    fn plan_binary_op(
        &self,
        mut expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        use datafusion::sql::sqlparser::ast::BinaryOperator as Op;
        let is_arithmetic = matches!(
            expr.op,
            Op::Plus
                | Op::Minus
                | Op::Multiply
                | Op::Divide
                | Op::Modulo
                | Op::BitwiseAnd
                | Op::BitwiseOr
                | Op::BitwiseXor
                | Op::PGBitwiseXor
                | Op::PGBitwiseShiftLeft
                | Op::PGBitwiseShiftRight
        );
        if is_arithmetic {
            as_uint64(&mut [&mut expr.left, &mut expr.right], schema);
        }
        Ok(PlannerResult::Original(expr))
    }
}

/// The name of [`Negation`].
pub(in crate::query) const NEGATION: &str = "negative";

/// The unary minus, until [`TypeIntegers`] replaces it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(in crate::query) struct Negation(Signature);

impl Negation {
    pub(in crate::query) fn new() -> Negation {
        Negation(Signature::any(1, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for Negation {
    fn name(&self) -> &'static str {
        NEGATION
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        args.first().map_or_else(|| Ok(String::new()), |arg| Ok(format!("(- {})", arg.schema_name())))
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        match arg_types {
            [dtype] if dtype.is_unsigned_integer() => Ok(DataType::Int64),
            [dtype] if dtype.is_numeric() || matches!(dtype, DataType::Null | DataType::Interval(_)) => {
                Ok(dtype.clone())
            }
            _ => plan_err!("-: expected a number, found {arg_types:?}"),
        }
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        internal_err!("{NEGATION} is replaced before a plan runs")
    }
}

fn is_arithmetic(op: Operator) -> bool {
    use Operator as Op;
    let numbers = matches!(op, Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo);
    let bits =
        matches!(op, Op::BitwiseAnd | Op::BitwiseOr | Op::BitwiseXor | Op::BitwiseShiftLeft | Op::BitwiseShiftRight);
    numbers || bits
}

/// Returns whether a function returns one of its arguments.
fn is_choice(name: &str) -> bool {
    matches!(name, "coalesce" | "nullif" | "nvl" | "nvl2" | "greatest" | "least")
}

/// Gives literals of at least 0 the type uint64, if another of the expressions has it.
fn as_uint64(exprs: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_uint64 = |expr: &Expr| expr.get_type(schema).is_ok_and(|dtype| dtype == DataType::UInt64);
    if !exprs.iter().any(|expr| !matches!(expr, Expr::Literal(..)) && is_uint64(expr)) {
        return false;
    }
    let mut is_typed = false;
    for expr in exprs {
        if let Expr::Literal(value, _) = expr
            && let Some(number) = integer(value).and_then(|number| u64::try_from(number).ok())
        {
            *value = ScalarValue::UInt64(Some(number));
            is_typed = true;
        }
    }
    is_typed
}

/// Makes the literals 0 and 1 booleans.
fn as_boolean(expr: &mut Expr) -> bool {
    let Expr::Literal(value, _) = expr else { return false };
    let Some(number @ (0 | 1)) = integer(value) else { return false };
    *value = ScalarValue::Boolean(Some(number == 1));
    true
}

/// Returns the value of a signed integer literal.
fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int64(number) => *number,
        ScalarValue::Int32(number) => number.map(i64::from),
        ScalarValue::Int16(number) => number.map(i64::from),
        ScalarValue::Int8(number) => number.map(i64::from),
        _ => None,
    }
}
