//! The routes: the function that handles each address. The files of the page are built by `../web/`.

use super::access::{Access, guard};
use super::addresses::{archive, games, reports, runs, statements};
use super::explorer::Explorer;
use super::failure::Failure;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Html;
use axum::routing::{get, post};
use std::sync::Arc;

const INDEX: &str = include_str!("../../assets/index.html");
const SCRIPT: &str = include_str!("../../assets/app.js");
const STYLES: &str = include_str!("../../assets/app.css");

pub(crate) fn router(explorer: Arc<Explorer>, access: Arc<Access>) -> Router {
    Router::new()
        .route("/", get(async || Html(INDEX)))
        .route("/app.js", get(async || ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT)))
        .route("/app.css", get(async || ([(CONTENT_TYPE, "text/css; charset=utf-8")], STYLES)))
        .route("/api/archive", get(archive::archive))
        .route("/api/events", get(archive::events))
        .route("/api/runs", post(runs::runs))
        .route("/api/runs/{run_id}", get(games::game))
        .route("/api/runs/{run_id}/annotations", get(games::annotations))
        .route("/api/policy", post(games::policy))
        .route("/api/position", post(games::position))
        .route("/api/sql", post(statements::rows))
        .route("/api/schema", get(archive::schema))
        .route("/api/download", post(statements::download))
        .route("/api/report", post(reports::report))
        .route("/report/{key}", get(reports::page))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(explorer)
        .layer(from_fn_with_state(access, guard))
}

async fn unknown(uri: Uri) -> Failure {
    Failure::not_found(format!("no such address: {}", uri.path()))
}

async fn wrong_method(method: Method) -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "argument", format!("this address does not accept {method}"))
}
