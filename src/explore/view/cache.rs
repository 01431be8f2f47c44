//! The results that the server keeps between requests.

use super::statement::Statement;
use crate::archive::Archive;
use crate::query::RowFormat;
use crate::random;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Locks a value. Poisoning can be ignored: code that holds one of these locks does not panic, and the values
/// have no invariants.
pub(super) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ids of the runs in the order that was requested last, and the request.
pub(super) type LastOrder = Option<(String, Arc<[u32]>)>;

/// A report that is complete.
pub(super) struct CachedReport {
    /// The version and the request.
    pub(super) choice: String,
    /// The description of the report, with its address.
    pub(super) answer: Value,
    /// The last part of the address.
    pub(super) id: String,
    pub(super) html: Arc<str>,
}

/// The time within which a file must be downloaded.
const WAIT: Duration = Duration::from_secs(60);

/// The maximum number of waiting files.
pub(super) const MAX_WAITING: usize = 64;

/// The waiting files, by id.
#[derive(Default)]
pub(super) struct WaitingFiles(HashMap<String, WaitingFile>);

pub(super) struct WaitingFile {
    since: Instant,
    pub(super) archive: Archive,
    pub(super) statement: Statement,
    pub(super) format: RowFormat,
}

impl WaitingFiles {
    /// Adds a file and returns its id; `None` if too many files wait.
    pub(super) fn add(&mut self, archive: Archive, statement: Statement, format: RowFormat) -> Option<String> {
        self.0.retain(|_, file| file.since.elapsed() < WAIT);
        if self.0.len() >= MAX_WAITING {
            return None;
        }
        let id = random::id();
        self.0.insert(id.clone(), WaitingFile { since: Instant::now(), archive, statement, format });
        Some(id)
    }

    /// Removes a file and returns it, unless it waited too long.
    pub(super) fn take(&mut self, id: &str) -> Option<WaitingFile> {
        self.0.remove(id).filter(|file| file.since.elapsed() < WAIT)
    }
}
