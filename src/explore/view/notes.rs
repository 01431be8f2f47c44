//! Listing and changing the notes of the user.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::{Change, Notes};
use super::request::{Body, blocking};
use crate::cancellation::CancellationToken;
use crate::explore::rows::read;
use crate::query::json_rows;
use axum::Json;
use axum::extract::State;
use serde_json::Value;
use std::sync::Arc;

/// The maximum lengths of the texts, in characters.
const MAX_NOTE: usize = 4096;
const MAX_MARK: usize = 64;

fn notes_of(explorer: &Explorer) -> Result<&Notes, Failure> {
    let none = "notes: an archive on an object store needs a notes file: start the view with --notes FILE";
    explorer.notes.as_ref().ok_or_else(|| Failure::not_found(none))
}

/// Lists all notes.
pub(super) async fn list(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |_| Ok(Json(notes_of(&explorer)?.json()?))).await
}

/// Replaces the note on a position, or removes it if both texts are empty.
pub(super) async fn change(State(explorer): State<Arc<Explorer>>, Body(change): Body<Change>) -> Answer<Value> {
    for (name, text, most) in [("note", &change.note, MAX_NOTE), ("mark", &change.mark, MAX_MARK)] {
        let found = text.chars().count();
        if found > most {
            return Err(Failure::bad_request(format!("{name}: expected at most {most} characters, found {found}")));
        }
    }
    blocking(move |cancel| {
        let notes = notes_of(&explorer)?;
        // A note can be removed even if the archive no longer has its position.
        if !(change.mark.is_empty() && change.note.is_empty()) {
            check_position(&explorer, &change, cancel)?;
        }
        notes.put(change, cancel)?;
        explorer.notes_changed();
        Ok(Json(notes.json()?))
    })
    .await
}

/// Checks that the archive has the position. The final board follows the last step.
fn check_position(explorer: &Explorer, change: &Change, cancel: &CancellationToken) -> Result<(), Failure> {
    let Change { run_id, step_index, .. } = *change;
    let archive = explorer.archive();
    let number = |sql: String| {
        let rows = json_rows(&read(&archive, &sql, &explorer.limits(), cancel)?)?;
        Ok::<_, Failure>(rows.first().and_then(|row| row.first()?.as_u64()))
    };
    if number(format!("SELECT run_id FROM runs WHERE run_id = {run_id}"))?.is_none() {
        return Err(Failure::not_found(format!("run_id: no run {run_id} in the archive")));
    }
    let end = number(format!("SELECT max(step_index) + 1 FROM steps WHERE run_id = {run_id}"))?.unwrap_or(0);
    if u64::from(step_index) > end {
        let message = format!("step_index: expected 0 to {end} in run {run_id}, found {step_index}");
        return Err(Failure::not_found(message));
    }
    Ok(())
}
