//! NumPy arrays: their creation from Rust, and their values for Rust.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyType};

/// Calls `numpy.ndarray(shape, dtype, buffer, offset)`.
pub(crate) fn array<'py>(
    buffer: &Bound<'py, PyAny>,
    dtype: impl IntoPyObject<'py>,
    offset: usize,
    shape: (usize, Option<usize>),
) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let ndarray = NDARRAY.import(buffer.py(), "numpy", "ndarray")?;
    match shape {
        (rows, Some(columns)) => ndarray.call1(((rows, columns), dtype, buffer, offset)),
        (rows, None) => ndarray.call1(((rows,), dtype, buffer, offset)),
    }
}

/// Returns a new array with a copy of the values.
pub(crate) fn copied_array<'py, T: bytemuck::NoUninit>(
    py: Python<'py>,
    values: &[T],
    dtype: &str,
    columns: Option<usize>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new(py, bytemuck::cast_slice(values));
    array(bytes.as_any(), dtype, 0, (values.len() / columns.unwrap_or(1), columns))
}

/// Converts an array, a PyTorch tensor on any device, or any array-like to a NumPy array.
pub(crate) fn as_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if value.is_exact_instance(NDARRAY.import(py, "numpy", "ndarray")?) {
        return Ok(value.clone());
    }
    if value.hasattr("detach")? && value.hasattr("is_floating_point")? {
        let tensor = value.call_method0("detach")?.call_method0("cpu")?;
        // NumPy does not support all floating-point types of PyTorch.
        let is_float = tensor.call_method0("is_floating_point")?.is_truthy()?;
        let tensor = if is_float { tensor.call_method0("float")? } else { tensor };
        return tensor.call_method0("numpy");
    }
    py.import("numpy")?.call_method1("asarray", (value,))
}

/// Returns the kind of an array's dtype, such as `"i"`, and its shape.
pub(crate) fn type_and_shape(array: &Bound<'_, PyAny>) -> PyResult<(String, Vec<usize>)> {
    Ok((array.getattr("dtype")?.getattr("kind")?.extract()?, array.getattr("shape")?.extract()?))
}

/// Returns the values of an array, converted to a type that NumPy and Rust share.
pub(crate) fn values<T: Element>(array: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Vec<T>> {
    let array = contiguous(array, Some(dtype))?;
    PyBuffer::<T>::get(&array)?.to_vec(array.py())
}

/// Returns the memory of a C-contiguous array, as [`strided_buffer`] does.
pub(crate) fn buffer<T: Element>(array: &Bound<'_, PyAny>, shape: &[Option<usize>]) -> Option<PyBuffer<T>> {
    // An array with stride 0 can have more elements than memory can hold. For its copy, NumPy raises `MemoryError`;
    // `PyBuffer::to_vec` would abort the process.
    strided_buffer(array, shape).filter(|buffer| buffer.is_c_contiguous())
}

/// Returns the memory of an array with this type, in the machine's order of bytes, and with this shape.
pub(crate) fn strided_buffer<T: Element>(array: &Bound<'_, PyAny>, shape: &[Option<usize>]) -> Option<PyBuffer<T>> {
    let buffer = PyBuffer::<T>::get(array).ok()?;
    // Pyo3 does not reject big-endian buffers.
    let is_native = !buffer.format().to_bytes().starts_with(b">");
    let fits = buffer.dimensions() == shape.len()
        && buffer.shape().iter().zip(shape).all(|(&found, expected)| expected.is_none_or(|expected| found == expected));
    (is_native && fits).then_some(buffer)
}

/// Calls `numpy.ascontiguousarray(array, dtype)`.
pub(crate) fn contiguous<'py>(array: &Bound<'py, PyAny>, dtype: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function = FUNCTION.import(array.py(), "numpy", "ascontiguousarray")?;
    function.call1((array, dtype))
}
