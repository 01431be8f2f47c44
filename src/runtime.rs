//! The threads on which asynchronous work runs, and ways of waiting for it.

use crate::error::{Error, Result};
use crate::process::PerProcess;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Planning descends into expressions: address space for deep ones, which takes no memory until it is used.
const STACK: usize = 64 << 20;

/// The threads that queries run on and object stores are spoken to from, one per core, shared by all of the process.
///
/// Threads do not survive a fork, so a child gets its own.
pub(crate) fn runtime() -> &'static Runtime {
    let make = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.thread_name("a2store-query").thread_stack_size(STACK).enable_all();
        builder.build().map_err(Error::from)
    };
    // Without threads nothing here can work, and no caller could do better than end.
    #[allow(clippy::expect_used)]
    RUNTIME.get_or_make(make).expect("the system has threads")
}

static RUNTIME: PerProcess<Runtime> = PerProcess::new();

/// Leaves the threads to the work that they do, so that the next query gets new ones.
///
/// A task ends only where it yields, and some operators compute for long without yielding: after one was cancelled, its
/// threads cannot be counted on.
pub(crate) fn retire_runtime() {
    RUNTIME.retire();
}

/// Waits for a future that runs on [`runtime`]'s threads; unlike Tokio's own, it may be called from anywhere.
pub(crate) fn block_on<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T>
where
    Result<T>: Send,
{
    match futures::executor::block_on(runtime().spawn(future)) {
        Ok(outcome) => outcome,
        Err(error) => Err(Error::query(format!("the query engine failed: {error}"))),
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
