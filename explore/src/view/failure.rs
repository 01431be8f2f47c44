//! Rejected and failed requests, as JSON responses.

use a2store::error::{Error, ErrorKind, Result};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
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
