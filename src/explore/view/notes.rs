//! Listing and changing the notes of the user.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::{Note, Notes};
use super::request::{Body, blocking};
use super::rows::collect;
use crate::clock;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The greatest lengths of texts, in characters.
const MAX_NOTE: usize = 4096;
const MAX_MARK: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    run_id: u32,
    step_index: u32,
    mark: String,
    note: String,
}

fn notes_of(explorer: &Explorer) -> Result<&Notes, Failure> {
    let none = "notes: none for an archive on an object store: start the view with --notes FILE";
    explorer.notes.as_ref().ok_or_else(|| Failure::not_found(none))
}

pub(super) async fn list(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |_| Ok(Json(notes_of(&explorer)?.json()?))).await
}

pub(super) async fn change(State(explorer): State<Arc<Explorer>>, Body(change): Body<Change>) -> Answer<Value> {
    for (name, text, most) in [("note", &change.note, MAX_NOTE), ("mark", &change.mark, MAX_MARK)] {
        let found = text.chars().count();
        if found > most {
            return Err(Failure::bad_request(format!("{name}: expected at most {most} characters, found {found}")));
        }
    }
    blocking(move |cancel| {
        let Change { run_id, step_index, mark, note } = change;
        let notes = notes_of(&explorer)?;
        let is_known = "SELECT run_id FROM runs WHERE run_id = ";
        if collect(&explorer.archive(), &format!("{is_known}{run_id}"), &explorer.limits(), cancel)?.is_empty() {
            return Err(Failure::not_found(format!("run_id: no run {run_id} in the archive")));
        }
        notes.put(Note { run_id, step_index, mark, note, written: clock::now().timestamp_millis() }, cancel)?;
        explorer.notes_changed();
        Ok(Json(notes.json()?))
    })
    .await
}
