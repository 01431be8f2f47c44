//! Listing and changing the notes of the user.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::{Change, Notes};
use super::request::{Body, blocking};
use crate::cancellation::CancellationToken;
use crate::explore::rows::{objects, read};
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
    let sql = format!(
        "SELECT (SELECT count(*) FROM runs WHERE run_id = {run_id}) AS runs, \
         (SELECT max(step_index) + 1 FROM steps WHERE run_id = {run_id}) AS end"
    );
    let rows = objects(&read(&explorer.archive(), &sql, &explorer.limits(), cancel)?)?;
    let number = |name: &str| rows.first().and_then(|row| row[name].as_u64()).unwrap_or(0);
    if number("runs") == 0 {
        return Err(Failure::not_found(format!("run_id: no run {run_id} in the archive")));
    }
    let end = number("end");
    if u64::from(step_index) > end {
        let message = format!("step_index: expected 0 to {end} in run {run_id}, found {step_index}");
        return Err(Failure::not_found(message));
    }
    Ok(())
}
