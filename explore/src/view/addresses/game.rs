//! A run with its positions and predictions, the details of predictions, and the values of the live policy.

use crate::data::{predictions, replay_json};
use crate::replay::Replay;
use crate::rows::{objects, read};
use crate::view::explorer::{Explorer, limits};
use crate::view::failure::{Answer, Failure};
use crate::view::request::{Body, Parts, blocking};
use a2store::board::{Board, WideBoard};
use a2store::query::short;
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The maximum number of steps in a response with predictions, and of boards in a call of the policy.
const MAX_STEPS: u32 = 512;

/// Describes a run, with all its positions as columns.
pub(crate) async fn game(State(explorer): State<Arc<Explorer>>, Parts(run_id): Parts<String>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let run_id = parse_run(&run_id)?;
        let sql = format!(
            "SELECT format, source, start_time, elapsed_s, seed, session, verified, ingested_at, source_id, game_steps \
             FROM runs WHERE run_id = {run_id}"
        );
        let none = || Failure::not_found(format!("run {run_id}: no such run in version {}", archive.version()));
        let info = objects(&read(&archive, &sql, &limits(), cancel)?)?.pop().ok_or_else(none)?;
        let mut answer = replay_json(&Replay::of(&archive, run_id, cancel)?);
        answer["version"] = archive.version().into();
        answer["info"] = info.into();
        Ok(Json(answer))
    })
    .await
}

fn parse_run(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::bad_request(format!("run: expected a number, found {text:?}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Steps {
    from: u32,
    to: u32,
}

/// Returns all predictions of models for a range of steps.
pub(crate) async fn annotations(
    State(explorer): State<Arc<Explorer>>,
    Parts(run_id): Parts<String>,
    steps: Result<Query<Steps>, axum::extract::rejection::QueryRejection>,
) -> Answer<Value> {
    let Query(Steps { from, to }) = steps.map_err(|error| Failure::bad_request(error.body_text()))?;
    blocking(move |cancel| {
        let run_id = parse_run(&run_id)?;
        if to.checked_sub(from).is_none_or(|count| count > MAX_STEPS) {
            let message = format!("to: expected at least {from} and at most {MAX_STEPS} more, found {to}");
            return Err(Failure::bad_request(message));
        }
        let rows = predictions(&explorer.archive(), run_id, from..to, &limits(), cancel)?;
        Ok(Json(json!({ "rows": rows })))
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Boards {
    boards: Vec<(String, u16)>,
}

/// Returns the values of the live policy for some boards.
pub(crate) async fn policy(State(explorer): State<Arc<Explorer>>, Body(request): Body<Boards>) -> Answer<Value> {
    let Some(policy) = explorer.policy.clone() else {
        return Err(Failure::not_found("policy: this view was started without a policy"));
    };
    if request.boards.len() > MAX_STEPS as usize {
        let found = request.boards.len();
        return Err(Failure::bad_request(format!("boards: expected at most {MAX_STEPS}, found {found}")));
    }
    let boards: Vec<WideBoard> =
        request.boards.iter().map(|(text, mask)| parse_board(text, *mask)).collect::<Result<_, _>>()?;
    // If the request is dropped while it waits, the policy is not called.
    let turn = explorer.permit_of(&explorer.policy_turn, "calls of the policy").await?;
    blocking(move |_| {
        let _turn = turn;
        let values: Vec<_> =
            policy.values(&boards)?.into_iter().map(|four| four.map(|value| value.map(short))).collect();
        Ok(Json(json!({ "name": policy.name(), "values": values })))
    })
    .await
}

/// Parses a board of sixteen hexadecimal digits, and its mask.
pub(crate) fn parse_board(text: &str, mask: u16) -> Result<WideBoard, Failure> {
    let is_valid = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let board = u64::from_str_radix(text, 16).ok().filter(|_| is_valid);
    let board =
        board.ok_or_else(|| Failure::bad_request(format!("board: expected 16 hexadecimal digits, found {text:?}")))?;
    Ok(WideBoard::new(Board(board), mask)?)
}
