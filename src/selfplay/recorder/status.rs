//! `recording.json`: it stands in a folder as long as something is recorded there, locked by the process that does, and says how
//! far that is.
//!
//! The text has a fixed length and fits in a page, and so is overwritten in place: a process that is killed leaves the
//! one or the other whole. It is not synced; after a power failure it may be out of date.

use crate::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub(super) const STATUS: &str = "recording.json";
const LEN: usize = 4096;

/// Six bytes of JSON each at most, so that the text fits.
pub(super) const MAX_ENGINE_LEN: usize = 256;

/// What is said of a recording that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Recording {
    /// Names this recording among all.
    pub(super) id: String,
    /// Whether its games go to a session in this folder.
    pub(super) session: bool,
    /// Whose games they are, where that is not said elsewhere; at most [`MAX_ENGINE_LEN`] bytes.
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
    /// Games that ended, and the steps of them that are kept.
    pub(super) ended: u64,
    pub(super) steps: u64,
}

#[derive(Debug)]
pub(super) struct Status {
    path: PathBuf,
    file: File,
    recording: Mutex<Recording>,
}

impl Status {
    /// Puts the file there, locked before it says anything.
    pub(super) fn create(folder: &Path, recording: Recording) -> Result<Status> {
        let path = folder.join(STATUS);
        let io = |source| Error::io(&path, source);
        let file = File::create_new(&path).map_err(io)?;
        // Whoever found it before it was locked finds that it says nothing, and lets go of it.
        file.lock().map_err(io)?;
        let status = Status { path: path.clone(), file, recording: Mutex::new(recording) };
        status.update(Counts::default())?;
        status.file.sync_all().map_err(io)?;
        Ok(status)
    }

    /// Takes over what a process that is no more has left; `None` when nothing is recorded in the folder.
    pub(super) fn take_over(folder: &Path) -> Result<Option<(Status, Recording)>> {
        let path = folder.join(STATUS);
        let io = |source| Error::io(&path, source);
        let mut file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        lock(&file, &path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(io)?;
        // Whoever held the lock until now may have ended the recording.
        if !path.exists() {
            return Ok(None);
        }
        let recording: Recording = serde_json::from_str(&text)
            .map_err(|error| Error::decode(0, "recording", "JSON", error).of_header().with_path(&path))?;
        let status = Status { path: path.clone(), file, recording: Mutex::new(recording.clone()) };
        Ok(Some((status, recording)))
    }

    pub(super) fn update(&self, counts: Counts) -> Result<()> {
        let mut recording = self.recording.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two that come at once the later may be first here.
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

    /// Says that the recording has ended.
    pub(super) fn remove(&self) -> Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.path, error)),
            _ => crate::publish::sync_parent(&self.path),
        }
    }

    /// The name of the folder may have changed.
    pub(super) fn set_folder(&mut self, folder: &Path) {
        self.path = folder.join(STATUS);
    }
}

/// What stands in a folder, whoever holds it; `None` if nothing that can be read does.
pub(super) fn peek(folder: &Path) -> Option<Recording> {
    serde_json::from_str(&std::fs::read_to_string(folder.join(STATUS)).ok()?).ok()
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let what = "another process, or this one, is recording there".to_owned();
            Err(ErrorKind::Conflict { path: path.to_owned(), what }.into())
        }
        Err(TryLockError::Error(error)) => Err(Error::io(path, error)),
    }
}

impl Recording {
    /// Games that were under way.
    pub(super) fn live(&self) -> u64 {
        self.counts.begun.saturating_sub(self.counts.abandoned + self.counts.ended)
    }
}
