//! Rust's memory for NumPy arrays without a copy, through the buffer protocol.

use a2store::table::{Batch, StepTable};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// Memory of a batch or a table. Arrays made from it keep it, and so its owner, alive.
#[pyclass(frozen, name = "_Memory", module = "a2store")]
pub(crate) struct Memory(pub(crate) Owner);

pub(crate) enum Owner {
    /// Writable: the batch belongs to the caller alone.
    Batch(Batch),
    /// Read-only, like the mapping.
    Table(StepTable),
    /// Writable: copies of rows.
    Rows(Vec<u64>),
}

#[pymethods]
#[allow(unsafe_code)]
impl Memory {
    /// Fills a buffer view.
    ///
    /// # Safety
    /// Called by the interpreter alone, with a view that it may fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (pointer, len, read_only) = match &slf.get().0 {
            Owner::Batch(batch) => (batch.as_ptr(), batch.bytes().len(), 0),
            Owner::Table(table) => {
                let rows =
                    table.rows().ok_or_else(|| PyBufferError::new_err("the rows of a view are not contiguous"))?;
                (rows.as_ptr(), rows.len(), 1)
            }
            Owner::Rows(rows) => (rows.as_ptr().cast(), size_of_val(rows.as_slice()), 0),
        };
        let len = isize::try_from(len).map_err(|_| PyBufferError::new_err("memory too large"))?;
        // SAFETY: the interpreter passes a valid view. The view takes a reference to `slf`, so the memory outlives the
        // view, and the memory does not move. A batch's memory is behind an `Arc`; its pool does not refill it while
        // the clone in `slf` lives. Copied rows are behind a `Vec` that never grows and that Rust does not access
        // again. A table's memory is a mapping, declared read-only. Python writes to a batch through the allocation's
        // own pointer; Rust reads the batch only to make Arrow data, with the interpreter attached.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), pointer.cast_mut().cast(), len, read_only, flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
