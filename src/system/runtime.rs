//! The threads for asynchronous work, and functions that wait for it.

use crate::error::{Error, Result};
use crate::system::process::{PerProcess, ProcessId, lock, silence_panics};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};

/// The stack size of a thread. Planning deep expressions recurses deeply. Unused stack costs only address space.
const STACK: usize = 64 << 20;
/// The interval at which a waiting thread checks whether to cancel.
pub const PERIOD: Duration = Duration::from_millis(50);

/// The threads for queries and object stores, one per core, shared by the whole process. They end with the last
/// reference.
pub struct Threads {
    process: ProcessId,
    handle: Handle,
    /// `None` after the shutdown.
    runtime: Option<Runtime>,
}

/// Returns the threads that the next call of [`runtime`] returns; `None` = it starts new ones.
fn current() -> Result<MutexGuard<'static, Option<Arc<Threads>>>> {
    static CURRENT: PerProcess<Mutex<Option<Arc<Threads>>>> = PerProcess::new();
    CURRENT.get_or_make(|| Ok(Mutex::new(None))).map(lock)
}

/// Returns the threads for asynchronous work.
///
/// Threads do not survive a fork, so a forked child starts its own.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system starts no threads.
pub fn runtime() -> Result<Arc<Threads>> {
    let mut current = current()?;
    if let Some(threads) = &*current {
        return Ok(Arc::clone(threads));
    }
    Ok(Arc::clone(current.insert(Arc::new(Threads::new()?))))
}

impl Threads {
    fn new() -> Result<Threads> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.thread_name("a2store-query").thread_stack_size(STACK).enable_all();
        // Tokio catches a task's panic and returns an error to the caller that awaits the task.
        let builder = builder.on_thread_start(|| _ = silence_panics());
        let runtime = builder.build().map_err(Error::from)?;
        let (process, handle) = (ProcessId::current(), runtime.handle().clone());
        Ok(Threads { process, handle, runtime: Some(runtime) })
    }

    /// Returns a handle to the threads.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns whether the current process started the threads, and not a process that it was forked from.
    #[must_use]
    pub fn are_here(&self) -> bool {
        self.process.is_current()
    }

    /// Makes the next query start new threads. These threads end after their current work.
    ///
    /// Call this after a cancellation. A task can only be cancelled where it yields, and some operators compute for
    /// long without yielding, so the old threads may stay busy.
    pub(crate) fn retire(self: &Arc<Threads>) {
        if let Ok(mut current) = current() {
            // `self` keeps the threads, so this does not end them while the lock is held.
            current.take_if(|threads| Arc::ptr_eq(threads, self));
        }
    }
}

impl Drop for Threads {
    /// Shuts down without blocking, because the last user may run async code.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            if self.process.is_current() {
                runtime.shutdown_background();
            } else {
                // A forked child has none of these threads, and they may have held locks at the fork.
                std::mem::forget(runtime);
            }
        }
    }
}

/// Runs a future on the threads of [`runtime`] and waits for it. Unlike Tokio's `block_on`, it may be called from any
/// thread.
pub(crate) fn block_on<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    block_on_unless(future, || Ok(()))
}

/// Does the same as [`block_on`], but stops with the error of `check` if that fails. `check` is called every
/// [`PERIOD`].
pub(crate) fn block_on_unless<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
    mut check: impl FnMut() -> Result<()>,
) -> Result<T> {
    let threads = runtime()?;
    let mut task = threads.handle().spawn(future);
    loop {
        match block_for(PERIOD, &mut task) {
            Some(Ok(outcome)) => return outcome,
            Some(Err(error)) => return Err(Error::query(format!("the query engine failed: {error}"))),
            None => check().inspect_err(|_| {
                task.abort();
                threads.retire();
            })?,
        }
    }
}

/// Polls a future on this thread for at most `period`. It does not use the runtime's timers, which stop while all its
/// threads compute.
pub fn block_for<T>(period: Duration, future: impl Future<Output = T>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let end = Instant::now() + period;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        let rest = end.checked_duration_since(Instant::now())?;
        std::thread::park_timeout(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn cancelled_work_that_does_not_yield_is_abandoned() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let stuck = async move {
            let _ = receiver.recv();
            Ok(())
        };
        let first = runtime().unwrap();
        let error = block_on_unless(stuck, || Err(ErrorKind::Cancelled.into())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled));
        let next = runtime().unwrap();
        assert!(!Arc::ptr_eq(&next, &first));
        assert_eq!(block_on(async { Ok(7) }).unwrap(), 7);
        drop(sender);
    }
}
