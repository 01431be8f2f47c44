//! The class `a2store.Query`, with the call that a pickled query repeats. `query.rs` has its methods.

use a2store::query::Query;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The number of rows that a notebook shows.
pub(crate) const NOTEBOOK_ROWS: usize = 10;

/// A planned query over one version of an archive.
///
/// Each read of the result runs the query again. Any Arrow stream consumer can read a query (``__arrow_c_stream__``).
/// It receives batches as they are computed, so the result need not fit in memory. If the query fails while it runs,
/// the consumer raises its own exception.
///
/// A query that only filters, selects and computes on rows of one table keeps the table's order; ``steps`` is ordered
/// by ``(run_id, step_index)``. Other queries follow their ORDER BY, or have no defined order.
///
/// A pickled query has its text, parameters, limits and tables, and a handle of the archive at its version.
///
/// >>> query = archive.sql("SELECT board, move FROM steps WHERE phase = 'late'")
/// >>> pa.table(query).num_rows
/// 1950
/// >>> import polars
/// >>> polars.DataFrame(query).shape
/// (1950, 2)
/// >>> import duckdb
/// >>> duckdb.sql("SELECT move, count(*) FROM query GROUP BY move ORDER BY move").fetchall()
/// [(0, 308), (1, 704), (2, 227), (3, 711)]
#[pyclass(frozen, name = "Query", module = "a2store")]
pub(crate) struct PyQuery {
    pub(crate) query: Query,
    /// The call that returned the query, a `functools.partial`; `None` for queries that the package makes for itself.
    pub(crate) call: Option<Py<PyAny>>,
}

impl PyQuery {
    /// Returns a query that pickles as the call of `method` of `owner`.
    pub(crate) fn called<'py>(
        query: Query,
        owner: &Bound<'py, PyAny>,
        method: &str,
        args: impl IntoPyObject<'py, Target = PyTuple, Output = Bound<'py, PyTuple>, Error = PyErr>,
        keywords: &Bound<'py, PyDict>,
    ) -> PyResult<PyQuery> {
        let py = owner.py();
        let mut whole = vec![owner.getattr(method)?];
        whole.extend(args.into_pyobject(py)?);
        let call = py.import("functools")?.getattr("partial")?.call(PyTuple::new(py, whole)?, Some(keywords))?;
        Ok(PyQuery { query, call: Some(call.unbind()) })
    }
}
