//! The routes: the function that handles each address.

use super::explorer::Explorer;
use super::failure::Failure;
use super::gate::{Gate, guard};
use super::{about, assets, catalog, downloads, game, news, notes, overview, positions, runs, sql};
use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use std::sync::Arc;

pub(super) fn router(explorer: Arc<Explorer>, gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/", get(assets::index))
        .route("/app.js", get(assets::script))
        .route("/app.css", get(assets::styles))
        .route("/api/archive", get(about::archive))
        .route("/api/events", get(news::events))
        .route("/api/runs", post(runs::runs))
        .route("/api/runs/{run_id}", get(game::game))
        .route("/api/runs/{run_id}/annotations", get(game::annotations))
        .route("/api/policy", post(game::policy))
        .route("/api/position", post(positions::position))
        .route("/api/sql", post(sql::sql))
        .route("/api/query", post(sql::query))
        .route("/api/schema", get(catalog::schema))
        .route("/api/download", post(downloads::prepare))
        // The address works once, and a HEAD request would use it up.
        .route("/download/{id}/{name}", get(downloads::download).head(wrong_method))
        .route("/api/notes", get(notes::list).put(notes::change))
        .route("/api/report", post(overview::report))
        .route("/report/{key}", get(overview::page))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .with_state(explorer)
        .layer(from_fn_with_state(gate, guard))
}

async fn unknown(uri: Uri) -> Failure {
    Failure::not_found(format!("no such address: {}", uri.path()))
}

async fn wrong_method(method: Method) -> Failure {
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "argument", format!("this address does not accept {method}"))
}
