//! A bound on the texts and lists that functions return.
//!
//! Thirty short expressions, each of which doubles a text, make a gigabyte. So a check above each function and each
//! `||` that returns texts or lists fails the query if a batch of its results is too large. Functions that can multiply
//! their arguments at once have a literal as the multiplier, and a smaller bound on the multiplied argument.

use crate::error::Error;
use crate::query::engine::errors::external;
use crate::query::engine::plan_function::PlanFunction;
use crate::query::functions::functions;
use crate::query::rewrites::ExprRule;
use arrow::array::Array;
use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, Result as DataFusionResult, ScalarValue, internal_err};
use datafusion::logical_expr::{ColumnarValue, Expr, ExprSchemable, Operator};

/// The maximum number of bytes of the results of one function for one batch of rows.
const MAX_BYTES: u64 = 64 << 20;
/// The maximum number of bytes of a constant, which may be repeated in each row of a batch. The length of a statement
/// already limits a list of constants.
const MAX_CONSTANT_BYTES: u64 = 64 << 10;
const MAX_LIST_BYTES: u64 = 512 << 10;

/// The functions that can multiply their first argument, with the position of the multiplier.
const MULTIPLYING: [(&str, usize); 6] =
    [("replace", 2), ("regexp_replace", 2), ("array_to_string", 1), ("lpad", 1), ("rpad", 1), ("to_char", 1)];
/// The maximum of a multiplier, in bytes of a text or as a number.
const MAX_FACTOR: u64 = 1000;
/// The functions whose second argument is a regular expression. The engine keeps each compiled expression of a batch.
const MATCHING: [&str; 5] = ["regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"];
/// Functions that return one of their arguments, or a part of it.
const CHOOSING: [&str; 9] =
    ["array_element", "coalesce", "get_field", "greatest", "least", "lower", "nullif", "nvl", "substr"];
/// The name of the function that checks a size.
const SIZE_CHECK: &str = "size_check";
/// The number of bytes of a value of a list, or of a date, as text.
const VALUE_TEXT: u64 = 24;

/// Adds the checks to a plan whose types are resolved.
pub(in crate::query) const BOUND_SIZES: ExprRule =
    ExprRule { name: "bound_sizes", rewrite: |expr, schema| expr.transform_up(|part| bounded(part, schema)) };

fn bounded(mut expr: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    if let Expr::ScalarFunction(call) = &expr
        && ["arrow_cast", "arrow_try_cast"].contains(&call.name())
    {
        let dtype = expr.get_type(schema)?;
        if !is_simple(&dtype) {
            return Err(refused(call.name(), format!("the type {dtype} is not supported")));
        }
    }
    let name = match &mut expr {
        Expr::ScalarFunction(call) => {
            let name = call.name().to_owned();
            if let Some(&(_, at)) = MULTIPLYING.iter().find(|(multiplying, _)| *multiplying == name)
                && call.args.len() > at
            {
                let Some(factor) = factor(&call.args[at]).filter(|factor| *factor <= MAX_FACTOR) else {
                    let why = format!("its argument {} must be a literal, at most {MAX_FACTOR}", at + 1);
                    return Err(refused(&name, why));
                };
                let first = std::mem::take(&mut call.args[0]);
                call.args[0] = checked(&name, MAX_BYTES / (factor + VALUE_TEXT), first);
            }
            if MATCHING.contains(&name.as_str()) && call.args.get(1).is_some_and(|pattern| factor(pattern).is_none()) {
                return Err(refused(&name, "its argument 2 must be a literal".to_owned()));
            }
            name
        }
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => "||".to_owned(),
        Expr::BinaryExpr(binary) if is_match(binary.op) && factor(&binary.right).is_none() => {
            return Err(refused(&binary.op.to_string(), "its argument 2 must be a literal".to_owned()));
        }
        Expr::SimilarTo(like) if factor(&like.pattern).is_none() => {
            return Err(refused("SIMILAR TO", "its argument 2 must be a literal".to_owned()));
        }
        _ => return Ok(Transformed::no(expr)),
    };
    // `Query::filter` analyzes a plan again.
    let is_small = name == SIZE_CHECK
        || CHOOSING.contains(&name.as_str())
        || functions().iter().any(|function| function.name == name);
    if is_small || !is_large(&expr.get_type(schema)?) {
        return Ok(Transformed::no(expr));
    }
    Ok(Transformed::yes(checked(&name, MAX_BYTES, expr)))
}

fn is_match(op: Operator) -> bool {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    matches!(op, RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch)
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
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => true,
        dtype => dtype.is_string() || dtype.is_binary(),
    }
}

fn refused(name: &str, why: String) -> DataFusionError {
    external(Error::refused(format!("the function {name}"), why))
}

/// Returns a function that returns its argument, or fails if it is too large. `of` is the function that made the
/// argument.
fn checked(of: &str, most: u64, expr: Expr) -> Expr {
    let made_by = of.to_owned();
    let check = move |args: &[ColumnarValue]| {
        let Some(value) = args.first() else { return internal_err!("{SIZE_CHECK}: expected an argument") };
        let (what, bytes, most) = match value {
            ColumnarValue::Array(array) => {
                ("a batch of its values has", array.to_data().get_slice_memory_size()?, most)
            }
            ColumnarValue::Scalar(scalar) => {
                let constant = if scalar.data_type().is_list() { MAX_LIST_BYTES } else { MAX_CONSTANT_BYTES };
                ("its value has", scalar.to_array()?.to_data().get_slice_memory_size()?, constant.min(most))
            }
        };
        if bytes as u64 <= most {
            return Ok(value.clone());
        }
        Err(refused(&made_by, format!("{what} {bytes} bytes, expected at most {most}")))
    };
    PlanFunction::like_argument(SIZE_CHECK, format!("{of} {most}"), check).over(vec![expr])
}
