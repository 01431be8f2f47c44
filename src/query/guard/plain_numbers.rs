//! Numbers of texts as plain columns.
//!
//! For a text column with a dictionary, such as `phase`, functions such as `length` return their numbers with a
//! dictionary too. Operators and other functions do not take such numbers: `-length(phase)`, `abs(length(phase))` and
//! `length(phase) * NULL` were errors.

use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;

/// The functions that return numbers with a dictionary.
const FUNCTIONS: &[&str] = &["ascii", "bit_length", "character_length", "octet_length"];

/// Returns the function, so that its numbers are a plain column.
pub(super) fn with_plain_numbers(function: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    match FUNCTIONS.contains(&function.name()) {
        true => Arc::new(ScalarUDF::new_from_impl(PlainNumbers(function))),
        false => function,
    }
}

/// A function whose result has no dictionary.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PlainNumbers(Arc<ScalarUDF>);

impl ScalarUDFImpl for PlainNumbers {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.0.return_type(arg_types)? {
            DataType::Dictionary(_, value) => *value,
            plain => plain,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Ok(match self.0.invoke_with_args(args)? {
            ColumnarValue::Array(array) => match array.data_type() {
                DataType::Dictionary(_, value) => ColumnarValue::Array(cast(&array, value)?),
                _ => ColumnarValue::Array(array),
            },
            ColumnarValue::Scalar(ScalarValue::Dictionary(_, value)) => ColumnarValue::Scalar(*value),
            scalar @ ColumnarValue::Scalar(_) => scalar,
        })
    }
}
