//! The state that all requests share: the archive and its events, the limits of queries, and the policy.

use super::cache::{CachedReport, LastOrder, WaitingFiles, lock};
use super::failure::Failure;
use super::notes_file::Notes;
use crate::archive::Archive;
use crate::board::WideBoard;
use crate::error::{Error, Result};
use crate::query::QueryOptions;
use axum::http::StatusCode;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// The maximum number of rows in a response.
pub(super) const MAX_ROWS: u64 = 10_000;

/// The maximum number of statements, and of downloads, that run at once. Others wait.
const MAX_QUERIES: usize = 4;

/// The limits of time and memory of a statement.
const QUERY_TIME: Duration = Duration::from_secs(60);
const QUERY_BYTES: u64 = 1 << 30;

/// A policy of the user. The explorer calls it for the positions that a page shows.
pub(crate) trait LivePolicy: Send + Sync {
    /// Returns the name of the policy.
    fn name(&self) -> &str;
    /// Returns the values of up, down, left and right for each board; `None` for an unknown value.
    ///
    /// # Errors
    /// The errors of the policy.
    fn values(&self, boards: &[WideBoard]) -> Result<Vec<[Option<f32>; 4]>>;
}

/// The state of a server.
pub(super) struct Explorer {
    archive: Mutex<Archive>,
    pub(super) notes: Option<Notes>,
    pub(super) policy: Option<Arc<dyn LivePolicy>>,
    pub(super) timeout: Duration,
    pub(super) files: Mutex<WaitingFiles>,
    pub(super) reports: Mutex<Vec<CachedReport>>,
    pub(super) runs: Mutex<LastOrder>,
    pub(super) events: broadcast::Sender<Event>,
    queries: Arc<Semaphore>,
    /// Downloads are counted apart from statements, because a slow client takes long.
    pub(super) downloads: Arc<Semaphore>,
    /// Calls of the policy do not overlap.
    pub(super) policy_turn: Arc<Semaphore>,
}

/// An event for open pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Archive,
    Notes,
}

impl Explorer {
    pub(super) fn new(
        archive: Archive,
        notes: Option<PathBuf>,
        policy: Option<Arc<dyn LivePolicy>>,
        timeout: Duration,
    ) -> Result<Explorer> {
        if let Some(path) = &notes
            && archive.contains(path)?
        {
            return Err(Error::argument("notes", "a file outside of the archive", path.display()));
        }
        let notes = notes.or_else(|| Notes::path_beside(&archive)).map(|path| Notes::new(&path)).transpose()?;
        Ok(Explorer {
            archive: Mutex::new(archive),
            notes,
            policy,
            timeout,
            files: Mutex::default(),
            reports: Mutex::default(),
            runs: Mutex::default(),
            events: broadcast::Sender::new(16),
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
            downloads: Arc::new(Semaphore::new(MAX_QUERIES)),
            policy_turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Returns the archive at the newest version that the view knows.
    pub(super) fn archive(&self) -> Archive {
        lock(&self.archive).clone()
    }

    /// Reads the newest version of the archive. If it is new, notifies open pages.
    pub(super) fn refresh(&self) -> Result<()> {
        let mut archive = self.archive();
        let known = archive.version();
        archive.refresh()?;
        if archive.version() != known {
            *lock(&self.archive) = archive;
            _ = self.events.send(Event::Archive);
        }
        Ok(())
    }

    /// Notifies open pages that the notes changed.
    pub(super) fn notes_changed(&self) {
        _ = self.events.send(Event::Notes);
    }

    /// Waits until another statement may run, and returns its permit.
    pub(super) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.permit_of(&self.queries, "statements").await
    }

    /// Waits until another call of this kind may run, and returns its permit.
    pub(super) async fn permit_of(
        &self,
        permits: &Arc<Semaphore>,
        what: &str,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        let permit = tokio::time::timeout(self.timeout, Arc::clone(permits).acquire_owned()).await;
        let busy = || {
            let message = format!("other {what} are running: try again later");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
        };
        permit.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Returns the query options with the limits of a statement.
    #[allow(clippy::unused_self)] // A method like `options_of`, which needs the notes.
    pub(super) fn limits(&self) -> QueryOptions {
        QueryOptions::default().with_time_limit(QUERY_TIME).with_memory_limit(QUERY_BYTES)
    }

    /// Returns the query options of a user's statement. They have the table `notes` if the statement may name
    /// it.
    pub(super) fn options_of(&self, sql: &str) -> Result<QueryOptions> {
        match self.notes.as_ref().filter(|_| sql.to_ascii_lowercase().contains("notes")) {
            Some(notes) => Ok(self.limits().with_table("notes", notes.table()?)),
            None => Ok(self.limits()),
        }
    }
}
