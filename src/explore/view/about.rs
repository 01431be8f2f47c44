//! The description of the archive for pages.

use super::explorer::{Explorer, MAX_ROWS};
use super::failure::Answer;
use super::request::blocking;
use crate::explore::Thresholds;
use crate::explore::page::palettes;
use crate::query::short;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int32Type;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Describes the archive.
pub(super) async fn archive(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let runs = explorer.runs.of(&archive, &explorer.limits(), cancel)?;
        let engines = runs.column("engine")?;
        let texts = engines.as_dictionary::<Int32Type>().values().as_string::<i32>();
        let mut names: Vec<Option<&str>> =
            texts.iter().collect::<BTreeSet<_>>().into_iter().flatten().map(Some).collect();
        names.extend((engines.null_count() > 0).then_some(None));
        let path = archive.path();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let Thresholds { min_loss, max_gap } = Thresholds::default();
        let models: Vec<String> = archive.annotations().into_iter().map(|model| model.model).collect();
        Ok(Json(json!({
            "name": name,
            "path": path.to_string_lossy(),
            "version": archive.version(),
            "num_runs": archive.num_runs(),
            "num_steps": archive.num_steps(),
            "phases": { "mid": archive.phases().mid, "late": archive.phases().late },
            "engines": names,
            "models": models,
            "policy": explorer.policy.as_ref().map(|policy| policy.name()),
            "notes": explorer.notes.as_ref().map(|notes| notes.path().to_string_lossy()),
            "program": concat!("a2store ", env!("CARGO_PKG_VERSION")),
            "max_rows": MAX_ROWS,
            "min_loss": short(min_loss),
            "max_gap": short(max_gap),
            "palettes": palettes(),
        })))
    })
    .await
}
