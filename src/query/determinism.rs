//! The determinism of a query: whether text and data determine its rows.

use super::rewrites::input_schema;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan, Volatility};

/// The properties that equal queries over equal data have in common, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Determinism {
    /// The rows are equal, in any order. Sorting by all columns makes the order equal too.
    Deterministic,
    /// The rows are equal if the rows of each input arrive in the same order. For example, sums of
    /// floating-point numbers round differently in another order, and window functions number rows that their
    /// ORDER BY leaves equal.
    OrderDependent,
    /// The rows may differ, because the query uses random numbers or the time.
    Volatile,
}

/// Aggregates whose result does not depend on the order of their input, unless they compute with floating-point
/// numbers.
///
/// DataFusion's `order_sensitivity` is about ORDER BY inside an aggregate. It classifies `count` as sensitive
/// and `any_value` as insensitive.
const ORDER_INDEPENDENT: [&str; 9] =
    ["count", "sum", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"];

impl Determinism {
    pub(super) fn of(plan: &LogicalPlan) -> DataFusionResult<Determinism> {
        let mut determinism = Determinism::Deterministic;
        plan.apply_with_subqueries(|node| {
            determinism = determinism.max(of_node(node)?);
            let inputs = input_schema(node);
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    determinism = determinism.max(of_expr(expr, &inputs));
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(determinism)
    }
}

fn of_node(node: &LogicalPlan) -> DataFusionResult<Determinism> {
    let any_float = |schema: &DFSchema| schema.fields().iter().any(|field| has_float(field.data_type()));
    let depends = match node {
        LogicalPlan::Window(_) | LogicalPlan::Distinct(Distinct::On(_)) => true,
        // 0.0 and -0.0 may form one group, whose key is the value that comes first.
        LogicalPlan::Distinct(Distinct::All(input)) => any_float(input.schema()),
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let mut float_key = false;
            for key in &aggregate.group_expr {
                key.apply(|part| {
                    float_key |= part.get_type(schema).is_ok_and(|dtype| has_float(&dtype));
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            float_key
        }
        _ => false,
    };
    Ok(if depends { Determinism::OrderDependent } else { Determinism::Deterministic })
}

fn of_expr(expr: &Expr, inputs: &DFSchema) -> Determinism {
    match expr {
        Expr::ScalarFunction(function) => match function.func.signature().volatility {
            Volatility::Immutable => Determinism::Deterministic,
            Volatility::Stable | Volatility::Volatile => Determinism::Volatile,
        },
        Expr::AggregateFunction(function) if !is_order_independent(function, inputs) => Determinism::OrderDependent,
        Expr::WindowFunction(_) => Determinism::OrderDependent,
        _ => Determinism::Deterministic,
    }
}

fn is_order_independent(function: &AggregateFunction, inputs: &DFSchema) -> bool {
    let name = function.func.name();
    let is_exact = |arg: &Expr| arg.get_type(inputs).is_ok_and(|dtype| !has_float(&dtype));
    // `count` is exact even for distinct values, because it counts 0.0 and -0.0 alike in any order.
    ORDER_INDEPENDENT.contains(&name) && (name == "count" || function.params.args.iter().all(is_exact))
}

/// Returns whether a type contains floating-point numbers. Equal ones may differ in their bits.
fn has_float(dtype: &DataType) -> bool {
    match dtype {
        DataType::Dictionary(_, values) => has_float(values),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::FixedSizeList(field, _)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::Map(field, _) => has_float(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_float(field.data_type())),
        DataType::RunEndEncoded(_, values) => has_float(values.data_type()),
        DataType::Union(..) => true,
        dtype => dtype.is_floating(),
    }
}
