//! The class `a2store.Query`; `query.rs` has its methods.

use crate::query::Query;
use pyo3::prelude::*;

/// A planned query over one version of an archive.
///
/// Each read of the result runs the query again. Any Arrow stream consumer can read a query (``__arrow_c_stream__``).
/// It receives batches as they are computed, so the result need not fit in memory. If the query fails while it runs,
/// the consumer raises its own exception.
///
/// A query that only filters, selects and computes on rows of one table keeps the table's order; ``steps`` is ordered
/// by ``(run_id, step_index)``. Other queries follow their ORDER BY, or have no defined order.
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
pub(super) struct PyQuery {
    pub(super) query: Query,
}
