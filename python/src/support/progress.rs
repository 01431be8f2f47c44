//! The argument `progress`: show a bar in a terminal or notebook, show lines in a log, show nothing, or call a
//! function.

use super::interpreter::Inside;
use a2store::system::process::lock;
use a2store::system::progress::{Progress, ProgressBar, Unit};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time between two calls of a function.
const PERIOD: Duration = Duration::from_millis(200);

/// How to report the progress of long work.
pub(crate) enum ProgressOption {
    /// A bar in a notebook or terminal, otherwise lines on standard error.
    Shown,
    Nothing,
    /// A function that takes a dict. The thread that waits for the work calls it.
    Function(Py<PyAny>),
}

/// The option of work that shows no progress.
pub(crate) const HIDDEN: Option<ProgressOption> = Some(ProgressOption::Nothing);

impl<'a, 'py> FromPyObject<'a, 'py> for ProgressOption {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(shown) = value.cast::<PyBool>() {
            return Ok(if shown.is_true() { ProgressOption::Shown } else { ProgressOption::Nothing });
        }
        if value.is_callable() {
            return Ok(ProgressOption::Function(value.to_owned().unbind()));
        }
        let found = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("progress: expected None, a bool or a function, found {found}")))
    }
}

/// A receiver of progress, and the warnings so far.
pub(crate) struct Reporter {
    bar: ProgressBar,
    /// The caller's function, or the bar of a notebook.
    function: Option<Py<PyAny>>,
    is_notebook: bool,
    begun: Instant,
    /// The time of the last call of the function.
    called: Mutex<Option<Instant>>,
    warnings: Mutex<Vec<String>>,
}

/// Returns the bar of a notebook, or `None` outside of notebooks.
fn notebook_bar(py: Python<'_>) -> Option<Py<PyAny>> {
    let is_loaded = py.import("sys").and_then(|sys| sys.getattr("modules")?.contains("ipykernel"));
    if !matches!(is_loaded, Ok(true)) {
        return None;
    }
    let bar = py.import("a2store._progress").and_then(|module| module.call_method0("notebook_bar"));
    bar.ok().filter(|bar| !bar.is_none()).map(Bound::unbind)
}

impl Reporter {
    pub(crate) fn new(py: Python<'_>, option: Option<ProgressOption>) -> Reporter {
        let is_shown = matches!(option, None | Some(ProgressOption::Shown));
        let function = match option {
            Some(ProgressOption::Function(function)) => Some(function),
            Some(ProgressOption::Nothing) => None,
            None | Some(ProgressOption::Shown) => notebook_bar(py),
        };
        let is_notebook = is_shown && function.is_some();
        let bar = if is_shown && !is_notebook { ProgressBar::for_stderr() } else { ProgressBar::hidden() };
        let (begun, called, warnings) = (Instant::now(), Mutex::default(), Mutex::default());
        Reporter { bar, function, is_notebook, begun, called, warnings }
    }

    /// Calls the function if the work has begun and at least `PERIOD` has passed since the last call.
    pub(crate) fn call(&self, py: Python<'_>) -> PyResult<()> {
        let has_begun = !self.bar.counts().0.is_empty();
        let is_due = has_begun && lock(&self.called).is_none_or(|called| called.elapsed() >= PERIOD);
        if is_due { self.call_now(py) } else { Ok(()) }
    }

    /// Ends the report: removes the bar of a notebook, and calls the function if the work succeeded. Returns
    /// the outcome of the work.
    pub(crate) fn end<T>(&self, py: Python<'_>, outcome: PyResult<T>) -> PyResult<T> {
        if let Some(notebook) = self.function.as_ref().filter(|_| self.is_notebook) {
            notebook.call_method0(py, "close")?;
            return outcome;
        }
        let done = outcome?;
        self.call_now(py)?;
        Ok(done)
    }

    fn call_now(&self, py: Python<'_>) -> PyResult<()> {
        let Some(function) = &self.function else { return Ok(()) };
        let _inside = Inside::new(py);
        *lock(&self.called) = Some(Instant::now());
        let (what, unit, done, total) = self.bar.counts();
        let state = PyDict::new(py);
        state.set_item("what", what)?;
        state.set_item("unit", unit.name())?;
        state.set_item("done", done)?;
        state.set_item("total", total)?;
        state.set_item("seconds", self.begun.elapsed().as_secs_f64())?;
        function.call1(py, (state,)).map(drop)
    }

    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.warnings))
    }
}

impl Progress for Reporter {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        self.bar.begin(what, unit, total);
    }

    fn expect(&self, by: u64) {
        self.bar.expect(by);
    }

    fn advance(&self, by: u64) {
        self.bar.advance(by);
    }

    fn end(&self) {
        self.bar.end();
    }

    fn warn(&self, text: &str) {
        lock(&self.warnings).push(text.to_owned());
    }
}
