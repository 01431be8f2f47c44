//! The threads for parallel work.

use crate::error::{Error, Result};
use crate::system::process::PerProcess;

/// The largest allowed number of threads: more than any machine has cores, but few enough to start.
pub const MAX_WORKERS: usize = 1024;

/// Returns the threads that all short tasks share, one per core.
///
/// A forked child has none of its parent's threads and would wait for them forever, so it starts its own.
pub(crate) fn shared() -> Result<&'static rayon::ThreadPool> {
    static SHARED: PerProcess<rayon::ThreadPool> = PerProcess::new();
    SHARED.get_or_make(|| pool("shared", None))
}

/// Starts separate threads for one task; `None` = one per core.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a number out of range, and [`ErrorKind::Io`](crate::ErrorKind::Io) if the system
/// starts no threads.
pub fn pool(name: &'static str, workers: Option<usize>) -> Result<rayon::ThreadPool> {
    workers.map_or(Ok(()), |workers| Error::check_range("workers", 1..=MAX_WORKERS, workers))?;
    rayon::ThreadPoolBuilder::new()
        .num_threads(workers.unwrap_or(0))
        .thread_name(move |i| format!("a2store-{name}-{i}"))
        .build()
        .map_err(Error::other)
}

/// Runs `work` on this thread and on up to `num_threads - 1` others. If the system starts fewer threads, fewer run it.
/// So `work` must take one part after another until no parts are left.
///
/// # Panics
/// If `work` panics on any thread.
pub(crate) fn side_by_side(num_threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let others: Vec<_> =
            (1..num_threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, &work).ok()).collect();
        work();
        for thread in others {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}
