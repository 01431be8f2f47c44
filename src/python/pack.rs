//! The reader of packs, `a2store.PackReader`.

use super::indices::{place, row_indices};
use super::integers::{AnyInt, Bounded, Positive, U64, Workers, exact_integer};
use super::interrupt::{cancellable, checking, interruptible};
use super::numpy::copied_array;
use super::pack_iterators::{BATCH_RUNS, PyPackBatchIterator, PyPackIterator, PyPackStepIterator, decode_all, pyrun};
use super::progress::ProgressOption;
use super::results::{IntoInstance, skips_errors};
use super::run::PyRun;
use super::table::PyStepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind};
use crate::format::{JsonlOptions, PackReader, RunFormat, ValidateOptions};
use crate::loader::Permutation;
use crate::table::{FromRunsOptions, HeldOut, StepTable};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A reader of the run files in an ``.a2pack``, which it maps into memory.
///
/// Access to any run takes constant time. ``len(pack)`` is the number of runs, and ``pack[i]`` is ``pack.decode(i)``.
/// ``for run in pack`` returns all runs in order and decodes ahead in parallel. A reader may be shared between threads,
/// survives ``fork``, and pickles as its path. The file must not change while it is open.
///
/// >>> pack = a2store.PackReader.open("games.a2pack")
/// >>> len(pack), pack[0].meta.max_score
/// (20, 11308)
/// >>> max(run.meta.max_score for run in pack)
/// 82292
#[pyclass(frozen, name = "PackReader", module = "a2store")]
pub(super) struct PyPackReader {
    /// `None` once it is closed.
    pack: Mutex<Option<PackReader>>,
    path: PathBuf,
    checksums: bool,
}

impl PyPackReader {
    fn pack(&self) -> PyResult<PackReader> {
        self.lock().clone().ok_or_else(|| PyValueError::new_err("the pack is closed"))
    }

    fn lock(&self) -> MutexGuard<'_, Option<PackReader>> {
        self.pack.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a run's index; a negative one counts from the end.
    fn place(&self, index: i128) -> PyResult<usize> {
        place(index, self.pack()?.len(), ("pack", "runs"))
    }

    /// Reads the rows of all runs.
    fn table(&self, py: Python<'_>, workers: Option<Workers>, on_error: &str) -> PyResult<StepTable> {
        let (workers, skip_errors) = (workers.map(Bounded::get), skips_errors(on_error)?);
        let options = FromRunsOptions { workers, skip_errors, ..FromRunsOptions::default() };
        let pack = self.pack()?;
        interruptible(py, Some(false), |progress, cancel| StepTable::from_pack(&pack, &options, progress, cancel))
    }

    fn total_steps(&self, py: Python<'_>) -> PyResult<u64> {
        let pack = self.pack()?;
        Ok(interruptible(py, Some(false), |progress, cancel| pack.stats(progress, cancel))?.total_steps)
    }
}

#[pymethods]
impl PyPackReader {
    /// Open a pack, and check its header, index and footer, but not its runs.
    ///
    /// Opening a pack of 100,000 runs takes milliseconds.
    ///
    /// - ``path``: the file.
    /// - ``checksums``: whether to compare the checksum of each run that is read. ``False`` suits packs that
    ///   ``validate`` has checked.
    ///
    /// Raises ``DecodeError``, whose ``kind`` is ``"header"`` or ``"checksum"``, and ``OSError``.
    ///
    /// >>> a2store.PackReader.open("games.a2pack", checksums=False)
    /// PackReader(".../games.a2pack", 20 runs)
    #[staticmethod]
    #[pyo3(signature = (path, checksums=true))]
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn open(py: Python<'_>, path: PathBuf, checksums: bool) -> PyResult<PyPackReader> {
        // The process that unpickles the reader may have another working folder.
        let path = std::path::absolute(&path)?;
        let pack = py.detach(|| PackReader::open(&path))?.with_checksums(checksums);
        Ok(PyPackReader { pack: Mutex::new(Some(pack)), path, checksums })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.pack()?.len())
    }

    fn __repr__(&self) -> String {
        match self.lock().as_ref() {
            Some(pack) => format!("PackReader({:?}, {} runs)", self.path, pack.len()),
            None => format!("PackReader({:?}, closed)", self.path),
        }
    }

    /// The path of the file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Close the pack. Every later operation on this object raises ``ValueError``.
    ///
    /// Iterators and runs of the pack stay valid. The file is unmapped when the last of them is gone. A second call has
    /// no effect. ``with`` calls it at the end.
    ///
    /// >>> with a2store.PackReader.open("games.a2pack") as pack:
    /// ...     len(pack)
    /// 20
    /// >>> len(pack)
    /// Traceback (most recent call last):
    /// ValueError: the pack is closed
    fn close(&self) {
        self.lock().take();
    }

    /// Return the reader itself.
    ///
    /// Raises ``ValueError`` if it is closed.
    fn __enter__(slf: Py<Self>) -> PyResult<Py<Self>> {
        slf.get().pack()?;
        Ok(slf)
    }

    /// Close the pack.
    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.close();
    }

    /// Return the path and the options for ``pickle``; unpickling opens the pack again.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (PathBuf, bool))> {
        let path = slf.get().path.clone();
        Ok((slf.get_type().getattr("open")?, (path, slf.get().checksums)))
    }

    /// Return the format of a run according to the index: ``"v1"`` is A2T1, ``"v2"`` is a2run2.
    ///
    /// - ``index``: the index of the run; a negative one counts from the end.
    ///
    /// Raises ``IndexError`` for an index that is out of bounds.
    ///
    /// >>> a2store.PackReader.open("games.a2pack").kind(0)
    /// 'v2'
    fn kind(&self, index: AnyInt) -> PyResult<&'static str> {
        Ok(match self.pack()?.format(self.place(index.get())?)? {
            RunFormat::A2t1 => "v1",
            RunFormat::A2run2 => "v2",
        })
    }

    /// Decode and return a run.
    ///
    /// - ``index``: the index of the run; a negative one counts from the end.
    ///
    /// Raises ``IndexError`` for an index that is out of bounds. Raises ``DecodeError``, with path, run and offset, for
    /// a damaged run.
    ///
    /// >>> a2store.PackReader.open("games.a2pack").decode(-1)
    /// Run(934 steps, max_score=16248, engine="a2store-expectimax-1", a2run2)
    fn decode(&self, py: Python<'_>, index: AnyInt) -> PyResult<PyRun> {
        let index = self.place(index.get())?;
        let pack = self.pack()?;
        Ok(pyrun(&pack, index, py.detach(|| pack.decode(index))?))
    }

    fn __getitem__(&self, py: Python<'_>, index: AnyInt) -> PyResult<PyRun> {
        self.decode(py, index)
    }

    /// Decode runs in parallel and return them in the order of ``indices``.
    ///
    /// - ``indices``: the indices of the runs, with repetitions; negative ones count from the end.
    ///
    /// Raises as ``decode`` does, for the first damaged run, and ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> [len(run) for run in pack.decode_batch([3, 0])]
    /// [1302, 646]
    fn decode_batch(&self, py: Python<'_>, indices: &Bound<'_, PyAny>) -> PyResult<Vec<PyRun>> {
        let places = self.places(indices)?;
        let pack = self.pack()?;
        let runs = if places.len() <= BATCH_RUNS {
            py.detach(|| decode_all(&pack, &places, None, CancellationToken::never()))?
        } else {
            cancellable(py, |cancel| decode_all(&pack, &places, None, cancel))?
        };
        places.iter().zip(runs).map(|(&place, run)| Ok(pyrun(&pack, place, run?))).collect()
    }

    fn __iter__(&self) -> PyResult<PyPackIterator> {
        self.iter(None)
    }

    /// Return an iterator over runs; it decodes some megabytes ahead in parallel.
    ///
    /// At a damaged run the iterator raises ``DecodeError``; the next call continues with the following run.
    ///
    /// - ``indices``: the indices of the runs, in this order, with repetitions; negative ones count from the end.
    ///   ``None`` = all runs, in order.
    ///
    /// Raises ``IndexError`` at once for an index that is out of bounds.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> sum(len(run) for run in pack.iter())
    /// 29320
    /// >>> [run.meta.max_score for run in pack.iter([3, 0])]
    /// [25888, 11308]
    #[pyo3(signature = (indices=None))]
    fn iter(&self, indices: Option<&Bound<'_, PyAny>>) -> PyResult<PyPackIterator> {
        let places = indices.map(|indices| self.places(indices)).transpose()?;
        Ok(PyPackIterator::new(&self.pack()?, places))
    }

    /// Return an iterator over the runs at ``indices``, as ``iter`` does.
    ///
    /// - ``indices``: as in ``iter``.
    ///
    /// Raises as ``iter`` does.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> [run.meta.max_score for run in pack.iter_indices([3, 0])]
    /// [25888, 11308]
    fn iter_indices(&self, indices: &Bound<'_, PyAny>) -> PyResult<PyPackIterator> {
        self.iter(Some(indices))
    }

    /// Return an iterator over lists of ``batch_size`` runs; the last list may be shorter.
    ///
    /// - ``batch_size``: the number of runs in a list, at least 1.
    /// - ``shuffle``: whether to shuffle the runs. The order depends on ``seed`` alone.
    /// - ``seed``: in ``0..2**64``; ``None`` = a new seed each time.
    /// - ``workers``: threads to decode with, 1 to 1,024; ``None`` = a pool shared by all readers, one thread per core.
    /// - ``indices``: the indices of the runs, such as one part of ``split``; ``None`` = all.
    /// - ``on_error``: the effect of a damaged run. ``"raise"`` raises its error; the next call continues with the
    ///   other runs of the same list. ``"skip"`` leaves the run out of its list and adds its error to ``errors`` of the
    ///   iterator.
    ///
    /// Raises ``ValueError`` for an option out of range, and ``IndexError`` for an index that is out of bounds. The
    /// iterator raises ``DecodeError``.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> [len(runs) for runs in pack.iter_batches(8, shuffle=True, seed=1)]
    /// [8, 8, 4]
    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None, on_error="raise"))]
    fn iter_batches(
        &self,
        batch_size: Positive,
        shuffle: bool,
        seed: Option<U64>,
        workers: Option<Workers>,
        indices: Option<&Bound<'_, PyAny>>,
        on_error: &str,
    ) -> PyResult<PyPackBatchIterator> {
        let (batch_size, skip_errors) = (batch_size.get(), skips_errors(on_error)?);
        let (seed, workers) = (seed.map(Bounded::get), workers.map(Bounded::get));
        let chosen = indices.map(|indices| self.places(indices)).transpose()?;
        Ok(PyPackBatchIterator::new(&self.pack()?, batch_size, chosen, shuffle, seed, workers, skip_errors)?)
    }

    /// Return an iterator over batches of steps; first it reads all steps into memory, 32 bytes each.
    ///
    /// A row's ``run_id`` is the index of the run in the pack. For training, ``to_table().loader(…)`` offers more.
    ///
    /// - ``batch_size``: rows per batch, at least 1; the last batch may have fewer.
    /// - ``shuffle``, ``seed``: as in ``iter_batches``, over all steps.
    /// - ``workers``: threads to read with, 1 to 1,024; ``None`` = one per core.
    /// - ``indices``: the steps to return, numbered through all runs that were read; ``None`` = all.
    /// - ``on_error``: as in ``to_table``.
    ///
    /// Raises ``DecodeError`` for a damaged run, and ``MemoryLimitError``. Otherwise raises as ``iter_batches`` does.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> batch = next(pack.iter_step_batches(512, shuffle=True, seed=1))
    /// >>> batch.tokens.shape, batch.ev_values.dtype
    /// ((512, 16), dtype('float32'))
    #[pyo3(signature = (batch_size, shuffle=false, seed=None, workers=None, *, indices=None, on_error="raise"))]
    #[allow(clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn iter_step_batches(
        &self,
        py: Python<'_>,
        batch_size: Positive,
        shuffle: bool,
        seed: Option<U64>,
        workers: Option<Workers>,
        indices: Option<&Bound<'_, PyAny>>,
        on_error: &str,
    ) -> PyResult<PyPackStepIterator> {
        let (batch_size, seed) = (batch_size.get(), seed.map(Bounded::get));
        let table = self.table(py, workers, on_error)?;
        let chosen = indices.map(|indices| row_indices(py, indices, table.num_rows())).transpose()?;
        if let Some(&index) = chosen.iter().flatten().find(|&&index| index >= table.num_rows()) {
            let error = Error::from(ErrorKind::IndexOutOfBounds { index: index.into(), len: table.num_rows() });
            return Err(error.into());
        }
        Ok(PyPackStepIterator::new(table, batch_size, chosen, shuffle, seed)?)
    }

    /// Return the steps of all runs as a table. A row's ``run_id`` is the index of the run in the pack.
    ///
    /// - ``workers``, ``on_error``: as in ``StepTable.from_runs``.
    ///
    /// Raises as ``StepTable.from_runs`` does.
    ///
    /// >>> a2store.PackReader.open("games.a2pack").to_table()
    /// StepTable(29320 rows of 32 bytes)
    #[pyo3(signature = (*, workers=None, on_error="raise"))]
    fn to_table(&self, py: Python<'_>, workers: Option<Workers>, on_error: &str) -> PyResult<PyStepTable> {
        Ok(PyStepTable::new(self.table(py, workers, on_error)?))
    }

    /// Split the indices of all runs, or of all steps, at random; return (train, test), each in ascending order.
    ///
    /// - ``unit``: ``"run"`` or ``"step"``: whether to split runs or steps. ``"run"`` keeps all steps of a run on one
    ///   side.
    /// - ``test_pct``: the test part as a fraction between 0 and 1. Its size is rounded down, but is at least one.
    /// - ``test_size``: the size of the test part as a number, instead of ``test_pct``.
    /// - ``seed``: in ``0..2**64``; equal seeds give equal splits.
    ///
    /// Raises ``ValueError`` unless exactly one of ``test_pct`` and ``test_size`` is given and in range, and for
    /// another ``unit``.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> train, test = pack.split(test_pct=0.2, seed=1)
    /// >>> train.dtype, len(train), len(test)
    /// (dtype('uint64'), 16, 4)
    #[pyo3(signature = (unit="run", *, test_pct=None, test_size=None, seed=0))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        unit: &str,
        test_pct: Option<f64>,
        test_size: Option<U64>,
        #[pyo3(from_py_with = U64::int)] seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let test_size = test_size.map(Bounded::get);
        let total = match unit {
            "run" => self.pack()?.len() as u64,
            "step" => self.total_steps(py)?,
            other => return Err(Error::argument("unit", "run or step", other).into()),
        };
        let test_size = match (test_pct, test_size) {
            // At least one, unless there is none.
            (Some(part), None) if part > 0.0 && part < 1.0 => ((total as f64 * part) as u64).max(1).min(total),
            (Some(part), None) => {
                return Err(Error::argument("test_pct", "a fraction between 0 and 1", part).into());
            }
            (None, Some(size)) if size <= total => size,
            (None, Some(size)) => {
                return Err(Error::argument("test_size", format!("at most {total}"), size).into());
            }
            _ => return Err(PyValueError::new_err("split: expected exactly one of test_pct and test_size")),
        };
        let (train, test) = py.detach(|| {
            let permutation = Permutation::new(total, seed, 0)?;
            let mut is_test = vec![false; total as usize];
            (0..test_size).filter_map(|position| permutation.get(position)).for_each(|i| is_test[i as usize] = true);
            let of = |part: bool| (0..total).filter(|&i| is_test[i as usize] == part).collect::<Vec<u64>>();
            Ok::<_, Error>((of(false), of(true)))
        })?;
        Ok((copied_array(py, &train, "<u8", None)?, copied_array(py, &test, "<u8", None)?))
    }

    /// Split the runs, and return the ascending indices of the two parts, ``(train, test)``.
    ///
    /// The same runs are in ``test`` as in ``to_table().train_test_split(…)``. They stay there when runs are appended
    /// to the pack. Runs of one game are on one side.
    ///
    /// - ``test_size``: the approximate share of runs in ``test``, in ``0..=1``.
    /// - ``seed``: the seed of the split, in ``0..2**64``.
    ///
    /// Raises ``ValueError`` for a share out of range, and ``DecodeError`` for a damaged run.
    ///
    /// >>> pack = a2store.PackReader.open("games.a2pack")
    /// >>> train, test = pack.train_test_split(0.2, seed=1)
    /// >>> set(test.tolist()) == set(pack.to_table().train_test_split(0.2, seed=1)[1]["run_id"].tolist())
    /// True
    #[pyo3(signature = (test_size=0.1, *, seed=0))]
    fn train_test_split<'py>(
        &self,
        py: Python<'py>,
        test_size: f64,
        #[pyo3(from_py_with = U64::int)] seed: u64,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let held_out = HeldOut::new("test_size", test_size, seed)?;
        let pack = self.pack()?;
        let games = checking(py, |cancel| pack.games(cancel))?;
        let (test, train): (Vec<u64>, Vec<u64>) =
            (0..pack.len() as u64).partition(|&run| held_out.has(games[run as usize], run as u32));
        Ok((copied_array(py, &train, "<u8", None)?, copied_array(py, &test, "<u8", None)?))
    }

    /// Write the runs in order as JSON Lines, with one line per run or per step, in bounded memory.
    ///
    /// docs/formats.md lists the keys. A damaged run is skipped and reported. The file is written atomically and
    /// replaces an existing one.
    ///
    /// - ``path``: the file.
    /// - ``parallel``: ``False`` = use one thread.
    /// - ``by_step``: ``True`` = one line per step.
    /// - ``workers``: the number of threads, 1 to 1,024; ``None`` = one per core.
    /// - ``progress``: ``False`` = not shown; a function = called with the progress, as ``a2store`` describes;
    ///   otherwise a bar is shown if standard error is a terminal.
    /// - ``compact``: ``True`` = boards are uint64 and values are four numbers or nulls. ``False`` = both are lists, of
    ///   cells and of objects.
    ///
    /// Raises ``OSError`` if the file cannot be written, ``ValueError`` for an option out of range, and
    /// ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> report = a2store.PackReader.open("games.a2pack").to_jsonl("games.jsonl")
    /// >>> report.num_runs, report.num_steps
    /// (20, 29320)
    #[pyo3(signature = (path, parallel=true, by_step=false, workers=None, progress=None, *, compact=false))]
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)] // The shape that pyo3 asks for.
    fn to_jsonl<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        parallel: bool,
        by_step: bool,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
        compact: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = JsonlOptions { by_step, compact, parallel, workers: workers.map(Bounded::get) };
        let pack = self.pack()?;
        let report = interruptible(py, progress, |progress, cancel| pack.to_jsonl(&path, &options, progress, cancel))?;
        report.into_instance(py)
    }

    /// The statistics. They are read from the pack if it has them, and otherwise computed once, in parallel.
    ///
    /// Raises ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> a2store.PackReader.open("games.a2pack").stats
    /// PackStats(count=20, total_steps=29320, min_len=482, max_len=3773, mean_len=1466.0)
    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pack = self.pack()?;
        checking(py, |cancel| pack.stats(&(), cancel))?.into_instance(py)
    }

    /// Decode every run, compare every checksum, and return a list of all problems.
    ///
    /// - ``sample``: check only this number of runs, evenly spread; ``None`` = all.
    /// - ``workers``, ``progress``: as in ``to_jsonl``.
    ///
    /// Raises ``KeyboardInterrupt`` on Ctrl-C.
    ///
    /// >>> a2store.PackReader.open("games.a2pack").validate()
    /// []
    #[pyo3(signature = (*, sample=None, workers=None, progress=None))]
    fn validate(
        &self,
        py: Python<'_>,
        sample: Option<Bounded<usize, 0, { usize::MAX as i128 }>>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Vec<String>> {
        let sample = sample.map(Bounded::get);
        let options = ValidateOptions { sample, workers: workers.map(Bounded::get) };
        let pack = self.pack()?;
        let report = interruptible(py, progress, |progress, cancel| pack.validate(&options, progress, cancel))?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }
}

impl PyPackReader {
    /// Returns the indices of runs; negative ones count from the end.
    fn places(&self, indices: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let wrong =
            |found: &Bound<'_, PyAny>| PyTypeError::new_err(format!("indices: expected integers, found {found}"));
        let place = |index: PyResult<Bound<'_, PyAny>>| {
            let index = index?;
            self.place(exact_integer(&index).ok_or_else(|| wrong(&index))?)
        };
        indices.try_iter().map_err(|_| wrong(indices))?.map(place).collect()
    }
}
