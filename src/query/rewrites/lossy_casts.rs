//! Casts that lose values, kept where the statement has them.
//!
//! DataFusion moves a cast from a column to the literal beside it: `CAST(a AS BIGINT) = 5` becomes `a = 5`. Then
//! statistics can skip row groups. It also does so where the cast loses values. Then `CAST(2.4 AS INT) = 2` is false
//! (apache/datafusion#23095), and `TRY_CAST(70000 AS SMALLINT) > 5` is true instead of null (#24702). This rule wraps
//! such casts in a function that returns its argument. The optimizer does not see through that function.

use super::columns::{input_schema, map_expressions};
use super::fallible_conditions::always_casts;
use datafusion::arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::{Arc, LazyLock};

/// Wraps casts that lose values. It runs after type coercion, because it needs the types.
#[derive(Debug)]
pub(in crate::query) struct KeepLossyCasts;

impl AnalyzerRule for KeepLossyCasts {
    fn name(&self) -> &'static str {
        "keep_lossy_casts"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let wrapped = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            map_expressions(node, |expr| {
                expr.transform_up(|expr| {
                    Ok(if loses_values(&expr, &schema) { wrap(expr) } else { Transformed::no(expr) })
                })
            })
        })?;
        Ok(wrapped.data)
    }
}

fn wrap(expr: Expr) -> Transformed<Expr> {
    static IDENTITY: LazyLock<Arc<ScalarUDF>> =
        LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(Identity::default())));
    Transformed::yes(IDENTITY.call(vec![expr]))
}

/// Returns whether a cast of a column may make different values equal, or return null for a value.
fn loses_values(expr: &Expr, schema: &DFSchema) -> bool {
    let (inner, to, is_try) = match expr {
        Expr::Cast(cast) => (&cast.expr, cast.field.data_type(), false),
        Expr::TryCast(cast) => (&cast.expr, cast.field.data_type(), true),
        _ => return false,
    };
    let Ok(from) = inner.get_type(schema) else { return false };
    let is_constant = inner.column_refs().is_empty() && !inner.contains_outer();
    !is_constant && (rounds(&from, to) || is_try && !always_casts(&from, to))
}

/// Returns whether a cast rounds values.
fn rounds(from: &DataType, to: &DataType) -> bool {
    let fineness = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    match (from, to) {
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => to < from,
        (DataType::Decimal128(_, scale), to) => to.is_integer() && *scale > 0,
        (DataType::Timestamp(from, _), DataType::Timestamp(to, _)) => fineness(to) < fineness(from),
        _ => false,
    }
}

/// Returns its argument.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity(Signature);

impl Default for Identity {
    fn default() -> Self {
        Self(Signature::any(1, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for Identity {
    fn name(&self) -> &'static str {
        "identity"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        internal_err!("the return type depends on the argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        Ok(Arc::clone(&args.arg_fields[0]))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Ok(args.args.swap_remove(0))
    }
}
