//! What all requests share: the archive and its news, the limits of queries, and the policy.

use super::failure::Failure;
use super::lock::lock;
use super::notes_file::Notes;
use super::reports::Reports;
use super::run_list::RunList;
use super::waiting_files::WaitingFiles;
use crate::archive::Archive;
use crate::board::WideBoard;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::query::QueryOptions;
use axum::http::StatusCode;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

/// The greatest number of rows that an answer has.
pub(super) const MAX_ROWS: u64 = 10_000;

/// The greatest number of statements, and of downloads, that run at once. Others wait.
const MAX_QUERIES: usize = 4;

/// The time and the memory that a statement may take.
const QUERY_TIME: Duration = Duration::from_secs(60);
const QUERY_BYTES: u64 = 1 << 30;

/// A policy that the user passes, which is asked for its values of single positions.
pub(crate) trait LivePolicy: Send + Sync {
    /// Returns the name.
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
    pub(super) reports: Mutex<Reports>,
    pub(super) runs: RunList,
    pub(super) events: broadcast::Sender<Event>,
    queries: Arc<Semaphore>,
    transfers: Arc<Semaphore>,
    policy_turn: Arc<Semaphore>,
}

/// News for open pages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    Archive,
    Notes,
}

/// Rejects a file of notes inside of the archive's folder.
fn check_outside(path: &Path, archive: &Archive) -> Result<()> {
    let absolute = |path: &Path| std::path::absolute(path).map_err(|source| Error::io(path, source));
    if absolute(path)?.starts_with(absolute(archive.path())?) {
        return Err(Error::argument("notes", "a file outside of the archive", path.display()));
    }
    Ok(())
}

impl Explorer {
    pub(super) fn new(
        archive: Archive,
        notes: Option<PathBuf>,
        policy: Option<Arc<dyn LivePolicy>>,
        timeout: Duration,
    ) -> Result<Explorer> {
        if let Some(path) = &notes {
            check_outside(path, &archive)?;
        }
        let notes = notes.or_else(|| Notes::path_beside(&archive)).map(|path| Notes::new(&path)).transpose()?;
        Ok(Explorer {
            archive: Mutex::new(archive),
            notes,
            policy,
            timeout,
            files: Mutex::default(),
            reports: Mutex::default(),
            runs: RunList::default(),
            events: broadcast::Sender::new(16),
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
            transfers: Arc::new(Semaphore::new(MAX_QUERIES)),
            policy_turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Returns the archive at the newest version that the view knows.
    pub(super) fn archive(&self) -> Archive {
        lock(&self.archive).clone()
    }

    /// Reads the newest version of the archive, and tells open pages about it.
    pub(super) fn refresh(&self) -> Result<()> {
        let mut archive = self.archive();
        let known = archive.version();
        archive.refresh()?;
        if archive.version() != known {
            self.read_runs(&archive)?;
            *lock(&self.archive) = archive;
            _ = self.events.send(Event::Archive);
        }
        Ok(())
    }

    /// Reads the list of runs before a page asks for it.
    pub(super) fn read_runs(&self, archive: &Archive) -> Result<()> {
        self.runs.of(archive, &self.limits(), CancellationToken::never()).map(drop)
    }

    /// Tells open pages that the notes changed.
    pub(super) fn notes_changed(&self) {
        _ = self.events.send(Event::Notes);
    }

    /// Returns a place among the statements that run at once.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.place_of(&self.queries, "statements").await
    }

    /// Returns a place among the downloads. They have places of their own, because a slow client takes long.
    pub(super) async fn download_place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.place_of(&self.transfers, "downloads").await
    }

    /// Returns the turn of a call of the policy. Calls do not overlap.
    pub(super) async fn policy_turn(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.place_of(&self.policy_turn, "calls of the policy").await
    }

    async fn place_of(&self, places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Failure> {
        let place = tokio::time::timeout(self.timeout, Arc::clone(places).acquire_owned()).await;
        let busy = || {
            let message = format!("other {what} are running: try again later");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
        };
        place.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Returns the limits of a statement.
    #[allow(clippy::unused_self)] // As `options_of`, which needs the notes.
    pub(super) fn limits(&self) -> QueryOptions {
        QueryOptions::default().with_time_limit(QUERY_TIME).with_memory_limit(QUERY_BYTES)
    }

    /// Returns the limits of a statement of the user, and the notes as a table if it may name them.
    pub(super) fn options_of(&self, sql: &str) -> Result<QueryOptions> {
        match self.notes.as_ref().filter(|_| sql.to_ascii_lowercase().contains("notes")) {
            Some(notes) => Ok(self.limits().with_table("notes", notes.table()?)),
            None => Ok(self.limits()),
        }
    }
}
