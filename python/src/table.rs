//! The table of steps, `a2store.StepTable`.

use super::batch::PyBatch;
use super::loader::{PyLoader, sampling, token_type};
use super::query_call::NOTEBOOK_ROWS;
use crate::error::{OrRaise, raised};
use crate::support::arrow::{ArrowArray, ArrowSchema, stream_capsule};
use crate::support::indices::{row_indices, run_ids_from};
use crate::support::integers::{BatchSize, Bounded, NumSamples, Positive, Prefetch, Rank, U64, Workers, WorldSize};
use crate::support::interpreter::detached;
use crate::support::interrupt::{checking, interruptible};
use crate::support::memory::{Memory, Owner};
use crate::support::numpy::array;
use crate::support::progress::ProgressOption;
use crate::support::results::{IntoInstance, instances, skips_errors};
use crate::support::values::{names_from, paths_from};
use a2store::archive::Phase;
use a2store::error::Error;
use a2store::loader::{LoaderOptions, Permutation};
use a2store::query::Preview;
use a2store::system::cancellation::CancellationToken;
use a2store::system::machine::{filled, reserve};
use a2store::table::{AttachedColumn, FromRunsOptions, HeldOut, RowFilter, StepTable};
use pyo3::exceptions::{PyKeyError, PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PySlice};
use pyo3_arrow::error::PyArrowResult;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;

/// A table of fixed-size rows in one read-only mapping of memory or of a file; or a view of some rows of a table.
///
/// A row has these fields, then the extra columns, widest first, and padding to a multiple of 8 bytes:
///
/// - ``board``: uint64, at byte 0.
/// - ``ev_values``: four float32 in the order UDLR, at byte 8; 0.0 where illegal, four NaNs for a step without values.
/// - ``run_id``: uint32, at byte 24.
/// - ``step_index``: uint16, at byte 28. If an index exceeds 65,535, the field is uint32 and one of the extra columns.
/// - ``move``: uint8, 0 to 3 in the order UDLR, 255 = none, at byte 30.
/// - ``ev_legal``: uint8, a legality mask, at byte 31.
///
/// ``numpy.asarray(table)`` and ``rows_array`` share the table's memory. ``pyarrow.table(table)`` and other consumers
/// of ``__arrow_c_stream__`` get copies, as columns. ``len(table)`` is the number of rows. To get a table, call
/// ``Query.materialize``, ``StepTable.load``, ``StepTable.from_runs`` or ``StepTable.from_session``.
///
/// ``filter``, ``split`` and ``train_test_split`` return views, which support every operation of a table. A view shares
/// the table's memory. An operation that needs all rows of a view in one piece copies them.
///
/// A pickled table is a handle. A process of the same user on the same machine can unpickle it, and gets the same rows
/// without a copy. So ``multiprocessing`` can pass tables as arguments. The first pickling moves a table into shared
/// memory, at about the speed of a copy; existing arrays over it stay valid. The handle of a view takes about 20 bytes
/// per range of rows.
///
/// A handle is valid while the process that pickled it keeps the table, or while the table's file is unchanged. Later,
/// unpickling raises ``OSError`` or ``DamagedError``. A process that has unpickled the table keeps it, even after other
/// processes end. The memory is freed when the last such process ends.
///
/// >>> table = archive.sql("SELECT * FROM steps").materialize()
/// >>> table
/// StepTable(29320 rows of 32 bytes)
/// >>> np.asarray(table)["board"].dtype, pa.table(table).num_columns
/// (dtype('uint64'), 6)
#[pyclass(frozen, name = "StepTable", module = "a2store")]
pub(crate) struct PyStepTable {
    pub(super) table: StepTable,
    dtype: PyOnceLock<Py<PyAny>>,
}

impl PyStepTable {
    pub(crate) fn new(table: StepTable) -> PyStepTable {
        PyStepTable { table, dtype: PyOnceLock::new() }
    }
}

#[pymethods]
impl PyStepTable {
    fn __len__(&self) -> usize {
        self.table.num_rows() as usize
    }

    /// Return rows, or a column.
    ///
    /// - an integer: one row, as a dict of its values by the names of the columns of a batch; ``row["tokens"]`` has the
    ///   shape (16,).
    /// - a slice, a sequence or array of integers, or a mask of ``len(table)`` bools: a ``Batch`` of these rows.
    /// - a name of ``columns``: the column of all rows, an array of shape (rows,), or (rows, k) for k values per row.
    ///   It shares the memory of a table that is no view, unless the column is attached.
    ///
    /// Negative indices count from the end. Raises ``IndexError``, ``KeyError`` for an unknown name, and ``TypeError``
    /// for another key.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Ok(slice) = key.cast::<PySlice>() {
            let at = slice.indices(this.table.num_rows() as isize)?;
            let mut rows = Vec::new();
            reserve(&mut rows, at.slicelength).or_raise()?;
            rows.extend((0..at.slicelength as isize).map(|place| (at.start + place * at.step) as u64));
            return Ok(Bound::new(py, this.batch(py, &rows)?)?.into_any());
        }
        let Ok(name) = key.extract::<String>() else {
            return py.import("a2store._items")?.call_method1("item", (slf, key));
        };
        if !this.table.is_view() && this.table.layout().numpy_fields().any(|(field, ..)| field == name) {
            return this.__array__(py, None, None)?.get_item(name);
        }
        let column = checking(py, |cancel| this.table.column(&name, cancel))?;
        let missing = || {
            let expected = this.columns().join(", ");
            let hint = if name == "tokens" { "; batches have tokens: table[:10].tokens" } else { "" };
            PyKeyError::new_err(format!("{name}: expected a column of {expected}{hint}"))
        };
        PyBatch::new(column.ok_or_else(missing)?).find(py, &name)?.ok_or_else(missing)
    }

    /// Return the rows at some indices as dicts of tensors, for ``torch.utils.data.DataLoader(table)``.
    ///
    /// ``a2store.torch.StepLoader`` is much faster.
    fn __getitems__<'py>(slf: &Bound<'py, Self>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._tensors")?.call_method1("rows", (slf, rows))
    }

    /// Return an iterator over the rows, as dicts. ``loader(shuffle=False)`` is much faster.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let builtins = slf.py().import("builtins")?;
        let rows = builtins.call_method1("range", (slf.get().table.num_rows(),))?;
        builtins.call_method1("map", (slf.getattr("__getitem__")?, rows))
    }

    /// The number of rows, and the number of ``columns``.
    ///
    /// >>> table.shape
    /// (29320, 6)
    #[getter]
    fn shape(&self) -> (u64, usize) {
        (self.table.num_rows(), self.table.schema().fields().len())
    }

    /// The names of the columns: the fields of a row, the extra columns, the attached columns.
    ///
    /// >>> table.columns
    /// ['board', 'ev_values', 'run_id', 'step_index', 'move', 'ev_legal']
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.table.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The names and types of ``columns``, as ``to_arrow`` returns them.
    ///
    /// >>> pa.schema(table.schema).field("board").type
    /// DataType(uint64)
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema { schema: self.table.schema() }
    }

    /// The size of the rows in bytes, ``len(table) * table.stride``.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.table.num_bytes()
    }

    /// The size of a row in bytes: 32, plus any extra columns, rounded up to a multiple of 8.
    #[getter]
    fn stride(&self) -> usize {
        self.table.layout().stride()
    }

    /// A hash of the rows, their order and their layout, as 32 hexadecimal digits.
    ///
    /// Tables with the same fingerprint have the same rows in the same order. A view's fingerprint is a hash of the
    /// table's fingerprint and of the indices of the view's rows. A saved table or view keeps its fingerprint when it
    /// is loaded.
    #[getter]
    fn fingerprint(&self) -> String {
        self.table.fingerprint().to_string()
    }

    /// The structured NumPy type of a row, with the offsets of the fields and ``itemsize == stride``.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(dtype) = self.dtype.get(py) {
            return Ok(dtype.bind(py).clone());
        }
        let layout = self.table.layout();
        let (mut names, mut formats, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        for (name, format, values, offset) in layout.numpy_fields() {
            names.push(name);
            formats.push(if values == 1 { format.to_owned() } else { format!("({values},){format}") });
            offsets.push(offset);
        }
        let fields = PyDict::new(py);
        fields.set_item("names", names)?;
        fields.set_item("formats", formats)?;
        fields.set_item("offsets", offsets)?;
        fields.set_item("itemsize", layout.stride())?;
        let dtype = py.import("numpy")?.call_method1("dtype", (fields,))?;
        Ok(self.dtype.get_or_init(py, || dtype.unbind()).bind(py).clone())
    }

    /// Return the rows as a structured array: shape (rows,), of type ``table.dtype``.
    ///
    /// The array shares the table's memory and is read-only, unless ``copy`` or another dtype requires a copy. For a
    /// view, the array is a copy.
    ///
    /// Raises ``ValueError`` if a copy is required and ``copy`` is ``False``.
    #[pyo3(signature = (dtype=None, *, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (len, is_view) = (self.table.num_rows() as usize, self.table.is_view());
        if is_view && copy == Some(false) {
            return Err(PyValueError::new_err(
                "copy: expected None or True, because the rows of a view are not contiguous",
            ));
        }
        let rows = if is_view {
            self.copied_rows(py)?
        } else {
            let memory = Bound::new(py, Memory(Owner::Table(self.table.clone())))?;
            array(memory.as_any(), self.dtype(py)?, 0, (len, None))?
        };
        match (dtype, copy) {
            (Some(dtype), _) if !rows.getattr("dtype")?.eq(&dtype)? => {
                if copy == Some(false) {
                    return Err(PyValueError::new_err("copy: expected None or True with another dtype, found False"));
                }
                rows.call_method1("astype", (dtype,))
            }
            (_, Some(true)) if !is_view => rows.call_method0("copy"),
            _ => Ok(rows),
        }
    }

    /// Return the rows as columns, in an ``arrow_array_stream`` capsule.
    ///
    /// Rows are transposed in chunks of 65,536, on demand. The columns are the fields of a row, then the extra columns.
    /// ``ev_values`` and columns of several values per row are fixed-size lists, and ``ev_legal`` is a mask. Columns of
    /// strings are dictionaries; only these columns have nulls.
    ///
    /// - ``requested_schema``: an ``arrow_schema`` capsule; columns are cast to its types where possible.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyCapsule>>,
    ) -> PyArrowResult<Bound<'py, PyCapsule>> {
        stream_capsule(py, self.table.column_reader(), requested_schema)
    }

    /// Return the rows as an Arrow array of ``FixedSizeBinary(stride)``.
    ///
    /// The array shares the table's memory; for a view, it is a copy.
    ///
    /// Raises ``MemoryError`` if a copy does not fit in memory.
    ///
    /// >>> pa.array(table.rows_array()).type
    /// FixedSizeBinaryType(fixed_size_binary[32])
    fn rows_array(&self) -> PyResult<ArrowArray> {
        Ok(ArrowArray { array: Arc::new(self.table.rows_array().or_raise()?) })
    }

    /// Return the rows as a ``pyarrow.Table``, as ``__arrow_c_stream__`` does.
    ///
    /// Raises ``ImportError`` if pyarrow is not installed, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> table.to_arrow().column_names
    /// ['board', 'ev_values', 'run_id', 'step_index', 'move', 'ev_legal']
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("to_arrow", (slf,))
    }

    /// Return the rows as a ``pandas.DataFrame``, by way of pyarrow.
    ///
    /// Raises as ``to_arrow`` does.
    ///
    /// >>> table.to_pandas().shape
    /// (29320, 6)
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("to_pandas", (slf,))
    }

    /// Return the rows as a ``polars.DataFrame``.
    ///
    /// Raises ``ImportError`` if polars is not installed, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> table.to_polars().height
    /// 29320
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("a2store._packages")?.call_method1("to_polars", (slf,))
    }

    /// Return the rows as a structured array: shape (rows,), of type ``dtype``. It is ``numpy.asarray(table)``.
    ///
    /// Raises ``MemoryError`` if the copy of a view does not fit in memory.
    ///
    /// >>> table.to_numpy()["step_index"].max()
    /// np.uint16(3772)
    fn to_numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__array__(py, None, None)
    }

    /// Return the first rows.
    ///
    /// - ``n``: the maximum number of rows, at least 0.
    ///
    /// Raises ``ValueError`` for a negative number. Otherwise raises as ``take`` does.
    ///
    /// >>> table.head(3)["step_index"]
    /// array([0, 1, 2], dtype=uint16)
    #[pyo3(signature = (n=5))]
    fn head(&self, py: Python<'_>, #[pyo3(from_py_with = U64::int)] n: u64) -> PyResult<PyBatch> {
        let n = n.min(self.table.num_rows());
        self.batch(py, &(0..n).collect::<Vec<u64>>())
    }

    /// Return random rows without repetition, in random order.
    ///
    /// - ``n``: the number of rows, in ``0..=len(table)``.
    /// - ``seed``: in ``0..2**64``; equal seeds give equal rows on every machine.
    ///
    /// Raises ``ValueError`` for a number out of range. Otherwise raises as ``take`` does.
    ///
    /// >>> table.sample(100, seed=1).tokens.shape
    /// (100, 16)
    #[pyo3(signature = (n, *, seed=0))]
    fn sample(&self, py: Python<'_>, n: U64, #[pyo3(from_py_with = U64::int)] seed: u64) -> PyResult<PyBatch> {
        let (rows, n) = (self.table.num_rows(), n.get());
        if n > rows {
            return Err(raised(Error::argument("n", format!("0..={rows}"), n)));
        }
        let permutation = Permutation::new(rows, seed, 0).or_raise()?;
        self.batch(py, &(0..n).filter_map(|position| permutation.get(position)).collect::<Vec<u64>>())
    }

    /// Return the first ten rows as an HTML table, which notebooks display.
    ///
    /// >>> "29320 rows" in table._repr_html_()
    /// True
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let html = |cancel: &CancellationToken| {
            let batches = self.table.column_reader().map(|batch| {
                cancel.check()?;
                Ok(batch.map_err(std::io::Error::other)?)
            });
            Preview::of_batches(self.table.schema(), batches, NOTEBOOK_ROWS)?.to_html()
        };
        let html = checking(py, html)?;
        let about = self.__repr__().replace("StepTable(", "<code>StepTable</code>: ").replace(')', "");
        Ok(format!("{html}<br>\n<small>{about}</small>"))
    }

    /// Return the rows at ``indices`` as a batch, in this order; indices may repeat.
    ///
    /// - ``indices``: a one-dimensional sequence or array of integers in ``-len(table)..len(table)``. Negative indices
    ///   count from the end.
    ///
    /// Raises ``IndexError`` with the first index that is out of bounds. Raises ``TypeError`` unless the indices are
    /// integers, and ``ValueError`` unless they have one dimension. Raises ``MemoryError``, and ``KeyboardInterrupt``
    /// on Ctrl-C, even in the middle of a long copy.
    ///
    /// >>> table.take([5, 0, 5]).tokens.shape
    /// (3, 16)
    /// >>> table.take([len(table)])
    /// Traceback (most recent call last):
    /// IndexError: index 29320 is out of bounds for a length of 29320
    fn take(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
        self.batch(py, &row_indices(py, indices, self.table.num_rows())?)
    }

    /// Return a view of the rows that meet all given conditions, in the same order.
    ///
    /// The call costs one pass over the table and about 20 bytes per range of rows. The first use of scores or engines
    /// reads them from the archive, at the table's version. A file that ``save`` wrote contains the scores and engines.
    ///
    /// - ``min_score``, ``max_score``: bounds of the score of the run, both inclusive. The score is ``runs.max_score``.
    /// - ``engine``: the run's engine, or several allowed engines. Runs without an engine never match.
    /// - ``phase``: the phase of the game, ``"early"``, ``"mid"`` or ``"late"``, or several. It depends on the largest
    ///   tile on the board and the archive's ``phases``.
    /// - ``run_ids``: the ids of the runs, in any order, in ``0..2**32``.
    ///
    /// Raises ``ValueError`` for an unknown phase, for ids outside ``0..2**32``, and for scores or engines if the rows
    /// come from a file without metadata of runs. Raises ``TypeError`` for values of another type. Raises
    /// ``QueryError``, ``DamagedError`` or ``OSError`` if the archive's runs can no longer be read.
    ///
    /// >>> table.filter(min_score=20_000, phase=["mid", "late"])
    /// StepTable(16514 rows of 32 bytes, a view)
    /// >>> len(table.filter(engine="a2store-expectimax-1", run_ids=[3, 7]))
    /// 2952
    #[pyo3(signature = (*, min_score=None, max_score=None, engine=None, phase=None, run_ids=None))]
    fn filter(
        &self,
        py: Python<'_>,
        min_score: Option<U64>,
        max_score: Option<U64>,
        engine: Option<&Bound<'_, PyAny>>,
        phase: Option<&Bound<'_, PyAny>>,
        run_ids: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyStepTable> {
        let to_phase = |name: String| {
            let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name);
            phase.ok_or_else(|| PyValueError::new_err(format!("phase: expected early, mid or late, found {name:?}")))
        };
        let phases = phase.map(|names| names_from("phase", names)).transpose()?;
        let filter = RowFilter {
            min_score: min_score.map(Bounded::get),
            max_score: max_score.map(Bounded::get),
            engines: engine.map(|names| names_from("engine", names)).transpose()?,
            phases: phases.map(|names| names.into_iter().map(to_phase).collect::<PyResult<_>>()).transpose()?,
            run_ids: run_ids.map(|ids| run_ids_from(py, ids)).transpose()?,
        };
        let view = checking(py, |cancel| self.table.filter(&filter, cancel))?;
        Ok(PyStepTable::new(view))
    }

    /// Split the rows by run into two disjoint views, ``(train, val)``, and return them.
    ///
    /// Only the run's game, ``val`` and ``seed`` determine whether the run is held out. So a run keeps its side when
    /// the archive grows, a held-out run stays held out when ``val`` increases, and runs of one game are on the same
    /// side. To split a view again, use another seed.
    ///
    /// - ``val``: the approximate share of held-out runs, in ``0..=1``.
    /// - ``seed``: the seed of the split, in ``0..2**64``.
    ///
    /// Issues a ``UserWarning`` if a view is empty although ``val`` is neither 0 nor 1, as can happen with few runs.
    /// Raises ``ValueError`` for a share out of range, ``MemoryError``, and the errors of reading the archive's runs.
    ///
    /// >>> train, val = table.split(0.2)
    /// >>> len(train) + len(val) == len(table)
    /// True
    #[pyo3(signature = (val=0.1, *, seed=0))]
    fn split(
        &self,
        py: Python<'_>,
        val: f64,
        #[pyo3(from_py_with = U64::int)] seed: u64,
    ) -> PyResult<(PyStepTable, PyStepTable)> {
        self.views_of_split(py, "val", val, seed)
    }

    /// Split the rows by run into two disjoint views, ``(train, test)``, and return them.
    ///
    /// ``split(test_size, seed=seed)`` returns the same views. ``PackReader.train_test_split`` chooses the same runs.
    ///
    /// - ``test_size``: the approximate share of runs in ``test``, in ``0..=1``.
    /// - ``seed``: the seed of the split, in ``0..2**64``.
    ///
    /// Raises as ``split`` does.
    ///
    /// >>> train, test = table.train_test_split(0.2, seed=1)
    /// >>> set(train["run_id"]) & set(test["run_id"])
    /// set()
    #[pyo3(signature = (test_size=0.1, *, seed=0))]
    fn train_test_split(
        &self,
        py: Python<'_>,
        test_size: f64,
        #[pyo3(from_py_with = U64::int)] seed: u64,
    ) -> PyResult<(PyStepTable, PyStepTable)> {
        self.views_of_split(py, "test_size", test_size, seed)
    }

    /// Write the rows to a ``.npy`` file, which ``numpy.load`` opens as a structured array.
    ///
    /// The metadata for ``load`` follows the rows, where NumPy ignores it: the fingerprint, the categories, checksums,
    /// and the score, game and engine of each run. ``save`` of a view writes only its rows. The complete file replaces
    /// an existing file atomically and durably. A process that has mapped the old file keeps the old content.
    ///
    /// - ``path``: the file, which must not be in the archive that the rows were queried from.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// Raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C. Raises ``ValueError`` for a path in the archive,
    /// and for a non-ASCII name of an extra column, which NumPy's header cannot hold. After an exception no file is
    /// left behind.
    ///
    /// >>> table.filter(phase="late").save("late.npy")
    /// >>> np.load("late.npy").shape
    /// (1950,)
    #[pyo3(signature = (path, *, progress=None))]
    fn save(&self, py: Python<'_>, path: PathBuf, progress: Option<ProgressOption>) -> PyResult<()> {
        interruptible(py, progress, |progress, cancel| self.table.save(&path, progress, cancel))
    }

    /// Return the table in a ``.npy`` file that ``save`` or another program wrote.
    ///
    /// A saved table keeps its fingerprint, so the saved state of a loader still fits it. NumPy's header formats 1.0,
    /// 2.0 and 3.0 are supported.
    ///
    /// Any other one-dimensional structured array works if it has a field ``board``. It may have the other fields of a
    /// row, with the same names and types, in any order: ``move``, ``ev_legal``, ``ev_values``, ``run_id`` and
    /// ``step_index``. Missing fields have the values that ``Query.materialize`` gives to missing columns. Further
    /// fields of numbers or bools, one or several per row, become extra columns. The phases ``"mid"`` and ``"late"``
    /// begin at the tiles 1024 and 4096.
    ///
    /// - ``path``: the file.
    /// - ``mmap``: ``True`` = map the file, so that processes share its pages and it may be larger than memory. The
    ///   file must have the layout that ``save`` writes, and must not change while it is mapped. ``load`` then does not
    ///   check the checksum of the rows. ``False`` = read the file.
    /// - ``memory_limit``: the maximum number of bytes of rows that are read; ``None`` = the memory that the system has
    ///   available.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// Raises ``DecodeError`` or ``DamagedError`` for a file that is invalid, truncated or changed. Raises
    /// ``ColumnError`` for a field that is missing, has another type, or has a value that does not fit. Raises
    /// ``ValueError`` for a file that cannot be mapped. Raises ``MemoryLimitError``, ``OSError``, and
    /// ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> table.save("steps.npy")
    /// >>> table = a2store.StepTable.load("steps.npy", mmap=True)
    /// >>> len(table)
    /// 29320
    #[staticmethod]
    #[pyo3(signature = (path, *, mmap=false, memory_limit=None, progress=None))]
    fn load(
        py: Python<'_>,
        path: PathBuf,
        mmap: bool,
        memory_limit: Option<U64>,
        progress: Option<ProgressOption>,
    ) -> PyResult<PyStepTable> {
        let limit = memory_limit.map(Bounded::get);
        let table = interruptible(py, progress, |progress, cancel| match mmap {
            true => StepTable::map(&path),
            false => StepTable::load(&path, limit, progress, cancel),
        })?;
        Ok(PyStepTable::new(table))
    }

    /// Read runs of any format into a table, without an archive.
    ///
    /// A row's ``run_id`` is the index of the run among all runs, from 0. Runs that cannot be read count too, so
    /// ``run_id`` of a single pack is the index in the pack. The phases ``"mid"`` and ``"late"`` begin at the tiles
    /// 1024 and 4096.
    ///
    /// - ``paths``: files and folders, as for ``Archive.ingest``, in the same order.
    /// - ``chosen_ev``: the value of the chosen move, as in ``Query.materialize``.
    /// - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
    /// - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    /// - ``on_error``: the effect of a run or file that cannot be read. ``"raise"`` raises its error. ``"skip"`` reads
    ///   the other runs and adds the error to ``errors`` of the table. A skipped file counts as one run.
    ///
    /// Raises ``DecodeError`` or ``OSError`` for the first run that cannot be read, unless skipped. Raises
    /// ``ValueError`` for a run of more than 65,536 steps, ``MemoryLimitError``, and ``KeyboardInterrupt`` on Ctrl-C.
    /// Issues warnings as ``Archive.ingest`` does.
    ///
    /// >>> a2store.StepTable.from_runs(["runs", "games.a2pack"]).filter(min_score=20_000)
    /// StepTable(46932 rows of 32 bytes, a view)
    #[staticmethod]
    #[pyo3(signature = (
        paths, *, chosen_ev="stored", memory_limit=None, workers=None, progress=None, on_error="raise"
    ))]
    fn from_runs(
        py: Python<'_>,
        paths: &Bound<'_, PyAny>,
        chosen_ev: &str,
        memory_limit: Option<U64>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
        on_error: &str,
    ) -> PyResult<PyStepTable> {
        let paths = paths_from(paths)?;
        let mut options = FromRunsOptions::default();
        options.chosen_ev = chosen_ev.parse().or_raise()?;
        options.memory_limit = memory_limit.map(Bounded::get);
        options.workers = workers.map(Bounded::get);
        options.skip_errors = skips_errors(on_error).or_raise()?;
        interruptible(py, progress, |progress, cancel| StepTable::from_runs(&paths, &options, progress, cancel))
            .map(PyStepTable::new)
    }

    /// Read a self-play session into a table that keeps the session's run ids.
    ///
    /// The session's rows may be in any order; the table has them in the order of ``run_id`` and ``step_index``. The
    /// values of moves are NaN. If the session does not store a move, a2store derives it from the boards. A move is 255
    /// if the rules allow several moves, and in the last row of a run. ``filter`` supports scores and engines. A run's
    /// engine is the ``tag`` of the session's ``model``. The phases ``"mid"`` and ``"late"`` begin at the tiles 1024
    /// and 4096.
    ///
    /// - ``path``: the session's folder, or a file in it.
    /// - ``memory_limit``: the maximum number of bytes of rows; ``None`` = the memory that the system has available.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// Raises ``DecodeError`` or ``OSError`` for a session that cannot be read. Raises ``ValueError`` for run ids above
    /// 2**32 - 1. Raises ``MemoryLimitError``, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> table = a2store.StepTable.from_session("session")
    /// >>> table.take([0]).step_index
    /// array([0], dtype=uint16)
    #[staticmethod]
    #[pyo3(signature = (path, *, memory_limit=None, progress=None))]
    fn from_session(
        py: Python<'_>,
        path: PathBuf,
        memory_limit: Option<U64>,
        progress: Option<ProgressOption>,
    ) -> PyResult<PyStepTable> {
        let limit = memory_limit.map(Bounded::get);
        interruptible(py, progress, |progress, cancel| StepTable::from_session(&path, limit, progress, cancel))
            .map(PyStepTable::new)
    }

    /// Return this table with an attached column: values of a ``.npy`` array of shape (rows, D).
    ///
    /// Batches, ``take`` and Arrow data of the returned table have the column ``name``, of shape (n, D). So do its
    /// views, its loaders, and its copies in other processes. The rows themselves do not change: ``numpy.asarray``,
    /// ``dtype``, ``fingerprint``, the states of loaders and ``save`` omit the column. Attach it again after ``load``.
    ///
    /// A structured array of the same length holds the keys: the integers ``run_id`` and ``step_idx`` or
    /// ``step_index``. The array may have more steps than the table, in any order, and fewer than 2**32 - 1 steps. If
    /// array and table have the same order, the mapping takes no memory; otherwise it takes 4 bytes per row of the
    /// table. If the keys include boards, as ``board`` or ``exps``, the boards must equal the table's boards.
    ///
    /// The array's type is a little-endian float or integer, or bfloat16. An array is bfloat16 if it is ``<u2`` and the
    /// JSON file beside it has ``bf16`` as ``dtype_bits`` or ``dtype``. The JSON file of ``embeddings.bf16.npy`` is
    /// ``embeddings.json``; its ``D`` and type must match the array. NumPy and Arrow get the bits of bfloat16 as
    /// uint16; in Arrow, the field's metadata has ``a2store.dtype``. ``a2store.torch`` converts the bits to
    /// ``torch.bfloat16``.
    ///
    /// - ``name``: the name of the new column.
    /// - ``path``: the array, which is mapped and must not change; or a folder with ``embeddings.npy``, or with its
    ///   shards ``embeddings-<number>.npy``. The first shard has the rows of the first shard of ``steps.npy``, and so
    ///   on.
    /// - ``steps``: the file of the keys, or a folder with ``steps.npy`` or its shards; ``None`` = the array's folder.
    /// - ``progress``: ``False`` hides the progress, a function receives it; ``a2store`` describes the default.
    ///
    /// ``loader(symmetries=True)`` rejects attached columns, because they describe the original board. Use ``columns``
    /// to leave them out.
    ///
    /// Raises ``ColumnError``, with the row, if a row's step is not in the array, and if the keys have a step twice.
    /// Raises ``DecodeError`` for files of another kind, for different numbers of rows, and for files that contradict
    /// the JSON. Raises ``ValueError`` if the name is taken. Raises ``OSError``, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> steps = np.zeros(len(table), [("run_id", "<u4"), ("step_index", "<u4")])
    /// >>> steps["run_id"], steps["step_index"] = np.asarray(table)["run_id"], np.asarray(table)["step_index"]
    /// >>> np.save("steps.npy", steps)
    /// >>> np.save("embeddings.npy", np.zeros((len(table), 8), np.float32))
    /// >>> table = table.attach("embedding", "embeddings.npy", "steps.npy")
    /// >>> table.take([0]).embedding.shape
    /// (1, 8)
    #[pyo3(signature = (name, path, steps=None, *, progress=None))]
    fn attach(
        &self,
        py: Python<'_>,
        name: &str,
        path: PathBuf,
        steps: Option<PathBuf>,
        progress: Option<ProgressOption>,
    ) -> PyResult<PyStepTable> {
        let table = interruptible(py, progress, |progress, cancel| {
            self.table.attach(name, &path, steps.as_deref(), progress, cancel)
        })?;
        Ok(PyStepTable::new(table))
    }

    /// The names of the attached columns, in order of attachment.
    #[getter]
    fn attached(&self) -> Vec<&str> {
        self.table.attached().iter().map(AttachedColumn::name).collect()
    }

    /// The runs and files that ``from_runs`` or ``PackReader.to_table`` skipped, in order.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        instances(py, self.table.errors())
    }

    /// The share of a query that the table holds; ``None`` for other tables, for views, and for tables from files.
    ///
    /// >>> query.materialize(shard=(0, 4), round=2).shard.round
    /// 2
    #[getter]
    fn shard<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.table.shard().map(|shard| shard.into_instance(py)).transpose()
    }

    /// Whether this table is a view, such as ``filter`` and ``split`` return.
    #[getter]
    fn is_view(&self) -> bool {
        self.table.is_view()
    }

    /// The strings of each extra column of strings, in ascending order of their UTF-8 bytes.
    ///
    /// The code of ``categories[name][k]`` is ``k``. Columns of numbers are not included.
    ///
    /// >>> table = query.materialize(extra=["engine"])
    /// >>> table.categories["engine"][table.take([0])["engine"][0]]
    /// 'a2store-expectimax-1'
    #[getter]
    fn categories<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let categories = PyDict::new(py);
        for extra in self.table.layout().extras() {
            if let Some(names) = &extra.categories {
                categories.set_item(&extra.name, names.to_vec())?;
            }
        }
        Ok(categories)
    }

    /// Return a handle for ``pickle``; for a whole table in memory it is smaller than 1 KiB.
    ///
    /// Raises ``OSError`` if the system lacks suitable shared memory, which only Linux has.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let handle = detached(py, || self.table.handle()).or_raise()?;
        let attach = py.import("a2store._a2store")?.getattr("_attach")?;
        Ok((attach, (PyBytes::new(py, &handle),)))
    }

    /// Return a loader, which serves the rows in batches.
    ///
    /// One of ``shuffle``, ``window``, ``replacement``, ``weights`` and ``strata`` determines the rows of an epoch and
    /// their order. Without ``replacement``, ``weights`` and ``strata``, an epoch has every row once.
    ///
    /// - ``batch_size``: rows per batch and rank, in ``1..=2**28``.
    /// - ``shuffle``: ``True`` = a different random order in each epoch; ``False`` = the table's order.
    /// - ``seed``: the seed of the orders and the symmetries, in ``0..2**64``. Equal seeds and epochs give equal orders
    ///   on every machine.
    /// - ``epoch``: the first epoch, in ``0..2**64``.
    /// - ``drop_last``: ``True`` = omit the last rows of an epoch that do not fill a batch on every rank. ``False`` =
    ///   the ranks divide these rows evenly, and the last batch is smaller.
    /// - ``rank``: the number of this process, in ``0..world_size``.
    /// - ``world_size``: the number of processes that share the rows, at least 1. All ranks get the same number of
    ///   batches, and no two ranks get the same row.
    /// - ``tokens``: the type of ``Batch.tokens``: ``"uint8"``, ``"int32"`` or ``"int64"``.
    /// - ``symmetries``: ``True`` = transform each row by one of the board's eight symmetries: board, tokens, move,
    ///   values and mask, but not the extra columns. The seed, the epoch and the row's index determine the symmetry. It
    ///   cannot be combined with attached columns, or with extra columns of several values per row.
    /// - ``columns``: the names of the columns in a batch, in order; ``None`` = all, including extra and attached
    ///   columns.
    /// - ``prefetch``: the number of batches that a background thread prepares ahead, at most 4,096; 0 = each batch is
    ///   prepared on demand.
    /// - ``replacement``: ``True`` = draw rows uniformly with replacement.
    /// - ``weights``: an extra column of finite weights of at least 0; rows are drawn with replacement, in proportion
    ///   to the weights. The loader takes 8 bytes per row, and up to three passes over the table when it is created.
    /// - ``strata``: an extra column whose values are the strata; at most 4,096 different values. In any prefix of an
    ///   epoch each stratum has its quota, to within one row. Within a stratum the order is shuffled, and no row
    ///   repeats before all others have occurred. The loader takes 4 bytes per row (up to 8 in strata of fewer than
    ///   65,536 rows), and one pass over the table when it is created.
    /// - ``quotas``: the relative shares of the strata to serve, by value: a string of ``categories``, a number, a
    ///   bool, or ``None`` for null. Shares are at least 0 and have a finite sum; fractional shares are rounded to
    ///   1/65,536 of the sum. ``None`` = equal shares.
    /// - ``num_samples``: the number of rows per epoch over all ranks, in ``0..=2**62``, with ``replacement``,
    ///   ``weights`` or ``strata``; ``None`` = the number of rows in the table.
    /// - ``window``: the approximate number of rows to shuffle at a time, at least 1, for mapped tables larger than
    ///   memory. A window is 256 blocks of ``2**k`` rows from random places, with the largest ``k`` that fits. Each
    ///   block is read once per epoch, in one piece. The memory should hold two windows of rows.
    ///
    /// Raises ``ValueError`` for an option out of range, and for options that exclude each other. Raises
    /// ``ColumnError`` for an invalid weight, with the row, and for too many strata. Raises ``TypeError`` for a quota
    /// that is not a number, and ``MemoryError`` if weights or strata do not fit in memory.
    ///
    /// >>> loader = table.loader(batch_size=1024, seed=1, tokens="int64", columns=["tokens", "move"])
    /// >>> for epoch in range(2):
    /// ...     for batch in loader:
    /// ...         tokens, move = batch.tokens, batch.move
    /// >>> len(loader), tokens.dtype
    /// (29, dtype('int64'))
    /// >>> table = query.materialize(extra=["phase"])
    /// >>> table.loader(strata="phase", quotas={"early": 1, "mid": 1, "late": 2}, symmetries=True)
    /// Loader(29320 rows, stratified by phase: early=1 late=2 mid=1, batch_size=4096, ...)
    #[pyo3(signature = (
        batch_size=4096, *, shuffle=true, seed=0, epoch=0, drop_last=false, rank=0, world_size=1, tokens="uint8",
        symmetries=false, columns=None, prefetch=2, replacement=false, weights=None, strata=None, quotas=None,
        num_samples=None, window=None
    ))]
    fn loader(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = BatchSize::int)] batch_size: usize,
        shuffle: bool,
        #[pyo3(from_py_with = U64::int)] seed: u64,
        #[pyo3(from_py_with = U64::int)] epoch: u64,
        drop_last: bool,
        #[pyo3(from_py_with = Rank::int)] rank: usize,
        #[pyo3(from_py_with = WorldSize::int)] world_size: usize,
        tokens: &str,
        symmetries: bool,
        columns: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = Prefetch::int)] prefetch: usize,
        replacement: bool,
        weights: Option<String>,
        strata: Option<String>,
        quotas: Option<&Bound<'_, PyDict>>,
        num_samples: Option<NumSamples>,
        window: Option<Positive>,
    ) -> PyResult<PyLoader> {
        let window = window.map(Bounded::get);
        let mut options = LoaderOptions::default();
        options.batch_size = batch_size;
        options.sampling = sampling(shuffle, replacement, weights, strata, quotas, window)?;
        options.num_samples = num_samples.map(Bounded::get);
        options.seed = seed;
        options.epoch = epoch;
        options.drop_last = drop_last;
        options.rank = rank;
        options.world_size = world_size;
        options.tokens = token_type(tokens).or_raise()?;
        options.symmetries = symmetries;
        options.columns = columns.map(|names| names_from("columns", names)).transpose()?;
        options.prefetch = prefetch;
        let loader = checking(py, |cancel| self.table.loader_with_cancel(options, cancel))?;
        Ok(PyLoader(loader))
    }

    fn __repr__(&self) -> String {
        let (rows, stride) = (self.table.num_rows(), self.table.layout().stride());
        let view = if self.table.is_view() { ", a view" } else { "" };
        format!("StepTable({rows} rows of {stride} bytes{view})")
    }
}

impl PyStepTable {
    fn views_of_split(
        &self,
        py: Python<'_>,
        argument: &'static str,
        share: f64,
        seed: u64,
    ) -> PyResult<(PyStepTable, PyStepTable)> {
        let held_out = HeldOut::new(argument, share, seed).or_raise()?;
        let (train, test) = checking(py, |cancel| self.table.split(&held_out, cancel))?;
        if share > 0.0 && share < 1.0 && (train.num_rows() == 0) != (test.num_rows() == 0) {
            let side = if test.num_rows() == 0 { "no run is" } else { "all runs are" };
            let text = CString::new(format!("{argument}={share}: {side} held out; choose another seed or share"))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
        }
        Ok((PyStepTable::new(train), PyStepTable::new(test)))
    }

    fn batch(&self, py: Python<'_>, rows: &[u64]) -> PyResult<PyBatch> {
        Ok(PyBatch::new(checking(py, |cancel| self.table.take_with_cancel(rows, cancel))?))
    }

    /// Returns a new structured array of all rows.
    fn copied_rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let num_rows = self.table.num_rows() as usize;
        // A stride is a multiple of eight bytes.
        let len = num_rows.saturating_mul(self.table.layout().stride() / size_of::<u64>());
        let rows = checking(py, |cancel| {
            let mut rows = filled(len, 0_u64)?;
            self.table.copy_all_rows(bytemuck::cast_slice_mut(&mut rows), cancel).map(|()| rows)
        })?;
        let memory = Bound::new(py, Memory(Owner::Rows(rows)))?;
        array(memory.as_any(), self.dtype(py)?, 0, (num_rows, None))
    }
}

/// Return the table of a handle; unpickling calls this.
///
/// Raises ``OSError`` if the file, or the process that made the handle, is gone. Raises ``DamagedError`` if a different
/// file or memory has replaced it, and ``DecodeError`` for bytes that are not a handle.
#[pyfunction]
#[pyo3(name = "_attach")]
pub(crate) fn attach(py: Python<'_>, handle: &Bound<'_, PyBytes>) -> PyResult<PyStepTable> {
    let handle = handle.as_bytes();
    Ok(PyStepTable::new(detached(py, || StepTable::from_handle(handle)).or_raise()?))
}
