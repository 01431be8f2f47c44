//! Packs as `python/a2store/_packs.py` needs them for `a2store.PackReader`, which describes the methods.

use super::run::PyRun;
use super::table::PyStepTable;
use crate::error::{OrRaise, raised};
use crate::support::indices::row_indices;
use crate::support::integers::{Bounded, U64, Workers};
use crate::support::interpreter::detached;
use crate::support::interrupt::{cancellable, checking, interruptible};
use crate::support::numpy::copied_array;
use crate::support::progress::{HIDDEN, ProgressOption};
use crate::support::results::{IntoInstance, skips_errors};
use a2store::error::{Error, ErrorKind, Result};
use a2store::format::{JsonlOptions, PackReader, Rejected, RunFormat, RunSource, ValidateOptions};
use a2store::loader::Permutation;
use a2store::run::Run;
use a2store::system::cancellation::CancellationToken;
use a2store::system::process::lock;
use a2store::system::workers;
use a2store::table::{FromRunsOptions, HeldOut, StepTable};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::vec;

/// The number of runs between two checks for cancellation.
const BATCH_RUNS: usize = 512;
/// Bytes of run files that an iterator decodes at a time. A decoded step takes up to nine times as much memory as an
/// encoded one.
const WINDOW_BYTES: u64 = 4 << 20;
/// The maximum number of runs that an iterator decodes at a time.
const WINDOW_RUNS: usize = 256;

/// An open pack.
#[pyclass(frozen, name = "_Pack", module = "a2store")]
pub(crate) struct PyPack(PackReader);

#[pymethods]
impl PyPack {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, checksums: bool) -> PyResult<PyPack> {
        Ok(PyPack(detached(py, || PackReader::open(&path)).or_raise()?.with_checksums(checksums)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn kind(&self, place: usize) -> PyResult<String> {
        Ok(format!("v{}", self.0.format(place).or_raise()?.version()))
    }

    fn decode(&self, py: Python<'_>, place: usize) -> PyResult<PyRun> {
        Ok(pyrun(&self.0, place, detached(py, || self.0.decode(place)).or_raise()?))
    }

    /// Decode runs in parallel. Return the sound runs, and the exceptions of the others.
    ///
    /// With ``skip_errors``, return instances of ``Rejected`` instead of exceptions, and none for removed runs.
    fn decode_batch<'py>(
        &self,
        py: Python<'py>,
        places: Vec<usize>,
        workers: Option<Workers>,
        skip_errors: bool,
    ) -> PyResult<(Vec<PyRun>, Vec<Bound<'py, PyAny>>)> {
        let (pack, workers) = (&self.0, workers.map(Bounded::get));
        let runs = if places.len() <= BATCH_RUNS {
            detached(py, || decode_all(pack, &places, workers, CancellationToken::never())).or_raise()?
        } else {
            cancellable(py, |cancel| decode_all(pack, &places, workers, cancel))?
        };
        let (mut sound, mut errors) = (Vec::with_capacity(runs.len()), Vec::new());
        for (&place, run) in places.iter().zip(runs) {
            match run {
                Ok(run) => sound.push(pyrun(pack, place, run)),
                Err(_) if skip_errors && pack.is_absent(place) => {}
                Err(error) if skip_errors => {
                    let path = pack.path().unwrap_or(Path::new("")).to_path_buf();
                    errors.push(Rejected::new(path, error).into_instance(py)?);
                }
                Err(error) => errors.push(raised(error).into_value(py).into_bound(py).into_any()),
            }
        }
        Ok((sound, errors))
    }

    fn iter(&self, places: Option<Vec<usize>>) -> PyPackIterator {
        let places = places.unwrap_or_else(|| (0..self.0.len()).collect());
        PyPackIterator { pack: self.0.clone(), places, decoded: Mutex::new((Vec::new().into_iter(), 0)) }
    }

    fn to_table(&self, py: Python<'_>, workers: Option<Workers>, on_error: &str) -> PyResult<PyStepTable> {
        let mut options = FromRunsOptions::default();
        options.workers = workers.map(Bounded::get);
        options.skip_errors = skips_errors(on_error).or_raise()?;
        interruptible(py, HIDDEN, |progress, cancel| StepTable::from_pack(&self.0, &options, progress, cancel))
            .map(PyStepTable::new)
    }

    /// Return whether each run is held out by a split of this share.
    fn held_out<'py>(&self, py: Python<'py>, test_size: f64, seed: U64) -> PyResult<Bound<'py, PyAny>> {
        let held_out = HeldOut::new("test_size", test_size, seed.get()).or_raise()?;
        let games = checking(py, |cancel| self.0.games(cancel))?;
        let is_held_out: Vec<u8> = (0_u32..).zip(games).map(|(run, game)| u8::from(held_out.has(game, run))).collect();
        copied_array(py, &is_held_out, "|b1", None)
    }

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
        let mut options = JsonlOptions::default();
        options.by_step = by_step;
        options.compact = compact;
        options.workers = if parallel { workers.map(Bounded::get) } else { Some(1) };
        interruptible(py, progress, |progress, cancel| self.0.to_jsonl(&path, &options, progress, cancel))?
            .into_instance(py)
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        checking(py, |cancel| self.0.stats(&(), cancel))?.into_instance(py)
    }

    fn validate(
        &self,
        py: Python<'_>,
        sample: Option<Bounded<usize, 0, { usize::MAX as i128 }>>,
        workers: Option<Workers>,
        progress: Option<ProgressOption>,
    ) -> PyResult<Vec<String>> {
        let mut options = ValidateOptions::default();
        options.sample = sample.map(Bounded::get);
        options.workers = workers.map(Bounded::get);
        let report = interruptible(py, progress, |progress, cancel| self.0.validate(&options, progress, cancel))?;
        Ok(report.problems.iter().map(ToString::to_string).collect())
    }
}

/// An iterator over runs of a pack, which ``PackReader.iter`` and ``PackReader.iter_indices`` return.
///
/// ``next`` raises ``DecodeError`` at a damaged run; the call after it continues with the following run.
///
/// >>> runs = a2store.PackReader.open("games.a2pack").iter()
/// >>> next(runs).meta.num_steps
/// 646
#[pyclass(frozen, name = "PackIterator", module = "a2store")]
pub(crate) struct PyPackIterator {
    pack: PackReader,
    /// The indices of the runs.
    places: Vec<usize>,
    /// The runs that were decoded but not returned, and the number of runs that were returned.
    decoded: Mutex<(vec::IntoIter<Result<Run>>, usize)>,
}

#[pymethods]
impl PyPackIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyRun>> {
        let next = detached(py, || {
            let (decoded, returned) = &mut *lock(&self.decoded);
            if decoded.as_slice().is_empty() {
                let mut num_bytes = 0;
                let has_room = |&place: &usize| {
                    let has_room = num_bytes < WINDOW_BYTES;
                    num_bytes += RunSource::num_bytes(&self.pack, place);
                    has_room
                };
                let rest = self.places.iter().copied().skip(*returned);
                // The window is empty only if all runs were returned.
                let window: Vec<usize> = rest.take(WINDOW_RUNS).take_while(has_room).collect();
                *decoded = self.pack.decode_batch(&window).into_iter();
            }
            let next = self.places.get(*returned).copied().zip(decoded.next());
            *returned += usize::from(next.is_some());
            next
        });
        let Some((place, run)) = next else { return Ok(None) };
        Ok(Some(pyrun(&self.pack, place, run.or_raise()?)))
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let returned = detached(py, || lock(&self.decoded).1);
        format!("PackIterator({} runs, {returned} returned)", self.places.len())
    }
}

/// Return elements ``begin..end`` of a permutation of ``0..length`` as an array.
#[pyfunction]
#[pyo3(name = "_permutation")]
pub(crate) fn permutation(py: Python<'_>, length: u64, seed: u64, begin: u64, end: u64) -> PyResult<Bound<'_, PyAny>> {
    let permutation = Permutation::new(length, seed, 0).or_raise()?;
    let places: Vec<u64> = detached(py, || (begin..end).filter_map(|position| permutation.get(position)).collect());
    copied_array(py, &places, "<u8", None)
}

/// Return indices of rows as an array of places; negative ones count from the end.
#[pyfunction]
#[pyo3(name = "_row_indices")]
pub(crate) fn places_of_rows<'py>(
    py: Python<'py>,
    indices: &Bound<'py, PyAny>,
    length: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let places = row_indices(py, indices, length)?;
    if let Some(&place) = places.iter().find(|&&place| place >= length) {
        return Err(raised(Error::from(ErrorKind::IndexOutOfBounds { index: place.into(), len: length })));
    }
    copied_array(py, &places, "<u8", None)
}

/// Returns a decoded run with the format of its index entry.
fn pyrun(pack: &PackReader, index: usize, run: Run) -> PyRun {
    PyRun::new(run, pack.format(index).unwrap_or(RunFormat::A2run2), None)
}

/// Decodes runs on the shared threads, or on `workers` threads of a separate pool. Fails only if cancelled or without
/// threads.
fn decode_all(
    pack: &PackReader,
    places: &[usize],
    workers: Option<usize>,
    cancel: &CancellationToken,
) -> Result<Vec<Result<Run>>> {
    let decode = || {
        let mut runs = Vec::with_capacity(places.len());
        for places in places.chunks(BATCH_RUNS) {
            cancel.check()?;
            runs.extend(pack.decode_batch(places));
        }
        Ok(runs)
    };
    match workers {
        None => decode(),
        Some(_) => workers::pool("pack", workers)?.install(decode),
    }
}
