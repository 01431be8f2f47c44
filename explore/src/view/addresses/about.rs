//! The description of the archive for pages.

use crate::page::{MAX_GAP, MIN_LOSS, palettes};
use crate::rows::read;
use crate::view::explorer::{Explorer, MAX_ROWS, limits};
use crate::view::failure::Answer;
use crate::view::request::blocking;
use a2store::query::{json_rows, short};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// Describes the archive.
pub(crate) async fn archive(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let sql = "SELECT engine FROM runs GROUP BY engine ORDER BY engine NULLS LAST";
        let engines: Vec<Value> = json_rows(&read(&archive, sql, &limits(), cancel)?)?.into_iter().flatten().collect();
        let path = archive.path();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let models: Vec<String> = archive.annotations().into_iter().map(|model| model.model).collect();
        Ok(Json(json!({
            "name": name,
            "path": path.to_string_lossy(),
            "version": archive.version(),
            "num_runs": archive.num_runs(),
            "num_steps": archive.num_steps(),
            "phases": { "mid": archive.phases().mid, "late": archive.phases().late },
            "engines": engines,
            "models": models,
            "policy": explorer.policy.as_ref().map(|policy| policy.name()),
            "program": concat!("a2store ", env!("CARGO_PKG_VERSION")),
            "max_rows": MAX_ROWS,
            "min_loss": short(MIN_LOSS),
            "max_gap": short(MAX_GAP),
            "palettes": palettes(),
        })))
    })
    .await
}
