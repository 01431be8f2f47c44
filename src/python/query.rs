//! The methods of planned queries, `a2store.Query`.

use super::arrow::{ArrowSchema, stream_capsule};
use super::interrupt::{interruptible, signals};
use super::planned::PyQuery;
use super::table::PyStepTable;
use crate::cancellation::CancellationToken;
use crate::progress::Progress;
use crate::query::ArrowReader;
use crate::table::{ChosenEv, MaterializeOptions};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;
use std::path::PathBuf;

/// The number of rows that a notebook shows.
const NOTEBOOK_ROWS: usize = 10;

#[pymethods]
impl PyQuery {
    /// The schema of the result.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema { schema: self.query.schema() }
    }

    /// Return the result's schema as an ``arrow_schema`` capsule.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyArrowResult<Bound<'py, PyCapsule>> {
        to_schema_pycapsule(py, self.query.schema().as_ref())
    }

    /// Run the query and return its result as an ``arrow_array_stream`` capsule.
    ///
    /// - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
    ///
    /// Raises as ``count`` does.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let stream = interruptible(py, Some(false), |_, cancel| self.query.stream_unless_cancelled(cancel))?;
        stream_capsule(py, ArrowReader { stream, cancel: signals() }, requested_schema)
    }

    /// Run the query and return only its number of rows.
    ///
    /// Raises ``QueryError`` if the query fails, ``QueryLimitError`` if it exceeds a limit, and ``KeyboardInterrupt``
    /// on Ctrl-C.
    ///
    /// >>> archive.sql("SELECT * FROM steps WHERE phase = 'late'").count()
    /// 1950
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        interruptible(py, Some(false), |_, cancel| self.query.count_unless_cancelled(cancel))
    }

    /// Return the plan as text; it shows which columns are read and where filters are applied.
    ///
    /// The first line lists run-level filters, if there are any. They are evaluated once per run, and only the steps of
    /// matching runs are read. ``predicate`` is the filter of the Parquet reader.
    ///
    /// - ``analyze``: ``True`` = run the query, discard its rows, and add what each operator did and how long it took.
    ///
    /// Raises as ``count`` does.
    ///
    /// >>> print(archive.sql("SELECT board FROM steps WHERE max_score > 50000").explain())
    /// filters on runs: steps.max_score > 50000
    /// DataSourceExec: ... projection=[board], file_type=parquet
    #[pyo3(signature = (*, analyze=false))]
    fn explain(&self, py: Python<'_>, analyze: bool) -> PyResult<String> {
        interruptible(py, Some(false), |_, cancel| self.query.explain_unless_cancelled(analyze, cancel))
    }

    /// Print the first rows as a table.
    ///
    /// - ``max_rows``: the maximum number of rows; the query stops once it has produced them.
    ///
    /// Raises as ``count`` does.
    ///
    /// >>> archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC").show(max_rows=2)
    /// +--------+-----------+
    /// | run_id | max_score |
    /// +--------+-----------+
    /// | 16     | 82292     |
    /// | 17     | 46388     |
    /// +--------+-----------+
    /// the first 2 rows
    #[pyo3(signature = (max_rows=20))]
    fn show(&self, py: Python<'_>, max_rows: usize) -> PyResult<()> {
        let preview =
            interruptible(py, Some(false), |_, cancel| self.query.preview_unless_cancelled(max_rows, cancel))?;
        py.import("builtins")?.call_method1("print", (preview.to_string(),))?;
        Ok(())
    }

    /// Return the first ten rows as an HTML table, which notebooks display.
    ///
    /// Raises as ``count`` does.
    ///
    /// >>> "<table" in archive.sql("SELECT run_id FROM runs")._repr_html_()
    /// True
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let html = |_: &dyn Progress, cancel: &CancellationToken| {
            self.query.preview_unless_cancelled(NOTEBOOK_ROWS, cancel)?.to_html()
        };
        interruptible(py, Some(false), html)
    }

    /// Run the query and return a ``pyarrow.Table``.
    ///
    /// Raises ``ImportError`` if pyarrow is not installed. If the query fails, pyarrow raises its own exception.
    ///
    /// >>> archive.sql("SELECT max_score FROM runs").to_arrow().schema
    /// max_score: uint64 not null
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let table = needed(slf.py(), "pyarrow", "to_arrow")?.call_method1("table", (slf,));
        table.map_err(|error| signal_or(slf.py(), error))
    }

    /// Run the query and return a ``pandas.DataFrame``, by way of pyarrow.
    ///
    /// Raises as ``to_arrow`` does.
    ///
    /// >>> int(archive.sql("SELECT max_score FROM runs").to_pandas()["max_score"].max())
    /// 82292
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        needed(slf.py(), "pandas", "to_pandas")?;
        let table = needed(slf.py(), "pyarrow", "to_pandas")?.call_method1("table", (slf,));
        table.map_err(|error| signal_or(slf.py(), error))?.call_method0("to_pandas")
    }

    /// Run the query and return a ``polars.DataFrame``.
    ///
    /// Raises as ``to_arrow`` does.
    ///
    /// >>> archive.sql("SELECT max_score, highest_tile FROM runs").to_polars().shape
    /// (20, 2)
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let frame = needed(slf.py(), "polars", "to_polars")?.call_method1("DataFrame", (slf,));
        frame.map_err(|error| signal_or(slf.py(), error))
    }

    /// Run the query and store its rows in a table in memory or in a file.
    ///
    /// A row takes 32 bytes plus the extra columns. These columns of the result are used, by name; all others are
    /// ignored. Other numeric types are cast, and a value outside the range of the type raises:
    ///
    /// - ``board``, uint64: required.
    /// - ``move``, uint8: 0 to 3; 255 if it is null or missing.
    /// - ``ev_up``, ``ev_down``, ``ev_left``, ``ev_right``, float32: 0.0 if one is null or missing; four NaNs if all
    ///   are.
    /// - ``ev_legal``, uint8: a legality mask; derived from the rules if it is null or missing.
    /// - ``run_id`` and ``step_index``, uint32: 0 if they are missing.
    /// - ``tile_65536_mask``, uint16: the cells with a tile of 65536. If a value is not 0, the table has the column
    ///   as an extra column, its rows have at least 40 bytes, and the tokens of these cells are 16. Without the column
    ///   in the query, these tokens are 15, with a warning if a row may have such a tile.
    ///
    /// Rows are in the order of the query's ORDER BY, then of ``(run_id, step_index)``. The number of threads does not
    /// affect the order.
    ///
    /// - ``extra``: further columns of the result to append to each row: bools, integers, floats, strings, or
    ///   fixed-size lists of bools or numbers; by default none. Numbers keep their type; a null becomes NaN in floats
    ///   and raises in other types. A null list counts as a list of nulls. Strings, and dictionaries of strings, become
    ///   int16 codes: the string's index in ``table.categories``, -1 = null. A column may have at most 32,768 different
    ///   strings.
    /// - ``chosen_ev``: the value of the chosen move, in steps that have values. ``"stored"`` = the archive's value,
    ///   ``"one"`` = exactly 1.0.
    /// - ``memory_limit``: the maximum number of bytes of rows in memory; ``None`` = the memory that the system has
    ///   available. It does not apply to rows in a file.
    /// - ``path``: a file for the rows, which is then mapped; it may be larger than memory. ``StepTable.load`` can read
    ///   it. It is written atomically, is durable, and replaces an existing file.
    /// - ``progress``: ``False`` = no progress bar; otherwise a bar is shown if standard error is a terminal.
    ///
    /// Raises ``ColumnError``, with the row, for a column that is missing, of another type, or has a value that does
    /// not fit. Raises ``ValueError`` for an option out of range, and for an extra column that is named twice or
    /// already part of a row. Raises ``MemoryLimitError``, ``QueryError``, ``OSError`` if the file cannot be written,
    /// and ``KeyboardInterrupt`` on Ctrl-C. After an exception no file is left behind.
    ///
    /// >>> query = archive.sql("SELECT * FROM steps WHERE has_evs AND phase = 'late'")
    /// >>> table = query.materialize(extra=["max_score"], chosen_ev="one")
    /// >>> table.take([0, 1])["max_score"]
    /// array([82292, 82292], dtype=uint64)
    /// >>> table = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], path="steps.npy")
    /// >>> table.categories["engine"]
    /// ['a2store-expectimax-1']
    /// >>> query = archive.sql("SELECT *, exps(board) AS exps FROM steps")
    /// >>> query.materialize(extra=["exps"]).take([0, 1])["exps"].shape
    /// (2, 16)
    #[pyo3(signature = (*, extra=Vec::new(), chosen_ev="stored", memory_limit=None, path=None, progress=None))]
    fn materialize(
        &self,
        py: Python<'_>,
        extra: Vec<String>,
        chosen_ev: &str,
        memory_limit: Option<u64>,
        path: Option<PathBuf>,
        progress: Option<bool>,
    ) -> PyResult<PyStepTable> {
        let chosen_ev: ChosenEv = chosen_ev.parse()?;
        let mut options = MaterializeOptions::default().with_extra(extra).with_chosen_ev(chosen_ev);
        options.memory_limit = memory_limit;
        options.path = path;
        let table = interruptible(py, progress, |progress, cancel| self.query.materialize(&options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    fn __repr__(&self) -> String {
        let names: Vec<String> = self.query.schema().fields().iter().map(|field| field.name().clone()).collect();
        format!("Query({})", names.join(", "))
    }
}

/// Returns the exception of a pending signal, or else `error`. A signal that ends a stream reaches its reader only as
/// an error.
fn signal_or(py: Python<'_>, error: PyErr) -> PyErr {
    match py.check_signals() {
        Err(signal) => {
            signal.set_cause(py, Some(error));
            signal
        }
        Ok(()) => error,
    }
}

/// Imports a package that a method requires.
fn needed<'py>(py: Python<'py>, package: &str, method: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(package).map_err(|error| match error.is_instance_of::<PyImportError>(py) {
        true => {
            let raised = PyImportError::new_err(format!("{method} needs {package}: pip install {package}"));
            raised.set_cause(py, Some(error));
            raised
        }
        false => error,
    })
}
