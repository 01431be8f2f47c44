//! Threads of parallel work.

use crate::error::{Error, Result};

/// More threads than any machine has cores, and few enough to start.
const MAX_WORKERS: usize = 1024;

/// Threads of their own for one piece of work; `None` = one per core.
pub(crate) fn pool(name: &'static str, workers: Option<usize>) -> Result<rayon::ThreadPool> {
    if let Some(workers) = workers.filter(|workers| !(1..=MAX_WORKERS).contains(workers)) {
        return Err(Error::argument("workers", format!("1..={MAX_WORKERS}"), workers));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(workers.unwrap_or(0))
        .thread_name(move |i| format!("a2store-{name}-{i}"))
        .build()
        .map_err(|error| Error::from(std::io::Error::other(error)))
}
