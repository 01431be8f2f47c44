//! Reports: computed when a page requests them, and cached.

use crate::report::{Report, ReportGroups, ReportOptions, page_policy};
use crate::view::explorer::{Body, CachedReport, Explorer};
use crate::view::request::{Answer, Failure, Parts, blocking};
use a2store::system::process::lock;
use a2store::system::random;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of cached reports.
const MAX_REPORTS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    #[serde(default, rename = "where")]
    condition: String,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    compare: Option<[String; 2]>,
}

/// Returns the address of a report. Computes the report unless it is cached.
pub(crate) async fn report(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let groups: ReportGroups = request.by.as_deref().unwrap_or("engine").parse()?;
    let condition = Some(request.condition).filter(|condition| !condition.trim().is_empty());
    let options = ReportOptions { condition, groups, compare: request.compare, explorer: Some("/".to_owned()) };
    let archive = explorer.archive();
    let choice = format!("{:?}", (archive.version(), &options));
    if let Some(cached) = lock(&explorer.reports).iter().find(|cached| cached.choice == choice) {
        return Ok(Json(cached.answer.clone()));
    }
    let _permit = explorer.permit().await?;
    blocking(move |cancel| {
        let started = Instant::now();
        let html = Report::of(&archive, &options, &(), cancel)?.to_html()?.into();
        let id = random::id();
        let seconds = started.elapsed().as_secs_f64();
        let answer = json!({ "version": archive.version(), "url": format!("/report/{id}"), "seconds": seconds });
        let mut reports = lock(&explorer.reports);
        if reports.len() >= MAX_REPORTS {
            reports.remove(0);
        }
        reports.push(CachedReport { choice, answer: answer.clone(), id, html });
        Ok(Json(answer))
    })
    .await
}

/// Sends a report's page. The page has its own Content-Security-Policy, which allows only its own script.
pub(crate) async fn page(State(explorer): State<Arc<Explorer>>, Parts(id): Parts<String>) -> Result<Response, Failure> {
    let reports = lock(&explorer.reports);
    let html = reports.iter().find(|cached| cached.id == id).map(|cached| Arc::clone(&cached.html));
    let html = html.ok_or_else(|| Failure::not_found("no such report: request it again"))?;
    let policy = format!("{}; frame-ancestors 'self'", page_policy());
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], Html(html.to_string())).into_response())
}
