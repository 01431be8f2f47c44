//! The methods of planned queries, `a2store.Query`.

use super::cluster;
use super::query_call::{NOTEBOOK_ROWS, PyQuery};
use super::shard::shard_from;
use super::table::PyStepTable;
use crate::error::{OrRaise, raised};
use crate::support::arrow::{ArrowBatch, ArrowSchema, columns_and_types, stream_capsule};
use crate::support::integers::{Bounded, Positive, U64};
use crate::support::interpreter::{Inside, detached};
use crate::support::interrupt::{cancellable, checking, interruptible, raised_again};
use crate::support::progress::ProgressOption;
use crate::support::values::names_from;
use a2store::Query;
use a2store::error::Error;
use a2store::query::{QueryStream, RowFormat};
use a2store::system::cancellation::CancellationToken;
use a2store::system::process::lock;
use a2store::table::{ChosenEv, MaterializeOptions};
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use pyo3_arrow::error::PyArrowResult;
use pyo3_arrow::ffi::to_schema_pycapsule;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A query as an Arrow stream for another package. A stream passes on only the text of an error, so this type keeps the
/// error.
#[pyclass(frozen)]
struct Rows {
    query: Query,
    failure: Arc<Mutex<Option<Error>>>,
}

#[pymethods]
impl Rows {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        let stream = cancellable(py, |cancel| self.query.stream(cancel))?;
        let cancel = CancellationToken::polling(raised_again);
        let reader = ArrowReader { stream, cancel, failure: Arc::clone(&self.failure) };
        stream_capsule(py, reader, requested_schema)
    }
}

impl Rows {
    /// Converts the result of a query, with a function of `a2store._packages`. If the query fails, raises a2store's
    /// exception instead of the converter's.
    fn converted<'py>(query: &Bound<'py, PyQuery>, function: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, failure) = (query.py(), Arc::<Mutex<Option<Error>>>::default());
        let rows = Bound::new(py, Rows { query: query.get().query.clone(), failure: Arc::clone(&failure) })?;
        let _inside = Inside::new(py);
        let converted = py.import("a2store._packages")?.call_method1(function, (rows,));
        converted.map_err(|error| match py.check_signals() {
            // A signal ends the stream, whose reader raises an error first.
            Err(signal) => signal,
            Ok(()) => lock(&failure).take().map_or(error, raised),
        })
    }
}

/// A stream with Arrow's errors.
struct ArrowReader {
    stream: QueryStream,
    cancel: CancellationToken,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Iterator for ArrowReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.stream.next_batch(&self.cancel).transpose()?;
        Some(next.map_err(|error| {
            // A C string ends at the first null byte.
            let message = error.to_string().replace('\0', "\u{2400}");
            *lock(&self.failure) = Some(error);
            ArrowError::ExternalError(message.into())
        }))
    }
}

impl RecordBatchReader for ArrowReader {
    fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }
}

/// The record batches of a query's result, as ``Query.to_batches`` returns them.
///
/// >>> sum(len(batch) for batch in archive.sql("SELECT board FROM steps").to_batches())
/// 29320
#[pyclass(frozen, name = "QueryBatches", module = "a2store")]
pub(crate) struct PyQueryBatches {
    stream: Mutex<QueryStream>,
}

#[pymethods]
impl PyQueryBatches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let next = checking(py, |cancel| lock(&self.stream).next_batch(cancel))?;
        Ok(next.map(|batch| ArrowBatch { batch }))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let schema = detached(py, || lock(&self.stream).schema());
        format!("QueryBatches({})", columns_and_types(&schema))
    }
}

#[pymethods]
impl PyQuery {
    /// The schema of the result.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema { schema: self.query.schema() }
    }

    /// The names of the result's columns, in order.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.query.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Return a query for the first rows of the result, like a LIMIT at the end of its text.
    ///
    /// Without an ORDER BY, the rows of a join or a grouped query have no defined order, so any of them may be first.
    ///
    /// - ``n``: the maximum number of rows, in ``0..2**64``.
    ///
    /// Raises ``ValueError`` for ``n`` out of range.
    ///
    /// >>> query = archive.sql("SELECT run_id, max_score FROM runs ORDER BY max_score DESC")
    /// >>> query.limit(2).to_polars().rows()
    /// [(16, 82292), (17, 46388)]
    fn limit(slf: &Bound<'_, Self>, #[pyo3(from_py_with = U64::int)] n: u64) -> PyResult<PyQuery> {
        let (py, query) = (slf.py(), &slf.get().query);
        let limited = detached(py, || query.limit(n)).or_raise()?;
        PyQuery::called(limited, slf.as_any(), "limit", (n,), &PyDict::new(py))
    }

    /// Return a query for the first rows of the result. It is ``limit`` with a default.
    ///
    /// - ``n``: as in ``limit``.
    ///
    /// Raises as ``limit`` does.
    ///
    /// >>> archive.sql("SELECT * FROM steps").head().count()
    /// 5
    #[pyo3(signature = (n=5))]
    fn head(slf: &Bound<'_, Self>, #[pyo3(from_py_with = U64::int)] n: u64) -> PyResult<PyQuery> {
        PyQuery::limit(slf, n)
    }

    /// Return the call that made the query, for ``pickle``; unpickling plans the query again.
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, ())> {
        let call = self.call.as_ref().ok_or_else(|| PyTypeError::new_err("cannot pickle an internal query"))?;
        Ok((call.clone_ref(py), ()))
    }

    /// Return this query, to be run as tasks by the workers of an executor.
    ///
    /// The returned query has the same methods and rows. Each task reads a share of the row groups of ``steps`` and
    /// ``annotations``, in another process or on another machine, and returns what the rest of the query needs, such as
    /// the counts of its groups. This process runs the rest. It also runs whole queries that read few rows or cannot be
    /// divided; ``explain`` shows the tasks, or why there are none. Workers need the same a2store, and must be able to
    /// read the archive under the same path or URL. docs/cluster.md describes engines, costs and limits.
    ///
    /// - ``executor``: a ``concurrent.futures.ProcessPoolExecutor``, the ``get_executor()`` of a Dask ``Client``, an
    ///   ``a2store.cluster.RayExecutor``, or any other executor whose workers are processes.
    /// - ``tasks``: the number of tasks, at least 1; ``None`` = up to 4 for each worker, of at least 1,048,576 rows
    ///   each.
    ///
    /// While it runs, the query raises ``ClusterError`` if the engine loses a task or a worker has another version of
    /// a2store. It raises an error of a worker, such as ``QueryLimitError`` or ``FileNotFoundError``, unchanged.
    ///
    /// >>> from concurrent.futures import ProcessPoolExecutor
    /// >>> from multiprocessing import get_context
    /// >>> with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
    /// ...     query = archive.sql("SELECT move, count(*) AS n FROM steps GROUP BY move ORDER BY move")
    /// ...     query.on(executor, tasks=2).to_polars()["n"].sum()
    /// 29320
    #[pyo3(signature = (executor, *, tasks=None))]
    fn on<'py>(
        slf: &Bound<'py, Self>,
        executor: Bound<'py, PyAny>,
        tasks: Option<Positive>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let tasks = tasks.map(Bounded::get);
        slf.py().import("a2store.cluster")?.call_method1("_on", (slf, executor, tasks))
    }

    /// Return this query on an engine of ``a2store.cluster``.
    #[pyo3(signature = (engine, tasks))]
    fn _on(&self, engine: &Bound<'_, PyAny>, tasks: Option<Positive>) -> PyResult<PyQuery> {
        let tasks = tasks.map(|tasks| usize::try_from(tasks.get()).unwrap_or(usize::MAX));
        let query = cluster::on(&self.query, engine, tasks)?;
        // It pickles as the query without an engine.
        Ok(PyQuery { query, call: self.call.as_ref().map(|call| call.clone_ref(engine.py())) })
    }

    /// Run a task of this query on a worker, and return the message with its result.
    fn _run_task<'py>(&self, py: Python<'py>, task: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let result = cancellable(py, |cancel| self.query.run_task(task, cancel))?;
        Ok(PyBytes::new(py, &result))
    }

    /// Run the query and return an iterator over its record batches, which arrive as they are computed.
    ///
    /// ``pyarrow.record_batch(batch)``, ``polars.DataFrame(batch)`` and other consumers of the Arrow C interface read a
    /// batch without a copy. ``for batch in query`` does the same. Deleting the iterator stops the query.
    ///
    /// Raises as ``count`` does.
    ///
    /// >>> for batch in archive.sql("SELECT board, move FROM steps LIMIT 3").to_batches():
    /// ...     print(pa.record_batch(batch)["move"].to_pylist())
    /// [3, 0, 2]
    fn to_batches(&self, py: Python<'_>) -> PyResult<PyQueryBatches> {
        let stream = cancellable(py, |cancel| self.query.stream(cancel))?;
        Ok(PyQueryBatches { stream: Mutex::new(stream) })
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<PyQueryBatches> {
        self.to_batches(py)
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
        Rows { query: self.query.clone(), failure: Arc::default() }.__arrow_c_stream__(py, requested_schema)
    }

    /// Run the query and return its number of rows. ``row_limit`` and ``byte_limit`` do not apply.
    ///
    /// Raises ``QueryError`` if the query fails, ``QueryLimitError`` if it exceeds a limit, and ``KeyboardInterrupt``
    /// on Ctrl-C.
    ///
    /// >>> archive.sql("SELECT * FROM steps WHERE phase = 'late'").count()
    /// 1950
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        cancellable(py, |cancel| self.query.count(cancel))
    }

    /// Return the plan as text; it shows which columns are read and where filters are applied.
    ///
    /// The first line lists run-level filters, if there are any. The query evaluates them once per run, and reads only
    /// pages with steps of matching runs. ``predicate`` is the filter of the Parquet reader.
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
        cancellable(py, |cancel| self.query.explain(analyze, cancel))
    }

    /// Print the first rows as a table.
    ///
    /// - ``max_rows``: the maximum number of rows; the query stops once it has produced them.
    ///
    /// Floats are rounded to 6 decimals; floats below 0.1, to 6 significant digits. Raises ``ValueError`` for a
    /// negative number. Otherwise raises as ``count`` does.
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
    fn show(&self, py: Python<'_>, #[pyo3(from_py_with = U64::int)] max_rows: u64) -> PyResult<()> {
        let max_rows = usize::try_from(max_rows).unwrap_or(usize::MAX);
        let preview = cancellable(py, |cancel| self.query.preview(max_rows, cancel))?;
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
        cancellable(py, |cancel| self.query.preview(NOTEBOOK_ROWS, cancel)?.to_html())
    }

    /// Run the query and return a ``pyarrow.Table``.
    ///
    /// Raises ``ImportError`` if pyarrow is not installed. Otherwise raises as ``count`` does.
    ///
    /// >>> archive.sql("SELECT max_score FROM runs").to_arrow().schema
    /// max_score: int64 not null
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Rows::converted(slf, "to_arrow")
    }

    /// Run the query and return a ``pandas.DataFrame``, by way of pyarrow.
    ///
    /// A column of integers with a null has pandas' nullable type, such as ``UInt64``, so its values are exact.
    ///
    /// Raises as ``to_arrow`` does.
    ///
    /// >>> int(archive.sql("SELECT max_score FROM runs").to_pandas()["max_score"].max())
    /// 82292
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Rows::converted(slf, "to_pandas")
    }

    /// Run the query and return a ``polars.DataFrame``.
    ///
    /// Raises ``ImportError`` if polars is not installed. Otherwise raises as ``count`` does.
    ///
    /// >>> archive.sql("SELECT max_score, highest_tile FROM runs").to_polars().shape
    /// (20, 2)
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Rows::converted(slf, "to_polars")
    }

    /// Return a ``polars.LazyFrame`` of the result, which runs the query when polars collects the frame.
    ///
    /// The query then reads only the columns that polars needs, and stops after the rows of ``head(n)`` or
    /// ``limit(n)``. It evaluates comparisons of integer, bool or string columns with values, ``is_in``, ``is_null``,
    /// ``is_between``, and their combinations by and, or and not. Polars evaluates all other filters. A query with a
    /// LIMIT leaves all filters to polars.
    ///
    /// Raises ``ImportError`` if polars is not installed. If the query fails, polars
    /// raises its own exception.
    ///
    /// >>> import polars as pl
    /// >>> frame = archive.sql("SELECT * FROM steps").lazy()
    /// >>> frame.filter(pl.col("max_score") > 50_000).select("board", "move").collect().shape
    /// (3773, 2)
    fn lazy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("lazy", (slf,))
    }

    /// Return a query for some columns of the rows that meet a condition; ``None`` if the query cannot evaluate it.
    ///
    /// - ``columns``: the names of the columns; ``None`` = all.
    /// - ``condition``: a condition in SQL, as ``a2store._polars`` makes it; ``None`` = all rows.
    fn _narrowed(&self, columns: Option<Vec<String>>, condition: Option<&str>) -> PyResult<Option<PyQuery>> {
        let filtered = match condition {
            Some(condition) => self.query.filter(condition).or_raise()?,
            None => Some(self.query.clone()),
        };
        let Some(query) = filtered else { return Ok(None) };
        let Some(names) = columns else { return Ok(Some(PyQuery { query, call: None })) };
        let schema = query.schema();
        let places = names.iter().map(|name| schema.index_of(name).map_err(|error| Error::query(error.to_string())));
        let places = places.collect::<Result<Vec<_>, _>>().or_raise()?;
        Ok(Some(PyQuery { query: query.select(&places).or_raise()?, call: None }))
    }

    /// Run the query and return its columns as NumPy arrays by name, by way of pyarrow.
    ///
    /// The columns of a result have different types, so the arrays are separate, as in ``Batch.to_dict``. They are
    /// writable, and have shape (rows,). A column of lists of ``k`` values has shape (rows, k). Strings are Python
    /// objects. A null is NaN in floats, NaT in times, and None in objects. A column of integers or bools with a null
    /// is a ``numpy.ma.MaskedArray``.
    ///
    /// Raises as ``to_arrow`` does.
    ///
    /// >>> columns = archive.sql("SELECT run_id, max_score, engine FROM runs").to_numpy()
    /// >>> columns["max_score"][:3], columns["engine"][0]
    /// (array([11308, 14944, 21612]), 'a2store-expectimax-1')
    fn to_numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Rows::converted(slf, "to_numpy")
    }

    /// Run the query, write its rows to a Parquet file as they are computed, and return their number.
    ///
    /// The complete file replaces an existing file atomically and durably. After an exception, the existing file is
    /// unchanged.
    ///
    /// - ``path``: the file, which must not be in the archive. Rows for a pipe or a device are written directly. For a
    ///   path that ends in ``/`` or a URL, the call writes files ``part-00000.parquet`` and so on, which hold the rows
    ///   in the order of their names. The folder must not exist, and no object may exist under the URL. On an executor,
    ///   each task writes a file if each row of the result needs the row groups of only one task; otherwise this
    ///   process writes one file. A folder appears when it is complete. A URL uses the archive's ``storage_options``,
    ///   and the names of its files have a random part. After an exception, the call removes the files.
    ///
    /// Raises ``ValueError`` for a path in the archive, ``FileExistsError`` for a folder or URL that exists, and
    /// ``OSError`` if a file cannot be written. Otherwise raises as ``count`` does.
    ///
    /// >>> archive.sql("SELECT * FROM steps WHERE phase = 'late'").write_parquet("late.parquet")
    /// 1950
    fn write_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        cancellable(py, |cancel| self.query.write(path, RowFormat::Parquet, cancel))
    }

    /// Run the query, write its rows to a CSV file as they are computed, and return their number.
    ///
    /// The first line has the names of the columns. A null is an empty field. The guarantees of ``write_parquet`` hold.
    ///
    /// - ``path``: as in ``write_parquet``.
    ///
    /// Raises ``QueryError`` for a column of lists. Otherwise raises as ``write_parquet`` does.
    ///
    /// >>> archive.sql("SELECT run_id, max_score FROM runs ORDER BY run_id").write_csv("scores.csv")
    /// 20
    /// >>> from pathlib import Path
    /// >>> Path("scores.csv").read_text().splitlines()[:2]
    /// ['run_id,max_score', '0,11308']
    fn write_csv(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        cancellable(py, |cancel| self.query.write(path, RowFormat::Csv, cancel))
    }

    /// Run the query, write its rows to an Arrow IPC file as they are computed, and return their number.
    ///
    /// The file is not compressed, so ``pyarrow.feather`` and ``polars.read_ipc`` can map it into memory. Dictionaries
    /// of strings become strings. The guarantees of ``write_parquet`` hold.
    ///
    /// - ``path``: as in ``write_parquet``.
    ///
    /// Raises as ``write_parquet`` does.
    ///
    /// >>> archive.sql("SELECT * FROM runs").write_ipc("runs.arrow")
    /// 20
    fn write_ipc(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        cancellable(py, |cancel| self.query.write(path, RowFormat::ArrowFile, cancel))
    }

    /// Run the query and store its rows in a table in memory or in a file.
    ///
    /// A row takes 32 bytes plus the extra columns. The table takes the columns below from the result, by name, and
    /// leaves out all others. A ``UserWarning`` names each left-out column that the query computes or takes from your
    /// own tables. Other numeric types are cast, and a value outside the range of the type raises:
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
    /// If the query only filters and selects rows of ``steps``, the rows are in the order of ``(run_id, step_index)``.
    /// With an ORDER BY, the rows have its order; rows with equal keys come in any order. The rows of all other queries
    /// are sorted by run, step and their bytes. So a deterministic query gives the same table on any number of threads.
    ///
    /// - ``columns``: the names of the columns that a row gets, instead of all columns above and ``extra``; ``board``
    ///   is required. ``ev_values`` stands for the four values. Columns that are not listed above become extra columns.
    ///   ``run_id``, ``step_index`` and ``tile_65536_mask`` are always kept. The query does not read the other columns
    ///   above; it treats them as missing.
    /// - ``extra``: further columns of the result to append to each row, as a name or an iterable of names; by default
    ///   none. A column has bools, integers, floats, strings, or fixed-size lists of bools or numbers. Numbers keep
    ///   their type; a null becomes NaN in floats and raises in other types. A null list counts as a list of nulls.
    ///   Strings, and dictionaries of strings, become int16 codes: the string's index in ``table.categories``, -1 =
    ///   null. A column may have at most 32,768 different strings.
    /// - ``chosen_ev``: the value of the chosen move, in steps that have values. ``"stored"`` = the archive's value,
    ///   ``"one"`` = exactly 1.0.
    /// - ``memory_limit``: the maximum number of bytes of rows in memory; ``None`` = the memory that the system has
    ///   available. It does not apply to rows in a file.
    /// - ``path``: a file for the rows, which the table maps, so it may be larger than memory. ``StepTable.load`` can
    ///   read it. The complete file replaces an existing file atomically and durably. It must not be in the archive.
    /// - ``shard``: the share of one of several processes, as a rank and a world size; ``None`` = all rows. The shares
    ///   of a round are disjoint and complete, and their sizes differ by at most one row. Each round has different
    ///   shares. The query may only filter and select rows of ``steps``. A rank reads the row groups of its share, but
    ///   columns of strings in ``extra`` as a whole. The rows are in the order of ``steps``. If the number of rows is
    ///   not known in advance, each rank first reads the columns of the conditions to count the rows. All ranks must
    ///   read the same version of the archive. Codes of strings are the same on all ranks and in all rounds.
    ///   Materialize any other query once, save the table, load the file with ``mmap=True`` on each rank, and pass
    ///   ``rank`` and ``world_size`` to its loader.
    /// - ``seed``, ``round``: determine the shares of a round; in ``0..2**64``.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// Raises ``ColumnError``, with the row, for a column that is missing, has another type, or has a value that does
    /// not fit. Raises ``ValueError`` for an option out of range, for ``columns`` without ``board`` or together with
    /// ``extra``, for a column that is named twice, has an empty name or is already part of a row, and for a share of a
    /// query that does more than filter and select rows, or uses random numbers or the time. Raises
    /// ``MemoryLimitError``, ``QueryError``, ``OSError`` if the file cannot be written, and ``KeyboardInterrupt`` on
    /// Ctrl-C. After an exception no file is left behind.
    ///
    /// >>> query = archive.sql("SELECT * FROM steps WHERE has_evs AND phase = 'late'")
    /// >>> table = query.materialize(extra=["max_score"], chosen_ev="one")
    /// >>> table.take([0, 1])["max_score"]
    /// array([82292, 82292])
    /// >>> table = archive.sql("SELECT * FROM steps").materialize(extra=["engine"], path="steps.npy")
    /// >>> table.categories["engine"]
    /// ['a2store-expectimax-1']
    /// >>> query = archive.sql("SELECT *, exps(board) AS exps FROM steps")
    /// >>> query.materialize(extra=["exps"]).take([0, 1])["exps"].shape
    /// (2, 16)
    /// >>> query.materialize(columns=["board", "move", "max_score"]).stride
    /// 40
    /// >>> query = archive.sql("SELECT * FROM steps")
    /// >>> [len(query.materialize(shard=(rank, 3), seed=1, round=5)) for rank in range(3)]
    /// [9773, 9773, 9774]
    #[pyo3(signature = (
        *, columns=None, extra=None, chosen_ev="stored", memory_limit=None, path=None, shard=None, seed=0, round=0,
        progress=None
    ))]
    fn materialize(
        &self,
        py: Python<'_>,
        columns: Option<&Bound<'_, PyAny>>,
        extra: Option<&Bound<'_, PyAny>>,
        chosen_ev: &str,
        memory_limit: Option<U64>,
        path: Option<PathBuf>,
        shard: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = U64::int)] seed: u64,
        #[pyo3(from_py_with = U64::int)] round: u64,
        progress: Option<ProgressOption>,
    ) -> PyResult<PyStepTable> {
        let extra = extra.map_or_else(|| Ok(Vec::new()), |names| names_from("extra", names))?;
        let chosen_ev: ChosenEv = chosen_ev.parse().or_raise()?;
        let mut options = MaterializeOptions::default().with_extra(extra).with_chosen_ev(chosen_ev);
        options.columns = columns.map(|names| names_from("columns", names)).transpose()?;
        options.memory_limit = memory_limit.map(Bounded::get);
        options.path = path;
        options.shard = shard_from(shard, seed, round)?;
        let table = interruptible(py, progress, |progress, cancel| self.query.materialize(&options, progress, cancel))?;
        Ok(PyStepTable::new(table))
    }

    /// A hash of the archive's commit, the text and the parameters.
    #[getter]
    fn _hash(&self) -> String {
        self.query.hash()
    }

    fn __repr__(&self) -> String {
        format!("Query({})", columns_and_types(&self.query.schema()))
    }
}
