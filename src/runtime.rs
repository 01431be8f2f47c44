//! The threads on which asynchronous work runs, and ways of waiting for it.

use crate::error::{Error, Result};
use crate::process::{PerProcess, silence_panics};
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinHandle;

/// Planning descends into expressions: address space for deep ones, which takes no memory until it is used.
const STACK: usize = 64 << 20;
/// How often whoever waits for work asks whether it should stop.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

/// The threads that queries run on and object stores are spoken to from, one per core, shared by all of the process.
struct Pool {
    process: u32,
    state: Mutex<State>,
}

struct State {
    /// `None` once its threads were told to end.
    runtime: Option<Runtime>,
    users: usize,
    retired: bool,
}

/// A hold on the threads: they last at least as long.
pub(crate) struct Threads {
    pool: &'static Pool,
    handle: Handle,
}

static POOL: PerProcess<Pool> = PerProcess::new();

/// The threads to run asynchronous work on.
///
/// Threads do not survive a fork, so a child gets its own.
pub(crate) fn runtime() -> Result<Threads> {
    loop {
        let pool = POOL.get_or_make(Pool::new)?;
        let mut state = pool.lock();
        if let (Some(runtime), false) = (&state.runtime, state.retired) {
            let handle = runtime.handle().clone();
            state.users += 1;
            return Ok(Threads { pool, handle });
        }
    }
}

impl Pool {
    fn new() -> Result<Pool> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.thread_name("a2store-query").thread_stack_size(STACK).enable_all();
        // Tokio catches a task's panic and returns an error to the caller that awaits the task.
        let builder = builder.on_thread_start(|| _ = silence_panics());
        let runtime = Some(builder.build().map_err(Error::from)?);
        let state = Mutex::new(State { runtime, users: 0, retired: false });
        Ok(Pool { process: std::process::id(), state })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    /// Whoever lost the race to make one may be where nothing may block.
    fn drop(&mut self) {
        if let Some(runtime) = self.lock().runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Threads {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn spawn<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(future)
    }

    /// Whether they are this process's, rather than those of one that it was forked from.
    pub(crate) fn are_here(&self) -> bool {
        self.pool.process == std::process::id()
    }

    /// Leaves the threads to the work that they do, so that the next query gets new ones. They end with that work.
    ///
    /// A task ends only where it yields, and some operators compute for long without yielding: after one was cancelled,
    /// its threads cannot be counted on.
    pub(crate) fn retire(&self) {
        POOL.retire(self.pool);
        self.pool.lock().retired = true;
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A child of the process has none of its threads, and perhaps a lock that nobody will open.
        if !self.are_here() {
            return;
        }
        let mut state = self.pool.lock();
        state.users -= 1;
        let unused = if state.retired && state.users == 0 { state.runtime.take() } else { None };
        drop(state);
        if let Some(runtime) = unused {
            runtime.shutdown_background();
        }
    }
}

/// Waits for a future that runs on [`runtime`]'s threads; unlike Tokio's own, it may be called from anywhere.
pub(crate) fn block_on<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    block_on_unless(future, || Ok(()))
}

/// As [`block_on`], as long as `check`, which is asked now and then, finds nothing wrong.
pub(crate) fn block_on_unless<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
    mut check: impl FnMut() -> Result<()>,
) -> Result<T> {
    let threads = runtime()?;
    let mut task = threads.spawn(future);
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

/// Waits for a future so long, on this thread's own clock: the runtime's timers stand still while its threads compute.
pub(crate) fn block_for<T>(period: Duration, future: impl Future<Output = T>) -> Option<T> {
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
    fn work_that_does_not_yield_is_left_behind() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let stuck = async move {
            let _ = receiver.recv();
            Ok(())
        };
        let first: *const Pool = runtime().unwrap().pool;
        let error = block_on_unless(stuck, || Err(ErrorKind::Cancelled.into())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Cancelled));
        let next = runtime().unwrap();
        assert!(!std::ptr::eq(next.pool, first));
        assert_eq!(block_on(async { Ok(7) }).unwrap(), 7);
        drop(sender);
    }
}
