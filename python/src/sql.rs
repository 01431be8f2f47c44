//! Arguments of queries from Python, and descriptions of named queries and SQL functions.

use crate::error::OrRaise;
use crate::support::integers::{Bounded, U64};
use crate::support::interpreter::Inside;
use crate::support::results::instances;
use crate::support::structured;
use crate::support::values::{is_path, scalar, seconds};
use a2store::query::{QueryOptions, SavedQuery, ScalarValue, UserTable, functions, type_name};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_arrow::input::AnyArray;
use std::collections::HashMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

/// Keyword arguments of `Archive.sql` that limit a query.
pub(crate) struct LimitArguments {
    pub(crate) memory_limit: Option<U64>,
    pub(crate) spill_limit: Option<U64>,
    pub(crate) spill_folder: Option<PathBuf>,
    pub(crate) row_limit: Option<U64>,
    pub(crate) byte_limit: Option<U64>,
    pub(crate) time_limit: Option<f64>,
}

impl LimitArguments {
    /// Returns the arguments as keywords of the same call.
    pub(crate) fn keywords<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("memory_limit", self.memory_limit.map(Bounded::get))?;
        keywords.set_item("spill_limit", self.spill_limit.map(Bounded::get))?;
        keywords.set_item("spill_folder", &self.spill_folder)?;
        keywords.set_item("row_limit", self.row_limit.map(Bounded::get))?;
        keywords.set_item("byte_limit", self.byte_limit.map(Bounded::get))?;
        keywords.set_item("time_limit", self.time_limit)?;
        Ok(keywords)
    }

    pub(crate) fn options(self, tables: Option<&Bound<'_, PyDict>>) -> PyResult<QueryOptions> {
        let LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit } = self;
        let mut options = QueryOptions::default();
        options.memory_limit = memory_limit.map(Bounded::get);
        options.spill_limit = spill_limit.map(Bounded::get);
        options.spill_folder = spill_folder;
        options.row_limit = row_limit.map(Bounded::get);
        options.byte_limit = byte_limit.map(Bounded::get);
        options.time_limit = time_limit.map(|secs| seconds("time_limit", secs)).transpose().or_raise()?;
        for (name, table) in tables.into_iter().flatten() {
            let name: String = name.extract()?;
            let table = user_table(&name, &table)?;
            options = options.with_table(name, table);
        }
        Ok(options)
    }
}

/// Converts a user table: a Parquet file, an object with the Arrow C interface, or a NumPy structured array.
fn user_table(name: &str, table: &Bound<'_, PyAny>) -> PyResult<UserTable> {
    if is_path(table)? {
        return UserTable::from_parquet(table.extract::<PathBuf>()?).or_raise();
    }
    let (schema, batches) = batches_of(("tables", "a Parquet file's path"), name, table)?;
    UserTable::from_batches(schema, batches).or_raise()
}

/// Reads an object with the Arrow C interface, or a NumPy structured array. An error names the argument and the path
/// that it could be instead.
pub(crate) fn batches_of(
    (argument, path): (&str, &str),
    name: &str,
    table: &Bound<'_, PyAny>,
) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let _inside = Inside::new(table.py());
    let wrong = |error: PyErr| PyTypeError::new_err(format!("{argument}: {name}: expected a table: {error}"));
    if table.hasattr("__arrow_c_stream__")? || table.hasattr("__arrow_c_array__")? {
        let failed = |error: ArrowError| PyValueError::new_err(format!("{argument}: {name}: {error}"));
        let not_a_table =
            |found: &dyn Display| PyTypeError::new_err(format!("{argument}: {name}: expected a table, found {found}"));
        let reader = table.extract::<AnyArray>().and_then(AnyArray::into_reader).map_err(wrong)?;
        let field = reader.field();
        let DataType::Struct(fields) = field.data_type() else {
            return Err(not_a_table(&format!("an array of {}", type_name(field.data_type()))));
        };
        let schema = Schema::new_with_metadata(fields.clone(), field.metadata().clone());
        // pandas exports an index without a name as such a column.
        let is_pandas = schema.metadata().contains_key("pandas");
        let is_index = |name: &str| is_pandas && name.starts_with("__index_level_") && name.ends_with("__");
        let kept: Vec<usize> = (0..fields.len()).filter(|&i| !is_index(fields[i].name())).collect();
        let schema = Arc::new(schema.project(&kept).map_err(failed)?);
        let batch = |rows: Result<ArrayRef, ArrowError>| {
            let rows = rows.map_err(failed)?;
            if rows.null_count() > 0 {
                return Err(not_a_table(&"an array with nulls"));
            }
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let columns = kept.iter().map(|&i| Arc::clone(rows.as_struct().column(i))).collect();
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options).map_err(failed)
        };
        // The reader may run Python code, so this thread stays inside.
        let batches = table.py().detach(|| reader.map(batch).collect::<PyResult<Vec<_>>>())?;
        return Ok((schema, batches));
    }
    let batch = structured::batch_of(table).map_err(wrong)?;
    let Some(batch) = batch else {
        let found = table.get_type().name()?;
        let expected =
            "a table with __arrow_c_stream__ (pyarrow, polars, pandas, DuckDB, …) or a NumPy structured array";
        return Err(PyTypeError::new_err(format!("{argument}: {name}: expected {path}, or {expected}, found {found}")));
    };
    Ok((batch.schema(), vec![batch]))
}

/// Return the named queries, sorted by name.
///
/// Raises ``MemoryError`` if an allocation fails.
///
/// >>> [query.name for query in a2store.queries()][:3]
/// ['archive_summary', 'blunder_rate', 'blunders']
#[pyfunction]
pub(crate) fn queries(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    instances(py, SavedQuery::all())
}

/// Converts the values of a named query's parameters.
pub(crate) fn named_params(params: Option<&Bound<'_, PyDict>>) -> PyResult<HashMap<String, ScalarValue>> {
    let value = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = scalar(&name, &value)?;
        Ok((name, value))
    };
    params.into_iter().flatten().map(value).collect()
}

/// Return a2store's own SQL functions over boards, moves and values.
///
/// Raises ``MemoryError`` if an allocation fails.
///
/// >>> [function.signature for function in a2store.functions()][:3]
/// ['exps(board[, tile_65536_mask])', 'tile(board, cell[, tile_65536_mask])', 'max_tile(board[, tile_65536_mask])']
#[pyfunction]
#[pyo3(name = "functions")]
pub(crate) fn sql_functions(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    instances(py, functions())
}
