//! A game as JSON, and the page that replays it: the explorer's page in one file, with its data.

use super::replay::{Position, Prediction, Replay};
use super::rows::read;
use crate::report::with_data;
use a2store::archive::Archive;
use a2store::board::Palette;
use a2store::error::{Error, Result};
use a2store::query::{QueryOptions, json_rows, short};
use a2store::system::cancellation::CancellationToken;
use a2store::system::publish::Output;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// The page without data, built from `web/`.
const TEMPLATE: &str = include_str!("../assets/replay.html");

/// The minimum loss of a blunder, from 0 to 1: the best value minus the value of the played move.
pub const MIN_LOSS: f32 = 0.1;

/// The maximum gap of a hard move, from 0 to 1: the best value minus the second best. Equal values do not make a hard
/// move, because both moves are right.
pub(super) const MAX_GAP: f32 = 0.001;

/// Returns the page that replays a game: HTML that needs no other file and no network.
///
/// The page begins at the position with index `at`. A blunder has at least the loss `min_loss`. If the game is a run of
/// `archive`, the page shows the predictions of models for it. `policy` is the name of a policy, and its values for each
/// position.
///
/// # Errors
/// The errors of queries.
pub fn replay_page(
    archive: Option<&Archive>,
    replay: &Replay,
    at: usize,
    min_loss: f32,
    policy: Option<(&str, Vec<[Option<f32>; 4]>)>,
    cancel: &CancellationToken,
) -> Result<String> {
    let mut rows = match archive.zip(replay.run_id) {
        Some((archive, run_id)) => predictions(archive, run_id, 0..u32::MAX, &QueryOptions::default(), cancel)?,
        None => Vec::new(),
    };
    rows.iter_mut().for_each(|row| round(&mut row["bins"]));
    let policy = policy.map(|(name, values)| {
        let values: Vec<_> = values.into_iter().map(|four| four.map(|value| value.map(short))).collect();
        json!({ "name": name, "values": values })
    });
    let data = json!({
        "run": replay_json(replay),
        "at": at,
        "annotations": rows,
        "policy": policy,
        "min_loss": short(min_loss),
        "max_gap": short(MAX_GAP),
        "palettes": palettes(),
    });
    Ok(with_data(TEMPLATE, &data))
}

/// Writes a page to a file. Replaces an existing file atomically.
///
/// # Errors
/// [`ErrorKind::Io`](a2store::ErrorKind::Io).
pub fn write_page(path: &Path, page: &str) -> Result<()> {
    let output = Output::create(path)?;
    output.file().write_all(page.as_bytes()).map_err(|source| Error::io(path, source))?;
    output.publish()
}

/// Rounds numbers to three decimals. Value bins are most of the data, and the page draws them 19 pixels high.
fn round(bins: &mut Value) {
    match bins {
        Value::Array(parts) => parts.iter_mut().for_each(round),
        Value::Number(number) => *bins = json!((number.as_f64().unwrap_or_default() * 1000.0).round() / 1000.0),
        _ => {}
    }
}

/// Returns the colours of the tiles by exponent: background and text.
pub(super) fn palettes() -> Value {
    let colors = |palette: Palette| -> Vec<[String; 2]> {
        (0..=16).map(|exp| [palette.background(exp), Palette::text(exp).to_owned()]).collect()
    };
    json!({ "classic": colors(Palette::Classic), "safe": colors(Palette::Viridis) })
}

/// Returns a run with all its positions as columns.
pub(super) fn replay_json(replay: &Replay) -> Value {
    json!({
        "run_id": replay.run_id,
        "engine": replay.engine,
        "max_score": replay.max_score,
        "highest_tile": replay.highest_tile,
        "num_steps": replay.num_steps(),
        "raw_evs": replay.has_raw_values,
        "positions": columns(&replay.positions),
        "models": models(replay),
    })
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
        "loss": column(|position| json!(position.loss().map(short))),
        "gap": column(|position| json!(position.gap().map(short))),
    })
}

fn models(replay: &Replay) -> Vec<Value> {
    let of_model = |model: usize, name: &str| {
        let predictions: Vec<(usize, &Prediction)> = replay
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
    replay.models.iter().enumerate().map(|(model, name)| of_model(model, name)).collect()
}

/// Returns all predictions of models for a range of steps.
///
/// # Errors
/// The errors of queries.
pub(crate) fn predictions(
    archive: &Archive,
    run_id: u32,
    steps: Range<u32>,
    options: &QueryOptions,
    cancel: &CancellationToken,
) -> Result<Vec<Value>> {
    if archive.annotations().is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT step_index, model, argmax_head, argmax_prob, policy_p1, policy_logp, policy_hard, student_bins, \
         teacher_move FROM annotations WHERE run_id = {run_id} AND step_index >= {} AND step_index < {} \
         ORDER BY step_index, model",
        steps.start, steps.end
    );
    let rows = json_rows(&read(archive, &sql, options, cancel)?)?;
    Ok(rows.into_iter().filter_map(|row| <[Value; 9]>::try_from(row).ok().map(prediction)).collect())
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
