//! The steps of a repair: files to set aside and commits to publish.

use super::log_names::{ASIDE, LOG_FOLDER, commit_path};
use super::snapshot::Snapshot;
use super::storage::Storage;
use crate::error::{ErrorKind, Result};
use crate::publish::Published;
use bytes::Bytes;

/// A step of a repair.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Repair {
    /// The file, relative to the archive.
    pub path: String,
    /// The change to the file.
    pub action: String,
    /// The reason for the change.
    pub reason: String,
}

/// The planned changes of a repair.
pub(super) struct RepairPlan<'a> {
    storage: &'a Storage,
    pub(super) steps: Vec<Repair>,
    /// Files that lose their name, in this order. Each has its new name and its content.
    pub(super) aside: Vec<(String, Aside, Bytes)>,
    /// Commits to publish, in this order.
    pub(super) publish: Vec<(String, Vec<u8>)>,
}

/// The new name of a file that is set aside.
#[derive(Clone)]
pub(super) struct Aside {
    name: String,
    /// Whether an earlier repair has created it.
    is_there: bool,
}

impl<'a> RepairPlan<'a> {
    pub(super) fn new(storage: &'a Storage) -> RepairPlan<'a> {
        RepairPlan { storage, steps: Vec::new(), aside: Vec::new(), publish: Vec::new() }
    }

    /// Plans to set a file aside; `replacement` names the file that replaces it.
    pub(super) fn set_aside(&mut self, path: String, reason: String, replacement: Option<&str>) -> Result<()> {
        let Some((aside, bytes)) = self.aside_of(&path)? else { return Ok(()) };
        let action = match replacement {
            Some(replacement) => format!("set aside as {}, and replaced by {replacement}", aside.name),
            None => format!("set aside as {}", aside.name),
        };
        self.steps.push(Repair { path: path.clone(), action, reason });
        self.aside.push((path, aside, bytes));
        Ok(())
    }

    /// Plans to replace a lost commit with a rebuilt one.
    pub(super) fn replace(&mut self, path: String, action: &str, reason: String, bytes: Vec<u8>) -> Result<()> {
        let action = match self.aside_of(&path)? {
            Some((aside, old)) => {
                let action = format!("set aside as {}, and {action}", aside.name);
                self.aside.push((path.clone(), aside, old));
                action
            }
            None => action.to_owned(),
        };
        self.steps.push(Repair { path: path.clone(), action, reason });
        self.publish.push((path, bytes));
        Ok(())
    }

    /// Returns the content of a file, and a new name that is free or already has the same content.
    fn aside_of(&self, path: &str) -> Result<Option<(Aside, Bytes)>> {
        let Some(bytes) = self.storage.read(path)? else { return Ok(None) };
        let mut name = format!("{path}{ASIDE}");
        let mut attempt = 1;
        let is_there = loop {
            match self.storage.read(&name)? {
                None => break false,
                Some(there) if there == bytes => break true,
                Some(_) => {
                    attempt += 1;
                    name = format!("{path}{ASIDE}.{attempt}");
                }
            }
        };
        Ok(Some((Aside { name, is_there }, bytes)))
    }

    /// Carries out the plan. `sound` is the last sound version.
    pub(super) fn carry_out(&self, sound: &Snapshot) -> Result<()> {
        // Makes the log durable first, because the repair builds on it.
        let newest = commit_path(sound.newest.version);
        if !self.publish.iter().any(|(path, _)| *path == newest) {
            self.storage.sync(&newest)?;
        }
        self.storage.sync(LOG_FOLDER)?;
        let is_published = |path: &str| self.publish.iter().any(|(published, _)| published == path);
        for (path, aside, _) in self.aside.iter().filter(|(path, aside, _)| is_published(path) && !aside.is_there) {
            self.storage.copy(path, &aside.name)?;
        }
        for (path, bytes) in &self.publish {
            let is_taken = self.aside.iter().any(|(aside, ..)| aside == path);
            if is_taken {
                self.storage.replace(path, bytes.clone())?;
            } else if self.storage.put_new(path, bytes.clone())? == Published::Taken
                && self.storage.read(path)?.is_none_or(|found| found != *bytes)
            {
                let what = format!("another process published {path} during the repair");
                return Err(ErrorKind::Conflict { path: self.storage.root().to_path_buf(), what }.into());
            }
        }
        for (path, aside, bytes) in self.aside.iter().filter(|(path, ..)| !is_published(path)) {
            if !aside.is_there {
                self.storage.copy(path, &aside.name)?;
            }
            // Removes only the file that was read: a concurrent repair, and a writer after it, may have
            // replaced it.
            if self.storage.read(path)?.is_some_and(|found| found == *bytes) {
                self.storage.remove(path)?;
            }
        }
        self.storage.sync(LOG_FOLDER)
    }
}
