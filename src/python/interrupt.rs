//! Long work that Ctrl-C can stop.

use crate::error::Result;
use crate::progress::{Cancellable, Progress, ProgressBar, Unit};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a signal is looked for.
const PERIOD: Duration = Duration::from_millis(50);

/// Runs `work` on another thread while this one watches for signals. After one, the work is told to stop and the signal
/// handler's exception is raised.
///
/// `progress`: whether to draw a bar; `None` = where standard error is a terminal.
pub(super) fn interruptible<T: Send>(
    py: Python<'_>,
    progress: Option<bool>,
    work: impl FnOnce(&dyn Progress) -> Result<T> + Send,
) -> PyResult<T> {
    let bar = if progress == Some(false) { ProgressBar::hidden() } else { ProgressBar::for_terminal() };
    let cancelled = AtomicBool::new(false);
    let progress = &Cancellable::new(&bar, &cancelled);
    py.detach(|| {
        std::thread::scope(|scope| {
            let (sender, receiver) = channel();
            let worker = scope.spawn(move || sender.send(work(progress)));
            let mut signal = None;
            loop {
                match receiver.recv_timeout(PERIOD) {
                    Ok(outcome) => return signal.map_or_else(|| outcome.map_err(PyErr::from), Err),
                    Err(RecvTimeoutError::Timeout) if signal.is_none() => {
                        if let Err(error) = Python::attach(|py| py.check_signals()) {
                            signal = Some(error);
                            cancelled.store(true, Ordering::Relaxed);
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => match worker.join() {
                        Err(panic) => std::panic::resume_unwind(panic),
                        Ok(_) => unreachable!("the worker sends before it ends"),
                    },
                }
            }
        })
    })
}

/// Runs `work` on this thread, which looks for signals itself whenever the work asks whether to stop. After one, the work
/// stops and the signal handler's exception is raised. Costs nothing until the work asks.
pub(super) fn checking<T: Send>(py: Python<'_>, work: impl FnOnce(&dyn Progress) -> Result<T> + Send) -> PyResult<T> {
    let signals = KeptSignal::default();
    let outcome = py.detach(|| work(&signals));
    let signal = signals.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    signal.map_or_else(|| outcome.map_err(PyErr::from), Err)
}

/// Keeps the exception of the first signal.
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

/// Stops a stream that foreign code reads. The signal is raised again, for the interpreter to meet once that code, which
/// only hears of an error, has returned.
pub(super) struct Signals;

impl Progress for Signals {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}

    #[allow(unsafe_code)]
    fn is_cancelled(&self) -> bool {
        use pyo3::ffi::{PyErr_CheckSignals, PyErr_Clear, PyErr_SetInterrupt, PyGILState_Ensure, PyGILState_Release};
        // Not through PyO3, which counts by itself whether this thread is attached: code of others, called from a frame of
        // PyO3's, may have let go of the interpreter before it reads.
        // SAFETY: between the first and the last call this thread is attached, whoever else has been, and no references
        // are held.
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
