//! The bodies of requests, and work that is cancelled when its request is dropped.

use super::explorer::Explorer;
use super::failure::Failure;
use a2store::system::cancellation::CancellationToken;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::{StatusCode, header, request};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The maximum size of a request's body, in bytes. The longest bodies are statements.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The JSON body of a request. Unlike axum's extractor, it has a timeout for slow clients.
pub(crate) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Explorer>> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, explorer: &Arc<Explorer>) -> Result<Body<T>, Failure> {
        let is_json = |value: &str| value.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
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
        let body = tokio::time::timeout(explorer.timeout, to_bytes(request.into_body(), MAX_BODY_BYTES)).await;
        let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "argument", "body: exceeded its time limit");
        let bytes = body.map_err(late)?.map_err(|error| {
            let is_long = error.to_string().contains("length limit exceeded");
            if is_long { too_long() } else { Failure::bad_request(format!("body: {error}")) }
        })?;
        serde_json::from_slice(&bytes).map(Body).map_err(|error| Failure::bad_request(format!("body: {error}")))
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
