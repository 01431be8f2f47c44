//! Arguments of queries from Python, and descriptions of named queries and SQL functions.

use super::integers::optional_at_least;
use super::structured;
use super::values::{is_path, scalar};
use crate::error::Error;
use crate::query::{
    Function, QueryOptions, SavedColumn, SavedParameter, SavedQuery, ScalarValue, UserTable, functions,
};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use pyo3_arrow::{PyRecordBatch, PyRecordBatchReader};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Keyword arguments of `Archive.sql` that limit a query.
#[derive(Default)]
pub(super) struct LimitArguments {
    pub(super) memory_limit: Option<i128>,
    pub(super) spill_limit: Option<i128>,
    pub(super) spill_folder: Option<PathBuf>,
    pub(super) row_limit: Option<i128>,
    pub(super) byte_limit: Option<i128>,
    pub(super) time_limit: Option<f64>,
}

impl LimitArguments {
    /// Returns the arguments as keywords of the same call.
    pub(super) fn keywords<'py>(
        &self,
        py: Python<'py>,
        tables: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let keywords = PyDict::new(py);
        keywords.set_item("tables", tables.map(PyDictMethods::copy).transpose()?)?;
        keywords.set_item("memory_limit", self.memory_limit)?;
        keywords.set_item("spill_limit", self.spill_limit)?;
        keywords.set_item("spill_folder", &self.spill_folder)?;
        keywords.set_item("row_limit", self.row_limit)?;
        keywords.set_item("byte_limit", self.byte_limit)?;
        keywords.set_item("time_limit", self.time_limit)?;
        Ok(keywords)
    }

    pub(super) fn options(self, tables: Option<&Bound<'_, PyDict>>) -> PyResult<QueryOptions> {
        let LimitArguments { memory_limit, spill_limit, spill_folder, row_limit, byte_limit, time_limit } = self;
        let time_limit = match time_limit {
            Some(secs) => Some(
                Duration::try_from_secs_f64(secs)
                    .map_err(|_| PyErr::from(Error::argument("time_limit", "seconds, 0 or more", secs)))?,
            ),
            None => None,
        };
        let mut options = QueryOptions {
            tables: Vec::new(),
            memory_limit: optional_at_least(0, "memory_limit", memory_limit)?,
            spill_limit: optional_at_least(0, "spill_limit", spill_limit)?,
            spill_folder,
            row_limit: optional_at_least(0, "row_limit", row_limit)?,
            byte_limit: optional_at_least(0, "byte_limit", byte_limit)?,
            time_limit,
        };
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
        return Ok(UserTable::from_parquet(table.extract::<PathBuf>()?)?);
    }
    let (schema, batches) = batches_of(("tables", "a Parquet file's path"), name, table)?;
    Ok(UserTable::from_batches(schema, batches)?)
}

/// Reads an object with the Arrow C interface, or a NumPy structured array. An error names the argument and the path that it could be instead.
pub(super) fn batches_of(
    (argument, path): (&str, &str),
    name: &str,
    table: &Bound<'_, PyAny>,
) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let (schema, batches) = stream_of((argument, path), name, table)?;
    let batches = table.py().detach(|| batches.collect::<Result<Vec<_>, _>>());
    Ok((schema, batches.map_err(|error| PyValueError::new_err(format!("{argument}: {name}: {error}")))?))
}

/// The batches of a table, read one by one.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

/// Opens an object as [`batches_of`] reads it.
pub(super) fn stream_of(
    (argument, path): (&str, &str),
    name: &str,
    table: &Bound<'_, PyAny>,
) -> PyResult<(SchemaRef, Batches)> {
    let one = |batch: RecordBatch| (batch.schema(), Box::new(std::iter::once(Ok(batch))) as Batches);
    if table.hasattr("__arrow_c_stream__")? {
        let reader = table.extract::<PyRecordBatchReader>().and_then(PyRecordBatchReader::into_reader);
        let reader = reader.map_err(|error| wrong_table(argument, name, &error))?;
        Ok((reader.schema(), Box::new(reader)))
    } else if table.hasattr("__arrow_c_array__")? {
        let batch = table.extract::<PyRecordBatch>().map_err(|error| wrong_table(argument, name, &error))?.into_inner();
        Ok(one(batch))
    } else if let Some(batch) = structured::batch_of(table).map_err(|error| wrong_table(argument, name, &error))? {
        Ok(one(batch))
    } else {
        let found = table.get_type().name()?;
        let expected =
            "a table with __arrow_c_stream__ (pyarrow, polars, pandas, DuckDB, …) or a NumPy structured array";
        Err(PyTypeError::new_err(format!("{argument}: {name}: expected {path}, or {expected}, found {found}")))
    }
}

fn wrong_table(argument: &str, name: &str, error: &PyErr) -> PyErr {
    PyTypeError::new_err(format!("{argument}: {name}: expected a table: {error}"))
}

/// A named query: an SQL file whose header declares its parameters and columns. ``Archive.query`` runs it.
///
/// >>> query = next(query for query in a2store.queries() if query.name == "high_score")
/// >>> query
/// SavedQuery(high_score(min_score, engine, phase))
/// >>> query.parameters[0].default
/// 20000
#[pyclass(frozen, get_all, name = "SavedQuery", module = "a2store")]
pub(super) struct PySavedQuery {
    /// The name of the file without ``.sql``.
    name: String,
    /// The purpose of the query, as its header states it.
    purpose: String,
    /// The parameters of the query.
    parameters: Py<PyTuple>,
    /// The columns of the result.
    columns: Py<PyTuple>,
    /// The text of the whole file.
    sql: String,
}

/// A parameter of a named query.
///
/// >>> query = next(query for query in a2store.queries() if query.name == "high_score")
/// >>> parameter = query.parameters[0]
/// >>> parameter.name, parameter.type, parameter.required
/// ('min_score', 'int64', False)
#[pyclass(frozen, get_all, name = "SavedParameter", module = "a2store")]
pub(super) struct PySavedParameter {
    /// The name of the parameter.
    name: String,
    /// The type of the parameter. A value of another type is rejected.
    #[pyo3(name = "type")]
    dtype: &'static str,
    /// The default value; see ``required``.
    default: Py<PyAny>,
    /// Whether the parameter has no default.
    required: bool,
    /// The description of the parameter.
    doc: String,
}

/// A column of a named query.
///
/// >>> query = next(query for query in a2store.queries() if query.name == "score_histogram")
/// >>> [(column.name, column.type) for column in query.columns]
/// [('engine', 'string'), ('min_score', 'int64'), ('num_runs', 'int64'), ('share', 'float64')]
#[pyclass(frozen, get_all, name = "SavedColumn", module = "a2store")]
pub(super) struct PySavedColumn {
    /// The name of the column.
    name: String,
    /// The Arrow type of the column. Dictionaries of strings are ``"string"`` too.
    #[pyo3(name = "type")]
    dtype: String,
    /// The description of the column.
    doc: String,
}

impl PySavedQuery {
    fn new(py: Python<'_>, query: SavedQuery) -> PyResult<PySavedQuery> {
        let SavedQuery { name, purpose, parameters, columns, sql, .. } = query;
        let parameter = |parameter: SavedParameter| {
            let SavedParameter { name, dtype, default, doc, .. } = parameter;
            let required = default.is_none();
            Bound::new(py, PySavedParameter { name, dtype, default: value(py, default)?, required, doc })
        };
        let column = |column: SavedColumn| {
            let SavedColumn { name, dtype, doc, .. } = column;
            Bound::new(py, PySavedColumn { name, dtype, doc })
        };
        let parameters = parameters.into_iter().map(parameter).collect::<PyResult<Vec<_>>>()?;
        let columns = columns.into_iter().map(column).collect::<PyResult<Vec<_>>>()?;
        let (parameters, columns) = (PyTuple::new(py, parameters)?.unbind(), PyTuple::new(py, columns)?.unbind());
        Ok(PySavedQuery { name, purpose, parameters, columns, sql })
    }
}

fn value(py: Python<'_>, value: Option<ScalarValue>) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Some(ScalarValue::Boolean(Some(value))) => value.into_pyobject(py)?.to_owned().into_any().unbind(),
        Some(ScalarValue::Int64(Some(value))) => value.into_pyobject(py)?.into_any().unbind(),
        Some(ScalarValue::UInt64(Some(value))) => value.into_pyobject(py)?.into_any().unbind(),
        Some(ScalarValue::Float64(Some(value))) => value.into_pyobject(py)?.into_any().unbind(),
        Some(ScalarValue::Utf8(Some(value))) => value.into_pyobject(py)?.into_any().unbind(),
        _ => py.None(),
    })
}

#[pymethods]
impl PySavedQuery {
    fn __repr__(&self, py: Python<'_>) -> String {
        let parameters = self.parameters.bind(py).iter();
        let name = |parameter: Bound<'_, PyAny>| {
            parameter
                .cast::<PySavedParameter>()
                .map_or_else(|_| String::new(), |parameter| parameter.get().name.clone())
        };
        format!("SavedQuery({}({}))", self.name, parameters.map(name).collect::<Vec<_>>().join(", "))
    }
}

#[pymethods]
impl PySavedParameter {
    fn __repr__(&self) -> String {
        format!("SavedParameter({}: {})", self.name, self.dtype)
    }
}

#[pymethods]
impl PySavedColumn {
    fn __repr__(&self) -> String {
        format!("SavedColumn({}: {})", self.name, self.dtype)
    }
}

/// Return the built-in named queries, or those in the ``.sql`` files of a folder, sorted by name.
///
/// - ``folder``: a folder of your own ``.sql`` files; ``None`` = the built-in queries.
///
/// Raises ``DecodeError``, with file and line, for a file with an invalid header, and ``OSError``.
///
/// >>> [query.name for query in a2store.queries()][:3]
/// ['archive_summary', 'blunder_rate', 'blunders']
#[pyfunction]
#[pyo3(signature = (folder=None))]
pub(super) fn queries(py: Python<'_>, folder: Option<PathBuf>) -> PyResult<Vec<PySavedQuery>> {
    let queries = match folder {
        Some(folder) => SavedQuery::in_folder(folder)?,
        None => SavedQuery::shipped()?,
    };
    queries.into_iter().map(|query| PySavedQuery::new(py, query)).collect()
}

/// Converts the values of a named query's parameters.
pub(super) fn named_params(params: Option<&Bound<'_, PyDict>>) -> PyResult<HashMap<String, ScalarValue>> {
    let value = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let value = scalar(&name, &value)?;
        Ok((name, value))
    };
    params.into_iter().flatten().map(value).collect()
}

/// An SQL function over boards, moves or values of moves.
///
/// >>> function = next(function for function in a2store.functions() if function.name == "tile")
/// >>> function.signature, function.returns, function.example
/// ('tile(board, cell[, tile_65536_mask])', 'UInt32', ('tile(1306927023419491499, 15)', '2048'))
#[pyclass(frozen, get_all, name = "SqlFunction", module = "a2store")]
pub(super) struct PySqlFunction {
    /// The name of the function.
    name: &'static str,
    /// The form of a call: ``"tile(board, cell[, tile_65536_mask])"``. Brackets enclose optional arguments.
    signature: String,
    /// The Arrow type of the result.
    returns: String,
    /// The description of the result, with its range.
    doc: &'static str,
    /// A call with literals, and its value as text.
    example: (&'static str, &'static str),
}

impl From<&Function> for PySqlFunction {
    fn from(function: &Function) -> PySqlFunction {
        let (signature, returns) = (function.signature(), function.return_type().to_string());
        PySqlFunction { name: function.name, signature, returns, doc: function.doc, example: function.example }
    }
}

#[pymethods]
impl PySqlFunction {
    fn __repr__(&self) -> String {
        format!("SqlFunction({} -> {})", self.signature, self.returns)
    }
}

/// Return a2store's own SQL functions over boards, moves and values.
///
/// >>> [function.signature for function in a2store.functions()][:3]
/// ['exps(board[, tile_65536_mask])', 'tile(board, cell[, tile_65536_mask])', 'max_tile(board[, tile_65536_mask])']
#[pyfunction]
#[pyo3(name = "functions")]
pub(super) fn sql_functions() -> Vec<PySqlFunction> {
    functions().iter().map(PySqlFunction::from).collect()
}
