//! Arrow data for consumers of the PyCapsule interface.

use a2store::query::type_name;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchReader, StructArray};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::util::display::FormatOptions;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};
use pyo3_arrow::PyField;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::{ArrayIterator, to_array_pycapsules, to_schema_pycapsule, to_stream_pycapsule};
use std::sync::Arc;

/// An Arrow array for ``pyarrow.array`` and any other consumer of ``__arrow_c_array__``.
///
/// >>> rows = table.rows_array()
/// >>> len(rows), pa.array(rows).type
/// (29320, FixedSizeBinaryType(fixed_size_binary[32]))
#[pyclass(frozen, module = "a2store")]
pub(crate) struct ArrowArray {
    pub(crate) array: ArrayRef,
}

#[pymethods]
impl ArrowArray {
    fn __len__(&self) -> usize {
        self.array.len()
    }

    /// Return the array in the capsules ``arrow_schema`` and ``arrow_array``.
    ///
    /// - ``requested_schema``: an ``arrow_schema`` capsule; the values are cast to its type if it differs.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        let field = Field::new("", self.array.data_type().clone(), self.array.is_nullable());
        array_capsules(py, field, &self.array, requested_schema)
    }

    fn __repr__(&self) -> String {
        format!("ArrowArray({} × {})", self.array.len(), type_name(self.array.data_type()))
    }
}

/// An Arrow schema for ``pyarrow.schema`` and any other consumer of ``__arrow_c_schema__``.
///
/// ``len(schema)`` is the number of columns.
///
/// >>> schema = archive.schema("steps")
/// >>> schema.names[:3], len(schema)
/// (['run_id', 'step_index', 'board'], 19)
/// >>> pa.schema(schema).field("board").type
/// DataType(uint64)
#[pyclass(frozen, module = "a2store")]
pub(crate) struct ArrowSchema {
    pub(crate) schema: SchemaRef,
}

#[pymethods]
impl ArrowSchema {
    /// The names of the columns, in order.
    #[getter]
    fn names(&self) -> Vec<&str> {
        self.schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn __len__(&self) -> usize {
        self.schema.fields().len()
    }

    /// Return the schema as an ``arrow_schema`` capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.schema.as_ref())
    }

    fn __repr__(&self) -> String {
        format!("ArrowSchema({})", columns_and_types(&self.schema))
    }
}

/// Returns the columns of a schema with their types, for people.
pub(crate) fn columns_and_types(schema: &Schema) -> String {
    let column = |field: &Arc<Field>| format!("{}: {}", field.name(), type_name(field.data_type()));
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

/// An Arrow record batch for ``pyarrow.record_batch`` and any other consumer of ``__arrow_c_array__``.
///
/// ``len(batch)`` is the number of rows.
///
/// >>> batch = next(iter(archive.sql("SELECT run_id, max_score FROM runs")))
/// >>> batch
/// ArrowBatch(20 rows: run_id: uint32, max_score: int64)
/// >>> pa.record_batch(batch)["max_score"][0]
/// <pyarrow.Int64Scalar: 11308>
#[pyclass(frozen, module = "a2store")]
pub(crate) struct ArrowBatch {
    pub(crate) batch: RecordBatch,
}

#[pymethods]
impl ArrowBatch {
    /// The schema of the batch.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema { schema: self.batch.schema() }
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Return the batch's schema as an ``arrow_schema`` capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.batch.schema().as_ref())
    }

    /// Return the batch as a struct of its columns, in the capsules ``arrow_schema`` and ``arrow_array``.
    ///
    /// - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyTuple>> {
        batch_capsules(py, self.batch.clone(), requested_schema)
    }

    fn __repr__(&self) -> String {
        format!("ArrowBatch({} rows: {})", self.batch.num_rows(), columns_and_types(&self.batch.schema()))
    }
}

/// Returns a reader as a stream capsule.
pub(crate) fn stream_capsule<'py>(
    py: Python<'py>,
    reader: impl RecordBatchReader + Send + 'static,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyArrowResult<Bound<'py, PyCapsule>> {
    let field = Field::new_struct("", reader.schema().fields().clone(), false);
    let field = field_to_export(field, requested_schema)?;
    let dtype = field.data_type().clone();
    let batches = reader.map(move |batch| cast_with_options(&StructArray::from(batch?), &dtype, &CHECKED));
    to_stream_pycapsule(py, Box::new(ArrayIterator::new(batches, field)), None)
}

/// Returns a record batch as the pair of capsules of its struct.
pub(crate) fn batch_capsules<'py>(
    py: Python<'py>,
    batch: RecordBatch,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyArrowResult<Bound<'py, PyTuple>> {
    let field = Field::new_struct("", batch.schema().fields().clone(), false);
    array_capsules(py, field, &StructArray::from(batch), requested_schema)
}

fn array_capsules<'py>(
    py: Python<'py>,
    field: Field,
    array: &dyn Array,
    requested_schema: Option<Bound<'py, PyCapsule>>,
) -> PyArrowResult<Bound<'py, PyTuple>> {
    let field = field_to_export(field, requested_schema)?;
    let array = cast_with_options(array, field.data_type(), &CHECKED);
    let array = array.map_err(|error| PyValueError::new_err(error.to_string()))?;
    to_array_pycapsules(py, field, &array, None)
}

/// A value out of the range of the requested type is an error. By default, Arrow's cast makes it null.
const CHECKED: CastOptions<'_> =
    CastOptions { safe: false, format_options: FormatOptions::new().with_display_error(true) };

/// Returns the requested field if values can be cast to its type, and otherwise the field of the array.
fn field_to_export(field: Field, requested_schema: Option<Bound<'_, PyCapsule>>) -> PyResult<Arc<Field>> {
    let Some(capsule) = requested_schema else { return Ok(field.into()) };
    let requested = PyField::from_arrow_pycapsule(&capsule)?.into_inner();
    Ok(if can_cast_types(field.data_type(), requested.data_type()) { requested } else { field.into() })
}
