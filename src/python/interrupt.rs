//! Long operations that Ctrl-C can stop.

use crate::error::Result;
use crate::progress::{Cancellable, Progress, ProgressBar, Unit};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The time between two checks for signals.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs `work` on another thread while this one checks for signals. After a signal, cancels the work, waits for its
/// end, and raises the signal handler's exception.
///
/// `progress`: whether to draw a bar; `None` draws one if standard error is a terminal.
pub(super) fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<bool>,
    work: impl FnOnce(&dyn Progress) -> Result<T> + Send,
) -> PyResult<T> {
    let bar = bar(progress);
    let cancelled = AtomicBool::new(false);
    let progress = &Cancellable::new(&bar, &cancelled);
    py.detach(|| {
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let worker = scope.spawn(move || sender.send(work(progress)));
            let signal = match wait(&receiver) {
                WaitEnd::With(outcome) => return outcome.map_err(PyErr::from),
                WaitEnd::Panicked => None,
                WaitEnd::Signalled(signal) => Some(signal),
            };
            cancelled.store(true, Ordering::Relaxed);
            match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => Err(signal.unwrap_or_else(ended_silently)),
            }
        })
    })
}

/// Runs `work` like [`interruptible`], but after a signal does not wait for its end, because it may hang in a file
/// system or network call. Cancelled work must change nothing.
pub(super) fn abandonable<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<bool>,
    work: impl FnOnce(&dyn Progress) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = channel();
    let (bar, is_cancelled) = (bar(progress), Arc::clone(&cancelled));
    py.detach(move || {
        let worker = std::thread::spawn(move || sender.send(work(&Cancellable::new(&bar, &is_cancelled))));
        match wait(&receiver) {
            WaitEnd::With(outcome) => outcome.map_err(PyErr::from),
            WaitEnd::Signalled(signal) => {
                cancelled.store(true, Ordering::Relaxed);
                Err(signal)
            }
            WaitEnd::Panicked => match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(_) => Err(ended_silently()),
            },
        }
    })
}

/// The reason why waiting for work ended.
enum WaitEnd<T> {
    With(Result<T>),
    Signalled(PyErr),
    Panicked,
}

/// Waits for a result of the work, or for a signal.
fn wait<T>(receiver: &Receiver<Result<T>>) -> WaitEnd<T> {
    loop {
        match receiver.recv_timeout(PERIOD) {
            Ok(outcome) => return WaitEnd::With(outcome),
            Err(RecvTimeoutError::Disconnected) => return WaitEnd::Panicked,
            Err(RecvTimeoutError::Timeout) => {
                if let Err(signal) = Python::attach(|py| py.check_signals()) {
                    return WaitEnd::Signalled(signal);
                }
            }
        }
    }
}

/// Returns the error of an unreachable case: the worker sends its result before it ends.
fn ended_silently() -> PyErr {
    PyRuntimeError::new_err("the worker thread ended without a result")
}

fn bar(progress: Option<bool>) -> ProgressBar {
    if progress == Some(false) { ProgressBar::hidden() } else { ProgressBar::for_terminal() }
}

/// Runs `work` on this thread, and checks for signals whenever the work checks for cancellation. After a signal, the
/// work stops and the signal handler's exception is raised. Costs nothing until the work checks.
pub(super) fn checking<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Progress) -> Result<T> + Send) -> PyResult<T> {
    let signals = KeptSignal::default();
    let outcome = py.detach(|| work(&signals));
    let signal = signals.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    signal.map_or_else(|| outcome.map_err(PyErr::from), Err)
}

/// A progress listener that stores the exception of the first signal.
#[derive(Default)]
struct KeptSignal(Mutex<Option<PyErr>>);

impl Progress for KeptSignal {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}

    fn is_cancelled(&self) -> bool {
        let mut signal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if signal.is_none() {
            *signal = Python::attach(|py| py.check_signals()).err();
        }
        signal.is_some()
    }
}

/// A progress listener that stops a stream when a signal arrives. The code that reads the stream sees only an error. So
/// the signal is raised again, and the interpreter handles it after that code has returned.
pub(super) struct Signals;

impl Progress for Signals {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}

    #[allow(unsafe_code)]
    fn is_cancelled(&self) -> bool {
        use pyo3::ffi::{PyErr_CheckSignals, PyErr_Clear, PyErr_SetInterrupt, PyGILState_Ensure, PyGILState_Release};
        // Do not use PyO3 here, because it keeps its own count of attachments. Foreign code, called from a frame of
        // PyO3, may have released the interpreter before it reads. SAFETY: between the first and the last call this
        // thread is attached, even if it was not before, and no references are held.
        unsafe {
            let state = PyGILState_Ensure();
            let signalled = PyErr_CheckSignals() != 0;
            if signalled {
                PyErr_Clear();
                PyErr_SetInterrupt();
            }
            PyGILState_Release(state);
            signalled
        }
    }
}
