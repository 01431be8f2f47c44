//! Casts of Arrow arrays to types that may not hold every value.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::error::ArrowError;
use std::sync::Arc;

/// Casts an array. A value that does not fit is null if `safe`, and an error otherwise. So is a finite float64
/// beyond float32, which Arrow's cast would make infinite.
pub(crate) fn checked_cast(array: &ArrayRef, to: &DataType, safe: bool) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe, ..CastOptions::default() };
    let (DataType::Float32, Some(wide)) = (to, array.as_primitive_opt::<Float64Type>()) else {
        return cast_with_options(array, to, &options);
    };
    let fits = |value: f64| Some(value as f32).filter(|narrow| narrow.is_finite() || !value.is_finite());
    let narrow = wide.unary_opt::<_, Float32Type>(fits);
    match (0..wide.len()).find(|&row| narrow.is_null(row) && wide.is_valid(row)) {
        Some(row) if !safe => Err(ArrowError::CastError(format!("Can't cast value {:?} to {to}", wide.value(row)))),
        _ => Ok(Arc::new(narrow)),
    }
}
