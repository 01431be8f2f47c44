//! A game as JSON, for the explorer's page.

use super::replay::{Position, Prediction, Replay};
use super::rows::read;
use a2store::archive::Archive;
use a2store::error::Result;
use a2store::query::{QueryOptions, json_rows, short};
use a2store::system::cancellation::CancellationToken;
use serde_json::{Value, json};
use std::ops::Range;

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
