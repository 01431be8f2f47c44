//! NumPy structured arrays as record batches.

use a2store::table::ElementType;
use arrow::array::{ArrayData, ArrayRef, FixedSizeListArray, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::Field;
use arrow::error::ArrowError;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Returns a structured array with one dimension as a batch; `None` for any other object. A field of shape (k,) becomes
/// a list of k values.
pub(crate) fn batch_of(array: &Bound<'_, PyAny>) -> PyResult<Option<RecordBatch>> {
    let py = array.py();
    let numpy = py.import("numpy")?;
    if !array.is_instance(&numpy.getattr("ndarray")?)? {
        return Ok(None);
    }
    let (names, ndim): (Option<Vec<String>>, usize) =
        (array.getattr("dtype")?.getattr("names")?.extract()?, array.getattr("ndim")?.extract()?);
    let Some(names) = names.filter(|_| ndim == 1) else { return Ok(None) };
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let values = numpy.call_method1("ascontiguousarray", (array.get_item(&name)?,))?;
        let found: String = values.getattr("dtype")?.getattr("str")?.extract()?;
        let shape: Vec<usize> = values.getattr("shape")?.extract()?;
        let dtype = ElementType::of_numpy(&found).filter(|dtype| *dtype != ElementType::Bool && shape.len() < 3);
        let Some(dtype) = dtype else {
            let found = format!("{found} of shape {:?}", shape.get(1..).unwrap_or_default());
            return Err(PyTypeError::new_err(format!("{name}: expected little-endian numbers, found {found}")));
        };
        let bytes: Vec<u8> = values.call_method0("tobytes")?.extract()?;
        let data = ArrayData::builder(dtype.arrow()).len(shape.iter().product()).add_buffer(Buffer::from(bytes));
        let wrong = |error: ArrowError| PyTypeError::new_err(format!("{name}: {error}"));
        // A buffer of no bytes is not aligned.
        let data = data.align_buffers(true).build().map_err(wrong)?;
        let column: ArrayRef = match shape.get(1) {
            None => make_array(data),
            Some(&k) => {
                let item = Arc::new(Field::new("item", dtype.arrow(), false));
                Arc::new(FixedSizeListArray::try_new(item, k as i32, make_array(data), None).map_err(wrong)?)
            }
        };
        columns.push((name, column));
    }
    RecordBatch::try_from_iter(columns).map(Some).map_err(|error| PyTypeError::new_err(error.to_string()))
}
