//! The status file `recording.json`. A folder contains it while its recording lasts. The recording process holds
//! its lock and updates its counters.
//!
//! The file is created atomically, with its lock held. Its text has a fixed length within a page and is overwritten
//! in place. So a killed process leaves either the old or the new text. The file is not synced: after a power failure
//! it may be out of date.

use crate::error::{Error, ErrorKind, Result};
use crate::format::RECORDING;
use crate::publish::{Published, Staged, sync_parent};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::{ErrorKind::NotFound, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const LEN: usize = 4096;

/// Each byte takes at most six bytes of JSON, so the text fits into the file.
pub(super) const MAX_ENGINE_LEN: usize = 256;

/// The content of the status file: a recording that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RecordingStatus {
    /// The unique id of the recording.
    pub(super) id: String,
    /// Whether the sink is a session in this folder.
    pub(super) session: bool,
    /// The engine, if the sink does not store it; at most [`MAX_ENGINE_LEN`] bytes.
    #[serde(default)]
    pub(super) engine: Option<String>,
    pub(super) process: u32,
    pub(super) started: String,
    pub(super) counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) begun: u64,
    pub(super) abandoned: u64,
    /// The number of ended games, and the number of their kept steps.
    pub(super) ended: u64,
    pub(super) steps: u64,
}

#[derive(Debug)]
pub(super) struct StatusFile {
    path: PathBuf,
    file: File,
    recording: Mutex<RecordingStatus>,
}

impl StatusFile {
    /// Creates the file atomically, with its lock held.
    pub(super) fn create(folder: &Path, recording: RecordingStatus) -> Result<StatusFile> {
        let path = folder.join(RECORDING);
        let staged = Staged::new(folder)?;
        // The lock belongs to the open file, which `StatusFile` keeps.
        let file = staged.file().try_clone().map_err(|source| Error::io(&path, source))?;
        file.lock().map_err(|source| Error::io(&path, source))?;
        let status = StatusFile { path: path.clone(), file, recording: Mutex::new(recording) };
        status.update(Counts::default())?;
        match staged.publish(&path) {
            Ok(Published::New) => Ok(status),
            Ok(Published::Taken) => Err(conflict(&path)),
            // Another process took the name first, and has removed this process's staged file.
            Err(error) if error.is_not_found() && path.exists() => Err(conflict(&path)),
            Err(error) => Err(error),
        }
    }

    /// Takes over the status file of a dead process. Returns `None` if the folder has no recording. The content is
    /// `None` if the file is unreadable.
    pub(super) fn take_over(folder: &Path) -> Result<Option<(StatusFile, Option<RecordingStatus>)>> {
        let path = folder.join(RECORDING);
        let io = |source| Error::io(&path, source);
        let mut file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        lock(&file, &path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(io)?;
        let recording: Option<RecordingStatus> = serde_json::from_slice(&text).ok();
        let known = Mutex::new(recording.clone().unwrap_or_default());
        let status = StatusFile { path: path.clone(), file, recording: known };
        // The previous owner of the lock may have ended the recording, and another process may have begun one.
        match status.stands_in(folder) {
            true => Ok(Some((status, recording))),
            false if path.exists() => Err(conflict(&path)),
            false => Ok(None),
        }
    }

    pub(super) fn update(&self, counts: Counts) -> Result<()> {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        // Concurrent updates may arrive in the wrong order, so counters never decrease.
        let old = recording.counts;
        recording.counts = Counts {
            begun: counts.begun.max(old.begun),
            abandoned: counts.abandoned.max(old.abandoned),
            ended: counts.ended.max(old.ended),
            steps: counts.steps.max(old.steps),
        };
        let mut text = serde_json::to_vec(&*recording).unwrap_or_default();
        text.resize(LEN - 1, b' ');
        text.push(b'\n');
        self.file.write_all_at(&text, 0).map_err(|source| Error::io(&self.path, source))
    }

    /// Removes the file, which marks the recording as ended.
    pub(super) fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != NotFound => Err(Error::io(&self.path, error)),
            _ => sync_parent(&self.path),
        }
    }

    /// Updates the path after the folder was renamed.
    pub(super) fn set_folder(&mut self, folder: &Path) {
        self.path = folder.join(RECORDING);
    }

    /// Returns whether this is the status file of the folder's current recording.
    pub(super) fn stands_in(&self, folder: &Path) -> bool {
        let own = self.file.metadata().map(|own| (own.dev(), own.ino()));
        let found = std::fs::metadata(folder.join(RECORDING)).map(|found| (found.dev(), found.ino()));
        matches!((own, found), (Ok(own), Ok(found)) if own == found)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(conflict(path)),
        Err(TryLockError::Error(error)) => Err(Error::io(path, error)),
    }
}

fn conflict(path: &Path) -> Error {
    let what = "another recorder, in this process or another, uses this folder".to_owned();
    ErrorKind::Conflict { path: path.to_owned(), what }.into()
}

impl RecordingStatus {
    /// Returns the number of running games.
    pub(super) fn live(&self) -> u64 {
        self.counts.begun.saturating_sub(self.counts.abandoned + self.counts.ended)
    }
}
