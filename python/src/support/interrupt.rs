//! Long operations that Ctrl-C can stop.

use super::interpreter::{Inside, attached, detached};
use super::logging::{deliver, deliver_all, listen};
use super::progress::{HIDDEN, ProgressOption, Reporter};
use crate::error::OrRaise;
use a2store::error::Result;
use a2store::system::cancellation::CancellationToken;
use a2store::system::process::lock;
use a2store::system::progress::Progress;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use std::ffi::CString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time between two checks for signals.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs `work` on another thread while this thread checks for signals. After a signal, cancels the work, waits for
/// its end, and raises the signal handler's exception.
///
/// This thread also calls the function of `progress`, if it is one, and sends log records to their handlers. An
/// exception of the function or of a handler has the effect of a signal. Warnings of the work become a `UserWarning`
/// after it has succeeded.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<ProgressOption>,
    work: impl FnOnce(&dyn Progress, &CancellationToken) -> Result<T> + Send,
) -> PyResult<T> {
    listen(py);
    let (reporter, cancel) = (&Reporter::new(py, progress), &CancellationToken::new());
    let (signal, outcome) = detached(py, || {
        std::thread::scope(|scope| {
            let (running, ended) = channel();
            let worker = scope.spawn(move || {
                let _running = running;
                work(reporter, cancel)
            });
            let signal = wait(&ended, reporter);
            if signal.is_err() {
                cancel.cancel();
            }
            (signal, worker.join())
        })
    });
    deliver_all(py);
    let done = reporter.end(py, signal.and_then(|()| outcome_of(outcome)))?;
    for text in reporter.take_warnings() {
        let text = CString::new(text.replace('\0', " "))?;
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &text, 1)?;
    }
    Ok(done)
}

/// Runs `work` like [`interruptible`], without a report of its progress.
pub(crate) fn cancellable<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&CancellationToken) -> Result<T> + Send,
) -> PyResult<T> {
    interruptible(py, HIDDEN, |_, cancel| work(cancel))
}

/// Runs `work` like [`interruptible`], but after a signal does not wait for its end, because it may hang in a file
/// system or network call. Cancelled work must change nothing.
pub(crate) fn abandonable<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<ProgressOption>,
    work: impl FnOnce(&dyn Progress, &CancellationToken) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    listen(py);
    let cancel = CancellationToken::new();
    let (running, ended) = channel();
    let reporter = Arc::new(Reporter::new(py, progress));
    let (of_wait, of_work, of_cancel) = (Arc::clone(&reporter), Arc::clone(&reporter), cancel.clone());
    let outcome = detached(py, move || {
        let worker = std::thread::spawn(move || {
            let _running = running;
            work(&*of_work, &of_cancel)
        });
        if let Err(signal) = wait(&ended, &of_wait) {
            cancel.cancel();
            return Err(signal);
        }
        Ok(worker.join())
    });
    deliver_all(py);
    reporter.end(py, outcome.and_then(outcome_of))
}

/// Waits until a thread drops the sender of `ended`, and reports the progress. Returns early with a signal's exception.
fn wait(ended: &Receiver<()>, reporter: &Reporter) -> PyResult<()> {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PERIOD) {
        attached(|py| {
            py.check_signals()?;
            deliver(py)?;
            reporter.call(py)
        })?;
    }
    Ok(())
}

/// Returns the outcome of a thread that has ended. A panic of that thread continues in this thread.
fn outcome_of<T>(joined: std::thread::Result<Result<T>>) -> PyResult<T> {
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).or_raise()
}

/// Runs `work` on this thread, and checks for signals whenever the work checks for cancellation. After a signal, the
/// work stops and the signal handler's exception is raised. Until the work checks, this costs only two
/// small allocations.
pub(crate) fn checking<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&CancellationToken) -> Result<T> + Send,
) -> PyResult<T> {
    let kept = Arc::new(Mutex::new(None));
    let cancel = {
        let kept = Arc::clone(&kept);
        CancellationToken::polling(move || {
            let mut signal = lock(&kept);
            if signal.is_none() {
                *signal = attached(|py| py.check_signals()).err();
            }
            signal.is_some()
        })
    };
    let outcome = detached(py, || work(&cancel));
    deliver_all(py);
    let signal = lock(&kept).take();
    signal.map_or_else(|| outcome.or_raise(), Err)
}

/// Returns whether a signal has arrived, and raises it again. A signal stops a stream, and the code that reads the
/// stream sees only an error. The interpreter handles the signal after that code has returned.
#[allow(unsafe_code)]
pub(crate) fn raised_again() -> bool {
    use pyo3::ffi::{PyErr_CheckSignals, PyErr_Clear, PyErr_SetInterrupt, PyGILState_Ensure, PyGILState_Release};
    let _inside = Inside::entering();
    // Do not use PyO3 here, because it keeps its own count of attachments. Foreign code, called from a frame of PyO3,
    // may have released the interpreter before it reads. SAFETY: between the first and the last call this thread is
    // attached, even if it was not before, and no references are held.
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
