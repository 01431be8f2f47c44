//! A bound on the texts and lists that functions return.
//!
//! Thirty short expressions, each of which doubles a text, make a gigabyte. So a check above each function and each `||`
//! that returns texts or lists fails the query if a batch of its results is too large. Functions that can multiply their
//! arguments at once have a literal as the multiplier, and a smaller bound on the multiplied argument.

use super::super::functions::functions;
use super::super::rewrites::{input_schema, map_expressions};
use crate::error::Error;
use arrow::array::Array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;

/// The maximum number of bytes of the results of one function for one batch of rows.
const MAX_BYTES: u64 = 64 << 20;
/// The maximum number of bytes of a constant, which may be repeated in each row of a batch. The length of a statement
/// already limits a list of constants.
const MAX_CONSTANT_BYTES: u64 = 64 << 10;
const MAX_LIST_BYTES: u64 = 512 << 10;

/// The functions that can multiply their first argument: the position of the multiplier, and its maximum, in bytes of a
/// text or as a number.
const MULTIPLYING: [(&str, usize, u64); 6] = [
    ("replace", 2, 1000),
    ("regexp_replace", 2, 1000),
    ("array_to_string", 1, 1000),
    ("lpad", 1, 1000),
    ("rpad", 1, 1000),
    ("to_char", 1, 1000),
];
/// The functions whose second argument is a regular expression. The engine keeps each compiled expression of a batch.
const MATCHING: [&str; 5] = ["regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"];
/// Functions that return one of their arguments, or a part of it.
const CHOOSING: [&str; 9] =
    ["array_element", "coalesce", "get_field", "greatest", "least", "lower", "nullif", "nvl", "substr"];
/// The number of bytes of a value of a list, or of a date, as text.
const VALUE_TEXT: u64 = 24;

/// Adds the checks to a plan whose types are resolved.
#[derive(Debug)]
pub(super) struct BoundSizes;

impl AnalyzerRule for BoundSizes {
    fn name(&self) -> &'static str {
        "bound_sizes"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            let schema = input_schema(&node);
            map_expressions(node, |expr| expr.transform_up(|part| bounded(part, &schema)))
        })?;
        Ok(rewritten.data)
    }
}

fn bounded(mut expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    if let Expr::ScalarFunction(call) = &expr
        && ["arrow_cast", "arrow_try_cast"].contains(&call.name())
    {
        let dtype = expr.get_type(schema)?;
        if !is_simple(&dtype) {
            let why = format!("the type {dtype} is not supported");
            return Err(DataFusionError::External(refused(call.name(), why).into()));
        }
    }
    let name = match &mut expr {
        Expr::ScalarFunction(call) => {
            let name = call.name().to_owned();
            if let Some(&(_, at, most)) = MULTIPLYING.iter().find(|(multiplying, ..)| *multiplying == name)
                && call.args.len() > at
            {
                let Some(factor) = factor(&call.args[at]).filter(|factor| *factor <= most) else {
                    let why = format!("its argument {} must be a literal, at most {most}", at + 1);
                    return Err(DataFusionError::External(refused(&name, why).into()));
                };
                let first = std::mem::take(&mut call.args[0]);
                call.args[0] = SizeCheck::new(&name, MAX_BYTES / (factor + VALUE_TEXT)).above(first);
            }
            if MATCHING.contains(&name.as_str()) {
                call.args.get(1).map_or(Ok(()), |pattern| check_pattern(&name, pattern))?;
            }
            name
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => "||".to_owned(),
        Expr::BinaryExpr(binary) if is_match(binary.op) => {
            check_pattern(&binary.op.to_string(), &binary.right)?;
            return Ok(Transformed::no(expr));
        }
        _ => return Ok(Transformed::no(expr)),
    };
    // DataFusion may analyze a plan twice.
    let is_small = name == SizeCheck::NAME || CHOOSING.contains(&name.as_str()) || is_ours(&name);
    if is_small || !is_large(&expr.get_type(schema)?) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(SizeCheck::new(&name, MAX_BYTES).above(expr)))
}

fn is_match(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
}

/// Rejects a regular expression that is not a literal.
fn check_pattern(name: &str, pattern: &Expr) -> DataFusionResult<()> {
    match pattern {
        Expr::Literal(..) => Ok(()),
        Expr::Cast(cast) => check_pattern(name, &cast.expr),
        _ => Err(DataFusionError::External(refused(name, "its argument 2 must be a literal".to_owned()).into())),
    }
}

fn is_ours(name: &str) -> bool {
    functions().iter().any(|function| function.name == name)
}

/// Returns the length of a literal text, or the value of a literal number.
fn factor(argument: &Expr) -> Option<u64> {
    match argument {
        Expr::Literal(value, _) if value.is_null() => Some(0),
        Expr::Literal(value, _) => match value.try_as_str() {
            Some(text) => Some(text?.len() as u64),
            None => match value.cast_to(&DataType::Int64).ok()? {
                ScalarValue::Int64(Some(number)) => Some(number.max(0).unsigned_abs()),
                _ => None,
            },
        },
        Expr::Cast(cast) => factor(&cast.expr),
        _ => None,
    }
}

/// Returns whether the size of a value follows from its content, and not from its type.
fn is_simple(dtype: &DataType) -> bool {
    match dtype {
        DataType::Dictionary(_, values) => is_simple(values),
        DataType::List(field) | DataType::LargeList(field) => is_simple(field.data_type()),
        DataType::Null | DataType::Boolean | DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        dtype => dtype.is_numeric() || dtype.is_temporal() || dtype.is_string(),
    }
}

fn is_large(dtype: &DataType) -> bool {
    match dtype {
        DataType::Dictionary(_, values) => is_large(values),
        dtype => {
            dtype.is_string()
                || dtype.is_binary()
                || matches!(dtype, DataType::List(_) | DataType::LargeList(_) | DataType::Map(..))
        }
    }
}

fn refused(name: &str, why: String) -> Error {
    Error::refused(format!("the function {name}"), why)
}

/// A function that returns its argument, or fails if it is too large.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SizeCheck {
    /// The function that made the argument.
    of: String,
    most: u64,
    signature: Signature,
}

impl SizeCheck {
    const NAME: &str = "size_check";

    fn new(of: &str, most: u64) -> SizeCheck {
        SizeCheck { of: of.to_owned(), most, signature: Signature::any(1, Volatility::Immutable) }
    }

    fn above(self, expr: Expr) -> Expr {
        ScalarUDF::new_from_impl(self).call(vec![expr])
    }
}

impl ScalarUDFImpl for SizeCheck {
    fn name(&self) -> &'static str {
        SizeCheck::NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        internal_err!("the return type depends on the argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        Ok(args.arg_fields[0].clone())
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let value = args.args.swap_remove(0);
        let (what, bytes, most) = match &value {
            ColumnarValue::Array(array) => {
                ("a batch of its values has", array.to_data().get_slice_memory_size()?, self.most)
            }
            ColumnarValue::Scalar(scalar) => {
                let most = if scalar.data_type().is_list() { MAX_LIST_BYTES } else { MAX_CONSTANT_BYTES };
                ("its value has", scalar.to_array()?.to_data().get_slice_memory_size()?, most.min(self.most))
            }
        };
        if bytes as u64 <= most {
            return Ok(value);
        }
        let why = format!("{what} {bytes} bytes, expected at most {most}");
        Err(DataFusionError::External(refused(&self.of, why).into()))
    }
}
