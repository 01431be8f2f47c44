//! The places where a position occurs, the moves that were played there, and the positions that followed.

use super::game::parse_board;
use crate::rows::objects;
use crate::view::explorer::{Explorer, limits};
use crate::view::failure::{Answer, Failure};
use crate::view::request::{Body, blocking};
use a2store::archive::Archive;
use a2store::board::{Move, WideBoard};
use a2store::error::Result;
use a2store::query::{QueryOptions, SavedQuery, ScalarValue};
use a2store::system::cancellation::CancellationToken;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of listed places, and of listed next positions.
const MAX_PLACES: u64 = 500;
const MAX_NEXT: u64 = 50;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    board: String,
    #[serde(default)]
    mask: u16,
    limit: u64,
}

pub(crate) async fn position(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let board = parse_board(&request.board, request.mask)?;
    let limit = request.limit;
    if limit > MAX_PLACES {
        return Err(Failure::bad_request(format!("limit: expected at most {MAX_PLACES}, found {limit}")));
    }
    let _permit = explorer.permit().await?;
    blocking(move |cancel| {
        let started = Instant::now();
        let (archive, options) = (explorer.archive(), limits());
        let ask = |name: &str, limit: Option<u64>| ask(&archive, name, board, limit, &options, cancel);
        let moves = ask("position_moves", None)?;
        let places = ask("position_places", Some(limit))?;
        let next = ask("position_next", Some(MAX_NEXT))?;
        let num_found: u64 = moves.iter().filter_map(|row| row["num_steps"].as_u64()).sum();
        let canonical = board.canonical();
        Ok(Json(json!({
            "board": hex(board),
            "mask": board.tile_65536_mask(),
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

/// Runs a named query about a board, and returns its rows as objects.
fn ask(
    archive: &Archive,
    name: &str,
    board: WideBoard,
    limit: Option<u64>,
    options: &QueryOptions,
    cancel: &CancellationToken,
) -> Result<Vec<Map<String, Value>>> {
    let query = SavedQuery::find(name)?;
    let mut params = HashMap::from([
        ("board".to_owned(), ScalarValue::from(board.board().0)),
        ("tile_65536_mask".to_owned(), ScalarValue::from(u64::from(board.tile_65536_mask()))),
    ]);
    params.extend(limit.map(|limit| ("limit".to_owned(), ScalarValue::from(limit))));
    objects(&archive.query_with(&query, params, options, cancel)?.rows(cancel)?)
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
