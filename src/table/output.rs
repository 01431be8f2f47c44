//! The destination of rows from several threads, the order in which threads append, and the first error that
//! stops them.

use super::categories::Recoding;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, check};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The first error of several threads. It makes the others stop.
#[derive(Default)]
pub(super) struct Stop {
    error: Mutex<Option<Error>>,
    raised: AtomicBool,
}

impl Stop {
    pub(super) fn check(&self, progress: &dyn Progress) -> Result<()> {
        if self.raised.load(Ordering::Relaxed) {
            return Err(ErrorKind::Cancelled.into());
        }
        check(progress)
    }

    pub(super) fn raise(&self, error: Error) {
        let mut slot = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(error);
        self.raised.store(true, Ordering::Relaxed);
    }

    pub(super) fn into_result(self) -> Result<()> {
        self.error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// The destination of appended rows.
pub(super) enum Output<'a> {
    /// The front of reserved memory.
    Memory { bytes: &'a mut [u8], len: usize, limit: u64 },
    /// A file, from `start` on.
    File { file: &'a File, path: &'a Path, start: u64, len: u64, crc: u32 },
}

impl Output<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Output::Memory { len, .. } => *len,
            Output::File { len, .. } => *len as usize,
        }
    }

    pub(super) fn append(&mut self, rows: &[u8]) -> Result<()> {
        match self {
            Output::Memory { bytes, len, limit } => {
                let end = *len + rows.len();
                let Some(slot) = bytes.get_mut(*len..end) else {
                    return Err(ErrorKind::MemoryLimit { needed: end as u64, limit: *limit }.into());
                };
                slot.copy_from_slice(rows);
                *len = end;
            }
            Output::File { file, path, start, len, crc } => {
                file.write_all_at(rows, *start + *len).map_err(|error| Error::io(*path, error))?;
                *crc = crc32c::crc32c_append(*crc, rows);
                *len += rows.len() as u64;
            }
        }
        Ok(())
    }

    /// Returns the hash of rows in a file, which it reads in pieces.
    pub(super) fn hash_file(&self, progress: &dyn Progress) -> Result<blake3::Hash> {
        let Output::File { file, path, start, len, .. } = self else {
            return Err(Error::query("the table's rows are not in a file"));
        };
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 8 << 20];
        let mut at = 0;
        while at < *len {
            check(progress)?;
            let piece = (*len - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..piece];
            file.read_exact_at(piece, *start + at).map_err(|error| Error::io(*path, error))?;
            hasher.update(piece);
            at += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// Replaces the codes of rows in a file, piece by piece.
    pub(super) fn recode(&mut self, recoding: &Recoding, progress: &dyn Progress) -> Result<()> {
        let Output::File { file, path, start, len, crc } = self else {
            return Ok(());
        };
        if !recoding.is_needed() {
            return Ok(());
        }
        let io = |error| Error::io(*path, error);
        let mut buffer = vec![0; recoding.whole_rows(8 << 20)];
        *crc = 0;
        let mut at = 0;
        while at < *len {
            check(progress)?;
            let piece = (*len - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..piece];
            file.read_exact_at(piece, *start + at).map_err(io)?;
            recoding.apply(piece);
            file.write_all_at(piece, *start + at).map_err(io)?;
            *crc = crc32c::crc32c_append(*crc, piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}

/// A value that threads access one after the other, in the order of their partitions.
pub(super) struct Turns<T> {
    state: Mutex<Turn<T>>,
    changed: Condvar,
}

pub(super) struct Turn<T> {
    pub(super) value: T,
    partition: usize,
}

pub(super) struct TurnGuard<'a, T> {
    state: MutexGuard<'a, Turn<T>>,
    changed: &'a Condvar,
}

impl<T> Turns<T> {
    pub(super) fn new(value: T) -> Self {
        Self { state: Mutex::new(Turn { value, partition: 0 }), changed: Condvar::new() }
    }

    pub(super) fn wait(&self, partition: usize, stop: &Stop, progress: &dyn Progress) -> Result<TurnGuard<'_, T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.partition != partition {
            stop.check(progress)?;
            // A failed thread never takes its turn, so waiting threads check for errors regularly.
            let pause = std::time::Duration::from_millis(20);
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(TurnGuard { state, changed: &self.changed })
    }

    pub(super) fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).value
    }
}

impl<T> TurnGuard<'_, T> {
    pub(super) fn next(mut self, partition: usize) {
        self.state.partition = partition;
        self.changed.notify_all();
    }
}

impl<T> std::ops::Deref for TurnGuard<'_, T> {
    type Target = Turn<T>;
    fn deref(&self) -> &Turn<T> {
        &self.state
    }
}

impl<T> std::ops::DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Turn<T> {
        &mut self.state
    }
}
