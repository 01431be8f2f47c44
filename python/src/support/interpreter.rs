//! Leaving and entering the interpreter, also while it shuts down.
//!
//! CPython below 3.14 ends each thread that enters an interpreter which is shutting down. It unwinds the thread's
//! stack, and the process crashes if a frame of Rust is on this stack. So once the interpreter shuts down, other
//! threads wait forever before they enter, and the interpreter waits for the threads that are inside. These run Python
//! functions that a caller gave, or Python code of this package. Threads that convert arguments are not counted.

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCFunction, PyDict, PyTuple};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest wait for threads that are inside when the interpreter shuts down.
const LONGEST: Duration = Duration::from_secs(5);

static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The number of [`Inside`] of all threads that do not run detached work.
static NUM_INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's share of `NUM_INSIDE`.
    static OWN: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread shuts the interpreter down.
    static ENDS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, a thread enters the interpreter, or runs Python code below frames of Rust.
pub(crate) struct Inside;

impl Inside {
    /// Begins a call of Python code. Waits forever if the interpreter is shutting down.
    pub(crate) fn new(py: Python<'_>) -> Inside {
        if IS_ENDING.load(Ordering::SeqCst) {
            py.detach(|| drop(Inside::entering()));
        }
        Inside::counted()
    }

    /// Waits forever if the interpreter is shutting down. The thread must be detached.
    pub(crate) fn entering() -> Inside {
        let inside = Inside::counted();
        if IS_ENDING.load(Ordering::SeqCst) && !ENDS.get() {
            NUM_INSIDE.fetch_sub(OWN.take(), Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        inside
    }

    fn counted() -> Inside {
        NUM_INSIDE.fetch_add(1, Ordering::SeqCst);
        OWN.set(OWN.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        NUM_INSIDE.fetch_sub(1, Ordering::SeqCst);
        OWN.set(OWN.get() - 1);
    }
}

/// A thread's share of `NUM_INSIDE`, which is taken back while the thread runs detached work.
struct Outside(usize);

impl Outside {
    fn new() -> Outside {
        let own = OWN.take();
        NUM_INSIDE.fetch_sub(own, Ordering::SeqCst);
        Outside(own)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        NUM_INSIDE.fetch_add(self.0, Ordering::SeqCst);
        OWN.set(self.0);
    }
}

/// Leaves the interpreter, runs `work`, and enters the interpreter again.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (done, _inside) = py.detach(|| {
        drop(Inside::entering());
        let outside = Outside::new();
        let done = work();
        drop(outside);
        (done, Inside::entering())
    });
    done
}

/// Enters the interpreter from a detached thread.
pub(crate) fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    let _inside = Inside::entering();
    Python::attach(work)
}

/// Makes the interpreter wait at its end for the threads that are inside.
pub(crate) fn wait_at_exit(py: Python<'_>) -> PyResult<()> {
    if py.version_info() >= (3, 14) {
        return Ok(());
    }
    let exit = Exit;
    let keep = move |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| _ = &exit;
    py.import("atexit")?.call_method1("register", (PyCFunction::new_closure(py, None, None, keep)?,))?;
    // A forked child has only the thread that forked.
    let reset = |_: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| NUM_INSIDE.store(OWN.get(), Ordering::SeqCst);
    let reset = PyCFunction::new_closure(py, None, None, reset)?;
    let options = [("after_in_child", reset)].into_py_dict(py)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&options)).map(drop)
}

/// A value of a function that `atexit` keeps. `atexit` drops it after it has called all functions. Some of these may
/// wait for threads that use a2store.
struct Exit;

impl Drop for Exit {
    fn drop(&mut self) {
        Python::attach(|py| {
            if let Err(error) = close(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// Lets no other thread enter the interpreter, and waits for the threads that are inside.
fn close(py: Python<'_>) -> PyResult<()> {
    // `atexit` also drops its functions in a child of `multiprocessing`, which goes on.
    if py.import("threading")?.call_method0("main_thread")?.call_method0("is_alive")?.is_truthy()? {
        return Ok(());
    }
    ENDS.set(true);
    IS_ENDING.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        // A thread inside may wait for the interpreter.
        py.detach(|| std::thread::sleep(Duration::from_millis(1)));
        if NUM_INSIDE.load(Ordering::SeqCst) == 0 {
            break;
        }
        py.check_signals()?;
    }
    Ok(())
}
