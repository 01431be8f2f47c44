//! Bounds on functions whose result may be much larger than their arguments.
//!
//! Thirty short expressions, each of which doubles a text, make a gigabyte. So before such a function runs, an upper
//! bound on the size of its result is computed from its arguments. The query fails if the bound exceeds
//! [`MAX_BYTES`].

use super::super::rewrites::map_expressions;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::compute::kernels::concat_elements::concat_elements_dyn;
use arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// The maximum number of bytes that one function may return for one batch of rows.
const MAX_BYTES: u64 = 64 << 20;
/// The maximum number of bytes of a result of constant arguments. The result may then be repeated in each row of a
/// batch.
const MAX_CONSTANT_BYTES: u64 = 64 << 10;
/// The maximum number of bytes of a list of constants, which the length of the statement already limits.
const MAX_LIST_BYTES: u64 = 512 << 10;
/// The maximum number of bytes of the text of a value that is not a string, such as a number.
const VALUE_TEXT: u64 = 24;

/// Functions whose result is as large as all their arguments together, so repeated calls can double it.
const SUMS: &[&str] = &[
    "concat",
    "concat_ws",
    "overlay",
    "make_array",
    "array_append",
    "array_prepend",
    "array_concat",
    "array_union",
    "named_struct",
    "struct",
    "string_to_array",
    "translate",
    "to_char",
];
/// Functions that may insert their third argument before and after each character of the first. A reference to
/// a group inserts no more than the text that it replaces.
const REPLACING: &[&str] = &["replace", "regexp_replace"];
/// Functions that insert their other arguments between the values of the first.
const JOINING: &[&str] = &["array_to_string"];
/// Functions whose second argument is the length of the result in characters.
const PADS: &[&str] = &["lpad", "rpad"];

/// Adds the bounds to a plan whose types are resolved.
#[derive(Debug)]
pub(super) struct BoundEnlarging;

impl AnalyzerRule for BoundEnlarging {
    fn name(&self) -> &'static str {
        "bound_enlarging"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|node| {
            map_expressions(node, |expr| expr.transform_up(|expr| Ok(bounded(expr))))
        })?;
        Ok(rewritten.data)
    }
}

fn bounded(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) => match Bound::of(func.name()) {
            // DataFusion may analyze a plan twice.
            Some(bound) if !func.inner().is::<Bounded>() => {
                let func = Arc::new(ScalarUDF::new_from_impl(Bounded { inner: func, bound }));
                Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args }))
            }
            _ => Transformed::no(Expr::ScalarFunction(ScalarFunction { func, args })),
        },
        Expr::BinaryExpr(binary) if binary.op == Operator::StringConcat => {
            let func = Arc::new(ScalarUDF::new_from_impl(Joined::default()));
            Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args: vec![*binary.left, *binary.right] }))
        }
        other => Transformed::no(other),
    }
}

/// The rule for the size of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bound {
    Sum,
    Replacing,
    Joining,
    Pad,
}

impl Bound {
    fn of(name: &str) -> Option<Bound> {
        [(SUMS, Bound::Sum), (REPLACING, Bound::Replacing), (JOINING, Bound::Joining), (PADS, Bound::Pad)]
            .into_iter()
            .find_map(|(names, bound)| names.contains(&name).then_some(bound))
    }

    /// Returns an upper bound on the bytes of the result.
    fn bytes(self, args: &[ColumnarValue], num_rows: usize) -> DataFusionResult<u64> {
        // A scalar is repeated in each row.
        let total = |arg: &ColumnarValue| -> DataFusionResult<u64> {
            Ok(match arg {
                ColumnarValue::Array(array) => array.to_data().get_slice_memory_size()? as u64,
                ColumnarValue::Scalar(scalar) => scalar_bytes(scalar)?.saturating_mul(num_rows as u64),
            })
        };
        let of_first = || args.first().map_or(Ok(0), total);
        let sum = args.iter().map(total).try_fold(0_u64, |sum, bytes| bytes.map(|bytes| sum.saturating_add(bytes)))?;
        match self {
            Bound::Sum => Ok(sum),
            Bound::Replacing => {
                let places = of_first()?.saturating_add(num_rows as u64);
                Ok(places.saturating_mul(args.get(2).map_or(Ok(1), longest)?.max(1)))
            }
            Bound::Joining => {
                let between: u64 = args.iter().skip(1).map(longest).sum::<DataFusionResult<u64>>()?;
                Ok(of_first()?.saturating_mul(between.saturating_add(VALUE_TEXT)))
            }
            Bound::Pad => {
                let Some(lengths) = args.get(1) else { return Ok(sum) };
                let lengths = match lengths {
                    ColumnarValue::Array(array) => cast(array, &DataType::Int64)?,
                    ColumnarValue::Scalar(scalar) => cast(&scalar.to_array()?, &DataType::Int64)?,
                };
                let lengths: &Int64Array = lengths.as_primitive::<Int64Type>();
                let longest = lengths.iter().flatten().max().unwrap_or(0).max(0).unsigned_abs();
                // A character has up to four bytes.
                Ok(sum.saturating_add(longest.saturating_mul(4).saturating_mul(num_rows as u64)))
            }
        }
    }
}

fn scalar_bytes(scalar: &ScalarValue) -> DataFusionResult<u64> {
    Ok(scalar.to_array()?.to_data().get_slice_memory_size()? as u64)
}

/// Returns the length in bytes of an argument's longest text.
fn longest(arg: &ColumnarValue) -> DataFusionResult<u64> {
    let array: ArrayRef = match arg {
        ColumnarValue::Array(array) => Arc::clone(array),
        ColumnarValue::Scalar(scalar) => scalar.to_array()?,
    };
    Ok(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().iter().flatten().map(str::len).max().unwrap_or(0),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().flatten().map(str::len).max().unwrap_or(0),
        DataType::Utf8View => array.as_string_view().iter().flatten().map(str::len).max().unwrap_or(0),
        _ => 1,
    } as u64)
}

/// Rejects a call whose result may be too large.
fn check(name: &str, bound: Bound, args: &ScalarFunctionArgs) -> DataFusionResult<()> {
    let is_constant = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
    let (what_of, num_rows, most) = match is_constant {
        true if name == "make_array" => ("its result", 1, MAX_LIST_BYTES),
        true => ("its result", 1, MAX_CONSTANT_BYTES),
        false => ("a batch of its results", args.number_rows, MAX_BYTES),
    };
    let bytes = bound.bytes(&args.args, num_rows)?;
    if bytes <= most {
        return Ok(());
    }
    let (what, why) =
        (format!("the function {name}"), format!("{what_of} may have {bytes} bytes, expected at most {most}"));
    Err(DataFusionError::External(crate::error::Error::refused(what, why).into()))
}

/// A function with a check of its arguments before each call.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    bound: Bound,
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        self.inner.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        self.inner.inner().coerce_types(arg_types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        check(self.name(), self.bound, &args)?;
        self.inner.invoke_with_args(args)
    }
}

/// The operator `a || b` for texts, with a check of its arguments.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Joined {
    signature: Signature,
}

impl Default for Joined {
    fn default() -> Self {
        Joined { signature: Signature::any(2, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &'static str {
        "||"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(arg_types.first().cloned().unwrap_or(DataType::Utf8))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        check(self.name(), Bound::Sum, &args)?;
        let all_scalar = args.args.iter().all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [left, right] = arrays.as_slice() else {
            return datafusion::common::exec_err!("||: expected 2 arguments, found {}", arrays.len());
        };
        let joined: ArrayRef = concat_elements_dyn(left.as_ref(), right.as_ref())?;
        if all_scalar {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&joined, 0)?));
        }
        Ok(ColumnarValue::Array(joined))
    }
}
