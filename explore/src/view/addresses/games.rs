//! Games: a run with its positions and predictions, the values of the live policy, and the places where a position
//! occurs.

use crate::page::{predictions, replay_json};
use crate::replay::Replay;
use crate::rows::{objects, read};
use crate::view::explorer::{Body, Explorer, limits};
use crate::view::request::{Answer, Failure, Parts, blocking};
use a2store::board::{Board, Move, WideBoard};
use a2store::query::{SavedQuery, ScalarValue, short};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of steps in a response with predictions, and of boards in a call of the policy.
const MAX_STEPS: u32 = 512;

/// The maximum number of listed places, and of listed next positions.
const MAX_PLACES: u64 = 500;
const MAX_NEXT: u64 = 50;

/// Describes a run, with all its positions as columns.
pub(crate) async fn game(State(explorer): State<Arc<Explorer>>, Parts(run_id): Parts<u32>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let sql = format!(
            "SELECT format, source, start_time, elapsed_s, seed, session, verified, ingested_at, source_id, game_steps \
             FROM runs WHERE run_id = {run_id}"
        );
        let none = || Failure::not_found(format!("run {run_id}: no such run in version {}", archive.version()));
        let info = objects(&read(&archive, &sql, &limits(), cancel)?)?.pop().ok_or_else(none)?;
        let run = archive.run(run_id, cancel)?.run;
        let mut answer = replay_json(&Replay::of_stored(&archive, run_id, &run, cancel)?);
        answer["version"] = archive.version().into();
        answer["info"] = info.into();
        Ok(Json(answer))
    })
    .await
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
    Parts(run_id): Parts<u32>,
    steps: Result<Query<Steps>, QueryRejection>,
) -> Answer<Value> {
    let Query(Steps { from, to }) = steps.map_err(|error| Failure::bad_request(error.body_text()))?;
    blocking(move |cancel| {
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
fn parse_board(text: &str, mask: u16) -> Result<WideBoard, Failure> {
    let is_valid = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let board = u64::from_str_radix(text, 16).ok().filter(|_| is_valid);
    let board =
        board.ok_or_else(|| Failure::bad_request(format!("board: expected 16 hexadecimal digits, found {text:?}")))?;
    Ok(WideBoard::new(Board(board), mask)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    board: String,
    #[serde(default)]
    mask: u16,
    limit: u64,
}

/// Returns the places where a position occurs, the moves that were played there, and the positions that followed.
pub(crate) async fn position(State(explorer): State<Arc<Explorer>>, Body(request): Body<Search>) -> Answer<Value> {
    let board = parse_board(&request.board, request.mask)?;
    let limit = request.limit;
    if limit > MAX_PLACES {
        return Err(Failure::bad_request(format!("limit: expected at most {MAX_PLACES}, found {limit}")));
    }
    let _permit = explorer.permit().await?;
    blocking(move |cancel| {
        let started = Instant::now();
        let (archive, mask) = (explorer.archive(), u64::from(board.tile_65536_mask()));
        let ask = |name: &str, limit: Option<u64>| {
            let (board, mask) = (ScalarValue::from(board.board().0), ScalarValue::from(mask));
            let mut params = vec![("board", board), ("tile_65536_mask", mask)];
            params.extend(limit.map(|limit| ("limit", ScalarValue::from(limit))));
            let query = archive.query_with(&SavedQuery::find(name)?, params, &limits(), cancel)?;
            objects(&query.rows(cancel)?)
        };
        let moves = ask("position_moves", None)?;
        let places = ask("position_places", Some(limit))?;
        let next = ask("position_next", Some(MAX_NEXT))?;
        let num_found: u64 = moves.iter().filter_map(|row| row["num_steps"].as_u64()).sum();
        let canonical = board.canonical();
        Ok(Json(json!({
            "board": hex(board),
            "mask": mask,
            "canonical": hex(canonical),
            "canonical_mask": canonical.tile_65536_mask(),
            "num_found": num_found,
            "after": Move::ALL.map(|direction| after(board, direction)),
            "moves": moves,
            "next": next,
            "places": places,
            "seconds": started.elapsed().as_secs_f64(),
        })))
    })
    .await
}

fn hex(board: WideBoard) -> String {
    format!("{:016x}", board.board().0)
}

/// Returns the board after a move, before a tile spawns.
fn after(board: WideBoard, direction: Move) -> Value {
    if board.legal_moves() & direction.bit() == 0 {
        return Value::Null;
    }
    let after = board.slide(direction);
    json!({ "board": hex(after), "mask": after.tile_65536_mask(), "reward": board.reward(direction) })
}
