//! Requests: their failures as JSON responses, and work that is cancelled when its request is dropped.

use a2store::error::{Error, ErrorKind, Result};
use a2store::system::cancellation::CancellationToken;
use axum::Json;
use axum::extract::{FromRequestParts, Path};
use axum::http::{StatusCode, request};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde_json::json;

/// A rejected or failed request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    kind: &'static str,
    pub(crate) message: String,
}

pub(crate) type Answer<T> = Result<Json<T>, Failure>;

impl Failure {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Failure {
        Failure { status, kind, message: message.into() }
    }

    pub(crate) fn forbidden(what: &str) -> Failure {
        Failure::new(StatusCode::FORBIDDEN, "forbidden", format!("rejected: {what}"))
    }

    pub(crate) fn unauthorized() -> Failure {
        let message = "token: expected the token of this server: open the complete address that the server printed";
        Failure::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Failure {
        Failure::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    pub(crate) fn bad_request(what: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "argument", what)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (status, kind) = match error.kind() {
            ErrorKind::Query { .. } => (StatusCode::BAD_REQUEST, "query"),
            ErrorKind::QueryRefused { .. } => (StatusCode::FORBIDDEN, "query_refused"),
            ErrorKind::QueryLimit { .. } | ErrorKind::MemoryLimit { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "query_limit")
            }
            ErrorKind::Argument { .. } => (StatusCode::BAD_REQUEST, "argument"),
            ErrorKind::VersionNotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
            ErrorKind::Conflict { .. } => (StatusCode::CONFLICT, "busy"),
            ErrorKind::Cancelled => (StatusCode::SERVICE_UNAVAILABLE, "cancelled"),
            ErrorKind::Io { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "io"),
            ErrorKind::Damaged { .. } | ErrorKind::Checksum { .. } | ErrorKind::Decode { .. } => {
                (StatusCode::INTERNAL_SERVER_ERROR, "damaged")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "error"),
        };
        Failure::new(status, kind, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "error": self.message, "kind": self.kind }))).into_response()
    }
}

/// The parts of an address. If they are not UTF-8, the error is JSON, unlike that of axum's extractor.
pub(crate) struct Parts<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Parts<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Parts<T>, Failure> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(found)| Parts(found)).map_err(|error| Failure::bad_request(error.body_text()))
    }
}

/// Cancels work when it is dropped. The future or stream that holds it is dropped when the client disconnects.
pub(crate) struct CancelOnDrop(pub(super) CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Does work on a thread that may block. Dropping the future cancels the work. The future is dropped when the
/// client disconnects.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let cancel = CancellationToken::new();
    let _on_drop = CancelOnDrop(cancel.clone());
    let failed = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "error", "the work for this request failed");
    tokio::task::spawn_blocking(move || work(&cancel)).await.map_err(failed)?
}
