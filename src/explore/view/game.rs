//! A run with its positions and predictions, the details of predictions, and the values of the live policy.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::request::{Body, Parts, blocking};
use super::rows::collect;
use crate::board::{Board, WideBoard};
use crate::explore::{Game, Position, Prediction};
use crate::query::short;
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The maximum number of steps in a response with predictions, and of boards in a call of the policy.
const MAX_STEPS: u32 = 512;

/// Describes a run, with all its positions as columns.
pub(super) async fn game(State(explorer): State<Arc<Explorer>>, Parts(run_id): Parts<String>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let run_id = parse_run(&run_id)?;
        let options = explorer.limits();
        let facts = [
            "engine",
            "max_score",
            "highest_tile",
            "num_steps",
            "format",
            "source",
            "start_time",
            "elapsed_s",
            "seed",
            "session",
            "verified",
            "ingested_at",
            "version",
            "source_id",
            "game_steps",
            "raw_evs",
        ];
        let sql = format!("SELECT {} FROM runs WHERE run_id = {run_id}", facts.join(", "));
        let row = collect(&archive, &sql, &options, cancel)?.pop();
        let row = row
            .ok_or_else(|| Failure::not_found(format!("run {run_id}: no such run in version {}", archive.version())))?;
        let fact = |name: &str| facts.iter().position(|&fact| fact == name).map_or(Value::Null, |at| row[at].clone());
        let info = [
            "format",
            "source",
            "start_time",
            "elapsed_s",
            "seed",
            "session",
            "verified",
            "ingested_at",
            "source_id",
            "game_steps",
        ];
        let game = archive.game(run_id, cancel)?;
        Ok(Json(json!({
            "run_id": run_id,
            "engine": fact("engine"),
            "max_score": fact("max_score"),
            "highest_tile": fact("highest_tile"),
            "num_steps": fact("num_steps"),
            "raw_evs": fact("raw_evs"),
            "version": archive.version(),
            "added_in": fact("version"),
            "info": info.iter().map(|&name| (name.to_owned(), fact(name))).collect::<serde_json::Map<_, _>>(),
            "positions": columns(&game.positions),
            "models": models(&game),
        })))
    })
    .await
}

fn parse_run(text: &str) -> Result<u32, Failure> {
    text.parse().map_err(|_| Failure::bad_request(format!("run: expected a number, found {text:?}")))
}

fn columns(positions: &[Position]) -> Value {
    let column = |value: fn(&Position) -> Value| positions.iter().map(value).collect::<Vec<_>>();
    json!({
        "board": column(|position| json!(format!("{:016x}", position.board.board().0))),
        "mask": column(|position| json!(position.board.tile_65536_mask())),
        "step": column(|position| json!(position.step)),
        "score": column(|position| json!(position.score)),
        "played": column(|position| json!(position.played.map(|played| played as u8))),
        "legal": column(|position| json!(position.board.legal_moves())),
        "values": column(|position| json!(position.values.map(|value| value.map(short)))),
    })
}

fn models(game: &Game) -> Vec<Value> {
    let of_model = |model: usize, name: &str| {
        let predictions: Vec<(usize, &Prediction)> = game
            .positions
            .iter()
            .enumerate()
            .flat_map(|(at, position)| position.predictions.iter().map(move |prediction| (at, prediction)))
            .filter(|(_, prediction)| prediction.model == model)
            .collect();
        let column = |value: fn(&Prediction) -> Value| {
            predictions.iter().map(|(_, prediction)| value(prediction)).collect::<Vec<_>>()
        };
        json!({
            "name": name,
            "at": predictions.iter().map(|(at, _)| at).collect::<Vec<_>>(),
            "preferred": column(|prediction| json!(prediction.preferred.map(|preferred| preferred as u8))),
            "probability": column(|prediction| json!(prediction.probability.map(short))),
            "p1": column(|prediction| json!(prediction.moves.map(|mass| mass.map(short)))),
        })
    };
    game.models.iter().enumerate().map(|(model, name)| of_model(model, name)).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Steps {
    from: u32,
    to: u32,
}

/// Returns all predictions of models for a range of steps.
pub(super) async fn annotations(
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
        let sql = format!(
            "SELECT step_index, model, argmax_head, argmax_prob, policy_p1, policy_logp, policy_hard, student_bins, \
             teacher_move FROM annotations WHERE run_id = {run_id} AND step_index >= {from} AND step_index < {to} \
             ORDER BY step_index, model"
        );
        let rows = collect(&explorer.archive(), &sql, &explorer.limits(), cancel)?;
        let rows: Vec<Value> =
            rows.into_iter().filter_map(|row| <[Value; 9]>::try_from(row).ok().map(prediction)).collect();
        Ok(Json(json!({ "rows": rows })))
    })
    .await
}

fn prediction([step, model, preferred, probability, p1, logp, hard, bins, teacher]: [Value; 9]) -> Value {
    let bins = bins.as_array().filter(|bins| !bins.is_empty() && bins.len().is_multiple_of(4)).map(|bins| {
        // The bins of the four moves are stored one after another.
        bins.chunks(bins.len() / 4).map(<[Value]>::to_vec).collect::<Vec<_>>()
    });
    json!({
        "step": step, "model": model, "preferred": preferred, "probability": probability,
        "p1": p1, "logp": logp, "hard": hard, "bins": bins, "teacher": teacher,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Boards {
    boards: Vec<(String, u16)>,
}

/// Returns the values of the live policy for some boards.
pub(super) async fn policy(State(explorer): State<Arc<Explorer>>, Body(request): Body<Boards>) -> Answer<Value> {
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
    let turn = explorer.policy_turn().await?;
    blocking(move |_| {
        let _turn = turn;
        let values: Vec<_> =
            policy.values(&boards)?.into_iter().map(|four| four.map(|value| value.map(short))).collect();
        Ok(Json(json!({ "name": policy.name(), "values": values })))
    })
    .await
}

/// Parses a board of sixteen hexadecimal digits, and its mask.
pub(super) fn parse_board(text: &str, mask: u16) -> Result<WideBoard, Failure> {
    let is_valid = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let board = u64::from_str_radix(text, 16).ok().filter(|_| is_valid);
    let board =
        board.ok_or_else(|| Failure::bad_request(format!("board: expected 16 hexadecimal digits, found {text:?}")))?;
    Ok(WideBoard::new(Board(board), mask)?)
}
