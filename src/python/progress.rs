//! The argument `progress`: a bar in the terminal, nothing, or a function.

use crate::progress::{Progress, ProgressBar, Unit};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between two calls of a function.
const PERIOD: Duration = Duration::from_millis(200);

/// How to report the progress of long work.
pub(super) enum ProgressOption {
    /// A bar, if standard error is a terminal.
    Bar,
    Nothing,
    /// A function of a dict, which the thread that waits for the work calls.
    Function(Py<PyAny>),
}

impl From<Option<bool>> for ProgressOption {
    fn from(shown: Option<bool>) -> Self {
        if shown == Some(false) { ProgressOption::Nothing } else { ProgressOption::Bar }
    }
}

impl From<Option<ProgressOption>> for ProgressOption {
    fn from(option: Option<ProgressOption>) -> Self {
        option.unwrap_or(ProgressOption::Bar)
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for ProgressOption {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(shown) = value.cast::<PyBool>() {
            return Ok(Some(shown.is_true()).into());
        }
        if value.is_callable() {
            return Ok(ProgressOption::Function(value.to_owned().unbind()));
        }
        let found = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("progress: expected None, a bool or a function, found {found}")))
    }
}

/// A receiver of progress, and the warnings so far.
pub(super) struct Reporter {
    bar: ProgressBar,
    function: Option<Py<PyAny>>,
    counts: Mutex<Counts>,
    warnings: Mutex<Vec<String>>,
}

/// What is known of the progress.
struct Counts {
    what: &'static str,
    unit: Unit,
    done: u64,
    total: u64,
    begun: Instant,
    called: Option<Instant>,
}

impl Reporter {
    pub(super) fn new(option: ProgressOption) -> Reporter {
        let (bar, function) = match option {
            ProgressOption::Bar => (ProgressBar::for_terminal(), None),
            ProgressOption::Nothing => (ProgressBar::hidden(), None),
            ProgressOption::Function(function) => (ProgressBar::hidden(), Some(function)),
        };
        let counts = Counts { what: "", unit: Unit::Runs, done: 0, total: 0, begun: Instant::now(), called: None };
        Reporter { bar, function, counts: Mutex::new(counts), warnings: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the function if the work has begun and the last call is long ago.
    pub(super) fn call(&self, py: Python<'_>) -> PyResult<()> {
        let is_due = {
            let counts = self.counts();
            !counts.what.is_empty() && counts.called.is_none_or(|called| called.elapsed() >= PERIOD)
        };
        if is_due { self.call_now(py) } else { Ok(()) }
    }

    /// Calls the function after the work has succeeded.
    pub(super) fn call_at_end(&self, py: Python<'_>) -> PyResult<()> {
        self.call_now(py)
    }

    fn call_now(&self, py: Python<'_>) -> PyResult<()> {
        let Some(function) = &self.function else { return Ok(()) };
        let state = PyDict::new(py);
        {
            let mut counts = self.counts();
            counts.called = Some(Instant::now());
            state.set_item("what", counts.what)?;
            state.set_item("unit", counts.unit.name())?;
            state.set_item("done", counts.done)?;
            state.set_item("total", counts.total)?;
            state.set_item("seconds", counts.begun.elapsed().as_secs_f64())?;
        }
        function.call1(py, (state,)).map(drop)
    }

    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Progress for Reporter {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        self.bar.begin(what, unit, total);
        let mut counts = self.counts();
        *counts = Counts { what, unit, done: 0, total, begun: counts.begun, called: counts.called };
    }

    fn expect(&self, by: u64) {
        self.bar.expect(by);
        self.counts().total += by;
    }

    fn advance(&self, by: u64) {
        self.bar.advance(by);
        if self.function.is_some() {
            self.counts().done += by;
        }
    }

    fn end(&self) {
        self.bar.end();
    }

    fn warn(&self, text: &str) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
    }
}
