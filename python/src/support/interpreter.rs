//! Leaving and entering the interpreter, also while it shuts down.
//!
//! CPython below 3.14 ends each thread that enters an interpreter which is shutting down. It unwinds the thread's stack,
//! and the process crashes if a frame of Rust is on this stack. So once the interpreter shuts down, other threads wait
//! forever before they enter, and the interpreter waits for the threads that are inside.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
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
    pub(crate) fn new() -> Inside {
        NUM_INSIDE.fetch_add(1, Ordering::SeqCst);
        OWN.set(OWN.get() + 1);
        Inside
    }

    /// Waits forever if the interpreter is shutting down. The thread must be detached.
    pub(crate) fn entering() -> Inside {
        let inside = Inside::new();
        if IS_ENDING.load(Ordering::SeqCst) && !ENDS.get() {
            NUM_INSIDE.fetch_sub(OWN.take(), Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        inside
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
    let process = std::process::id();
    let end = move |args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| -> PyResult<()> {
        ENDS.set(true);
        IS_ENDING.store(true, Ordering::SeqCst);
        let begun = Instant::now();
        // A forked child has none of its parent's threads.
        while process == std::process::id() && begun.elapsed() < LONGEST {
            // A thread inside may wait for the interpreter.
            args.py().detach(|| std::thread::sleep(Duration::from_millis(1)));
            if NUM_INSIDE.load(Ordering::SeqCst) == 0 {
                break;
            }
            args.py().check_signals()?;
        }
        Ok(())
    };
    py.import("atexit")?.call_method1("register", (PyCFunction::new_closure(py, None, None, end)?,)).map(drop)
}
