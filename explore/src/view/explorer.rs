//! The state that all requests share: the archive, the limits of queries, and the policy. The bodies of requests.

use super::request::Failure;
use a2store::archive::Archive;
use a2store::board::WideBoard;
use a2store::error::Result;
use a2store::query::QueryOptions;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The maximum number of rows in a response.
pub(crate) const MAX_ROWS: u64 = 10_000;

/// The maximum number of statements, and of downloads, that run at once. Others wait.
const MAX_QUERIES: usize = 4;

/// The limits of time and memory of a statement.
const QUERY_TIME: Duration = Duration::from_secs(60);
const QUERY_BYTES: u64 = 1 << 30;

/// A policy of the user. The explorer calls it for the positions that a page shows.
pub trait LivePolicy: Send + Sync {
    /// Returns the name of the policy.
    fn name(&self) -> &str;
    /// Returns the values of up, down, left and right for each board; `None` for an unknown value.
    ///
    /// # Errors
    /// The errors of the policy.
    fn values(&self, boards: &[WideBoard]) -> Result<Vec<[Option<f32>; 4]>>;
}

/// A report that is complete.
pub(crate) struct CachedReport {
    /// The version and the request.
    pub(crate) choice: String,
    /// The description of the report, with its address.
    pub(crate) answer: serde_json::Value,
    /// The last part of the address.
    pub(crate) id: String,
    pub(crate) html: Arc<str>,
}

/// The state of a server.
pub(crate) struct Explorer {
    /// The archive at the newest version that the view knows. Open pages wait for its changes.
    pub(crate) archive: watch::Sender<Archive>,
    pub(crate) policy: Option<Arc<dyn LivePolicy>>,
    pub(crate) timeout: Duration,
    pub(crate) reports: Mutex<Vec<CachedReport>>,
    queries: Arc<Semaphore>,
    /// Downloads are counted apart from statements, because a slow client takes long.
    pub(crate) downloads: Arc<Semaphore>,
    /// Calls of the policy do not overlap.
    pub(crate) policy_turn: Arc<Semaphore>,
}

impl Explorer {
    pub(crate) fn new(archive: Archive, policy: Option<Arc<dyn LivePolicy>>, timeout: Duration) -> Explorer {
        Explorer {
            archive: watch::Sender::new(archive),
            policy,
            timeout,
            reports: Mutex::default(),
            queries: Arc::new(Semaphore::new(MAX_QUERIES)),
            downloads: Arc::new(Semaphore::new(MAX_QUERIES)),
            policy_turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the archive at the newest version that the view knows.
    pub(crate) fn archive(&self) -> Archive {
        self.archive.borrow().clone()
    }

    /// Reads the newest version of the archive. If it is new, notifies open pages.
    pub(crate) fn refresh(&self) -> Result<()> {
        let mut archive = self.archive();
        let known = archive.version();
        archive.refresh()?;
        if archive.version() != known {
            self.archive.send_replace(archive);
        }
        Ok(())
    }

    /// Waits until another statement may run, and returns its permit.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, Failure> {
        self.permit_of(&self.queries, "statements").await
    }

    /// Waits until another call of this kind may run, and returns its permit.
    pub(crate) async fn permit_of(
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
}

/// Returns the query options with the limits of a statement.
pub(crate) fn limits() -> QueryOptions {
    QueryOptions::default().with_time_limit(QUERY_TIME).with_memory_limit(QUERY_BYTES)
}

/// The maximum size of a request's body, in bytes. The longest bodies are statements.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;

/// The JSON body of a request. Unlike axum's extractor, it has a timeout for slow clients.
pub(crate) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Explorer>> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, explorer: &Arc<Explorer>) -> Result<Body<T>, Failure> {
        let is_json = |value: &str| {
            value.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
        };
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !kind.is_some_and(is_json) {
            let found = kind.unwrap_or("none");
            let message = format!("content-type: expected application/json, found {found}");
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "argument", message));
        }
        let length =
            request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let too_long = || {
            let message = format!("body: expected at most {MAX_BODY_BYTES} bytes");
            Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "argument", message)
        };
        if length.is_some_and(|length: u64| length > MAX_BODY_BYTES as u64) {
            return Err(too_long());
        }
        let body = tokio::time::timeout(explorer.timeout, Bytes::from_request(request, explorer)).await;
        let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "argument", "body: exceeded its time limit");
        let bytes = body.map_err(late)?.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_long(),
            _ => Failure::bad_request(format!("body: {}", rejection.body_text())),
        })?;
        serde_json::from_slice(&bytes).map(Body).map_err(|error| Failure::bad_request(format!("body: {error}")))
    }
}
