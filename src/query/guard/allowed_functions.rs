//! The functions of DataFusion that statements may call, and the reasons for excluding others.
//!
//! This is an allowlist, so functions that a new version of DataFusion adds are excluded.

use super::super::annotation_view::PER_MOVE;
use super::super::functions::functions;
use super::plain_numbers::with_plain_numbers;
use crate::error::Error;
use arrow::datatypes::DataType;
use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, ScalarUDF};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// DataFusion's scalar functions that statements may call. Their results have at most a few bytes per byte of
/// their arguments, or `bounded_functions.rs` bounds them.
const ALLOWED: &[&str] = &[
    // core
    "arrow_cast",
    "arrow_try_cast",
    "arrow_typeof",
    "coalesce",
    "get_field",
    "greatest",
    "least",
    "named_struct",
    "nullif",
    "nvl",
    "nvl2",
    "overlay",
    "struct",
    // numbers
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "cot",
    "degrees",
    "exp",
    "factorial",
    "floor",
    "gcd",
    "isnan",
    "iszero",
    "lcm",
    "ln",
    "log",
    "log10",
    "log2",
    "nanvl",
    "pi",
    "power",
    "radians",
    "random",
    "round",
    "signum",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    // dates and times
    "current_date",
    "current_time",
    "date_bin",
    "date_part",
    "date_trunc",
    "from_unixtime",
    "make_date",
    "make_time",
    "now",
    "to_char",
    "to_date",
    "to_local_time",
    "to_time",
    "to_timestamp",
    "to_timestamp_micros",
    "to_timestamp_millis",
    "to_timestamp_nanos",
    "to_timestamp_seconds",
    "to_unixtime",
    // text
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "chr",
    "concat",
    "concat_ws",
    "contains",
    "ends_with",
    "find_in_set",
    "initcap",
    "left",
    "lower",
    "lpad",
    "ltrim",
    "octet_length",
    "regexp_count",
    "regexp_instr",
    "regexp_like",
    "regexp_match",
    "regexp_replace",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "starts_with",
    "strpos",
    "substr",
    "substr_index",
    "to_hex",
    "translate",
    "upper",
    // lists
    "array_any_value",
    "array_append",
    "array_avg",
    "array_concat",
    "array_dims",
    "array_distinct",
    "array_element",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_length",
    "array_max",
    "array_min",
    "array_ndims",
    "array_pop_back",
    "array_pop_front",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_product",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_reverse",
    "array_slice",
    "array_sort",
    "array_sum",
    "array_to_string",
    "array_union",
    "cardinality",
    "empty",
    "flatten",
    "inner_product",
    "cosine_distance",
    "array_distance",
    "make_array",
    "string_to_array",
];

/// Functions that other databases or DataFusion have, with the reason why they are excluded.
const EXCLUDED: &[(&[&str], &str)] = &[
    (
        &["repeat", "array_repeat", "list_repeat", "array_resize", "list_resize", "range", "generate_series", "space"],
        "its result may be much larger than its arguments",
    ),
    (
        &[
            "version",
            "input_file_name",
            "file_row_index",
            "arrow_metadata",
            "current_user",
            "current_database",
            "current_schema",
            "current_setting",
            "pg_read_file",
            "getenv",
            "inet_server_addr",
        ],
        "a query cannot read about the files and the machine behind the tables",
    ),
    (
        &[
            "read_csv",
            "read_csv_auto",
            "read_parquet",
            "read_json",
            "read_text",
            "read_blob",
            "parquet_scan",
            "parquet_metadata",
            "glob",
            "load_extension",
            "query_table",
        ],
        "a query only reads the given tables",
    ),
    (&["cast_to_type", "try_cast_to_type"], "it makes types of any width: use CAST"),
    (&["uuid", "levenshtein"], "it is not supported"),
    (&["mode"], "it is not supported: group by the value, and ORDER BY count(*) DESC LIMIT 1"),
    (&["sleep", "pg_sleep", "benchmark"], "a query cannot wait"),
];

/// Returns the allowed scalar functions.
pub(super) fn scalar() -> Vec<Arc<ScalarUDF>> {
    let allowed = |function: &Arc<ScalarUDF>| ALLOWED.contains(&function.name());
    let functions = SessionStateDefaults::default_scalar_functions().into_iter().filter(allowed);
    functions.map(with_plain_numbers).collect()
}

/// Returns why a function of this name is excluded.
pub(super) fn why_excluded(name: &str) -> Option<&'static str> {
    EXCLUDED.iter().find(|(names, _)| names.contains(&name)).map(|(_, why)| *why)
}

/// Returns the error for a forbidden expression of a plan. Operators and syntax become functions too, without a
/// lookup in the registry.
pub(super) fn rejection_of(expr: &Expr) -> Option<Error> {
    let name = match expr {
        Expr::ScalarFunction(function) => {
            let name = function.func.name();
            if ["arrow_cast", "arrow_try_cast"].contains(&name) && !has_narrow_type(&function.args) {
                let why = "its type must be a literal, and not a union, run-end encoding or fixed-size type";
                return Some(Error::refused(format!("the function {name}"), why));
            }
            name
        }
        Expr::Cast(Cast { field, .. }) | Expr::TryCast(TryCast { field, .. }) if is_wide(field.data_type()) => {
            let what = format!("the type {}", field.data_type());
            return Some(Error::refused(what, format!("expected at most {MAX_FIXED} values in a fixed-size list")));
        }
        Expr::AggregateFunction(function) if function.func.name().starts_with("approx_percentile_cont") => {
            let centroids = function.params.args.get(2..).unwrap_or_default();
            let is_large = |expr: &Expr| {
                !matches!(expr, Expr::Literal(value, _)
                if value.cast_to(&DataType::Float64).is_ok_and(|value| matches!(value, ScalarValue::Float64(Some(n)) if n <= 10_000.0)))
            };
            if !centroids.iter().any(is_large) {
                return None;
            }
            let what = format!("the function {}", function.func.name());
            return Some(Error::refused(what, "its centroids must be a literal number, at most 10,000"));
        }
        Expr::WindowFunction(window) if ["array_agg", "string_agg"].contains(&window.fun.name()) => {
            let what = format!("the function {} over a window", window.fun.name());
            return Some(Error::refused(what, "each row would hold all rows before it"));
        }
        Expr::HigherOrderFunction(function) => function.func.name(),
        Expr::ScalarVariable(_, names) => {
            let what = format!("the variable {}", names.join("."));
            return Some(Error::refused(what, "a query cannot read the engine's settings"));
        }
        _ => return None,
    };
    let is_board_function = || functions().iter().any(|function| function.name == name);
    if ALLOWED.contains(&name) || name == PER_MOVE || is_board_function() {
        return None;
    }
    Some(Error::refused(format!("the function {name}"), why_excluded(name).unwrap_or("it is not supported")))
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

/// Returns whether the target type of `arrow_cast` is a literal of variable size that can hold nulls.
fn has_narrow_type(args: &[Expr]) -> bool {
    match args {
        [_, Expr::Literal(ScalarValue::Utf8(Some(name)), _)] => {
            !["FixedSize", "Union", "RunEndEncoded"].iter().any(|kind| name.contains(kind))
        }
        _ => false,
    }
}
