//! The report as a page, computed when a page requests it.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::lock::lock;
use super::request::{Body, Parts};
use crate::report::{ReportGroups, ReportOptions, page_policy};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default, rename = "where")]
    condition: String,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    compare: Option<[String; 2]>,
    #[serde(default)]
    restart: bool,
}

/// Returns the state of the report. Starts it if there is none for this version.
pub(super) async fn report(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let groups: ReportGroups = request.by.as_deref().unwrap_or("engine").parse()?;
    let mut options = ReportOptions::default().with_groups(groups).with_explorer("/".to_owned());
    options.condition = Some(request.condition).filter(|condition| !condition.trim().is_empty());
    options.compare = request.compare;
    let archive = explorer.archive();
    Ok(Json(lock(&explorer.reports).ask(archive, options, request.restart)))
}

/// Sends a report's page. The page has its own Content-Security-Policy, which allows only its own script.
pub(super) async fn page(
    State(explorer): State<Arc<Explorer>>,
    Parts(key): Parts<String>,
) -> Result<Response, Failure> {
    let html = lock(&explorer.reports).page(&key);
    let html = html.ok_or_else(|| Failure::not_found("no such report: request it again"))?;
    let policy = format!("{}; frame-ancestors 'self'", page_policy());
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], Html(html.to_string())).into_response())
}
