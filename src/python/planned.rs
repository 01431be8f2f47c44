//! The class `a2store.Query`; `query.rs` has its methods.

use crate::query::Query;
use pyo3::prelude::*;

/// A planned query, which runs when its result is read.
#[pyclass(frozen, name = "Query", module = "a2store")]
pub(super) struct PyQuery {
    pub(super) query: Query,
}
