//! NumPy structured arrays as record batches.

use a2store::table::ElementType;
use arrow::array::{ArrayData, ArrayRef, FixedSizeListArray, RecordBatch, make_array};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Schema};
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
    let (mut fields, mut columns) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
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
        let data = data.build().map_err(|error| PyTypeError::new_err(format!("{name}: {error}")))?;
        let column: ArrayRef = match shape.get(1) {
            None => make_array(data),
            Some(&k) => {
                let item = Arc::new(Field::new("item", dtype.arrow(), false));
                let list = FixedSizeListArray::try_new(item, k as i32, make_array(data), None);
                Arc::new(list.map_err(|error| PyTypeError::new_err(format!("{name}: {error}")))?)
            }
        };
        fields.push(Field::new(name, column.data_type().clone(), false));
        columns.push(column);
    }
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
    batch.map(Some).map_err(|error| PyTypeError::new_err(error.to_string()))
}
