//! Locks among the writers of one machine.

use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use tracing::info;

/// The time between two attempts to lock.
const PAUSE: Duration = Duration::from_millis(10);

/// An exclusive lock among the writers of this machine.
pub(super) struct Lock(File);

impl Lock {
    /// Locks a file that is created if it does not exist. Waits up to `wait` for other processes. `owner` is the path
    /// in errors, such as the archive's.
    pub(super) fn acquire(owner: &Path, path: &Path, wait: Duration, cancel: &CancellationToken) -> Result<Lock> {
        let file = File::options().create(true).append(true).open(path).map_err(|source| Error::io(path, source))?;
        let start = Instant::now();
        let mut waits = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) if start.elapsed() < wait => {
                    if !waits {
                        waits = true;
                        info!(
                            target: "a2store::retry",
                            archive = %owner.display(),
                            seconds = wait.as_secs_f64(),
                            "waiting for another writer's lock"
                        );
                    }
                    cancel.check()?;
                    std::thread::sleep(PAUSE.min(wait.saturating_sub(start.elapsed())));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = match wait.as_secs_f64() {
                        0.0 => "another process is writing to it".into(),
                        secs => format!("another process is writing to it, after {secs:.1} s of waiting"),
                    };
                    return Err(ErrorKind::Conflict { path: owner.to_path_buf(), what }.into());
                }
                Err(TryLockError::Error(source)) => return Err(Error::io(path, source)),
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the file open too, so closing the file would not unlock it.
        self.0.unlock().ok();
    }
}
