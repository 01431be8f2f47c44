//! Described files that wait for their download.

use super::statement::Asked;
use crate::archive::Archive;
use crate::query::RowFormat;
use crate::random;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time within which a file must be downloaded.
const KEPT: Duration = Duration::from_secs(60);

/// The maximum number of waiting files.
pub(super) const MAX_WAITING: usize = 64;

/// The waiting files, by id.
#[derive(Default)]
pub(super) struct WaitingFiles(HashMap<String, WaitingFile>);

pub(super) struct WaitingFile {
    since: Instant,
    pub(super) archive: Archive,
    pub(super) asked: Asked,
    pub(super) format: RowFormat,
}

impl WaitingFiles {
    /// Adds a file and returns its id; `None` if too many files wait.
    pub(super) fn add(&mut self, archive: Archive, asked: Asked, format: RowFormat) -> Option<String> {
        self.0.retain(|_, file| file.since.elapsed() < KEPT);
        if self.0.len() >= MAX_WAITING {
            return None;
        }
        let id = random::id();
        self.0.insert(id.clone(), WaitingFile { since: Instant::now(), archive, asked, format });
        Some(id)
    }

    /// Removes a file and returns it, unless it waited too long.
    pub(super) fn take(&mut self, id: &str) -> Option<WaitingFile> {
        self.0.remove(id).filter(|file| file.since.elapsed() < KEPT)
    }
}
