//! Listing and changing the notes of the user.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::{Note, Notes};
use super::request::{Body, blocking};
use crate::cancellation::CancellationToken;
use crate::clock;
use crate::explore::rows::collect;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The maximum lengths of the texts, in characters.
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
    let none = "notes: an archive on an object store needs a notes file: start the view with --notes FILE";
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
        // A note can be removed even if the archive no longer has its position.
        if !(mark.is_empty() && note.is_empty()) {
            check_position(&explorer, run_id, step_index, cancel)?;
        }
        notes.put(Note { run_id, step_index, mark, note, written: clock::now().timestamp_millis() }, cancel)?;
        explorer.notes_changed();
        Ok(Json(notes.json()?))
    })
    .await
}

/// Checks that the archive has the position.
fn check_position(
    explorer: &Explorer,
    run_id: u32,
    step_index: u32,
    cancel: &CancellationToken,
) -> Result<(), Failure> {
    let archive = explorer.archive();
    let number = |sql: String| {
        let rows = collect(&archive, &sql, &explorer.limits(), cancel)?;
        Ok::<_, Failure>(rows.first().and_then(|row| row.first()?.as_u64()))
    };
    if number(format!("SELECT run_id FROM runs WHERE run_id = {run_id}"))?.is_none() {
        return Err(Failure::not_found(format!("run_id: no run {run_id} in the archive")));
    }
    // The final board follows the last step.
    let end = number(format!("SELECT max(step_index) + 1 FROM steps WHERE run_id = {run_id}"))?.unwrap_or(0);
    if u64::from(step_index) > end {
        let message = format!("step_index: expected 0 to {end} in run {run_id}, found {step_index}");
        return Err(Failure::not_found(message));
    }
    Ok(())
}
