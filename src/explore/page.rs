//! The HTML page that replays a game.

use super::game::{Game, Position, Prediction};
use super::marks::Thresholds;
use crate::board::{Palette, Rgb};
use serde_json::{Value, json};

const TEMPLATE: &str = include_str!("replay.html");

/// The part of the template that the data replaces.
const PLACE: &str = "<script type=\"application/json\" id=\"data\">{}</script>";

/// Returns a page that replays a game and starts at the position `at`. The page needs no other file and no
/// network.
pub(crate) fn replay_page(game: &Game, title: &str, at: usize, thresholds: Thresholds) -> String {
    let colors = (0..=16).map(|exp| {
        let hex = |Rgb(red, green, blue): Rgb| format!("#{red:02x}{green:02x}{blue:02x}");
        json!([hex(Palette::Classic.background(exp)), hex(Palette::Classic.text(exp))])
    });
    let data = json!({
        "title": title,
        "at": at,
        "min_loss": thresholds.min_loss,
        "colors": colors.collect::<Vec<_>>(),
        "models": game.models,
        "positions": game.positions.iter().map(position).collect::<Vec<_>>(),
    });
    // Only `<` can end the data of a script element. In JSON, `<` occurs only in strings, where it can be
    // escaped.
    let data = data.to_string().replace('<', "\\u003c");
    TEMPLATE.replacen(PLACE, &PLACE.replacen("{}", &data, 1), 1)
}

fn position(position: &Position) -> Value {
    json!({
        "board": format!("{:016x}", position.board.board().0),
        "mask": position.board.tile_65536_mask(),
        "step": position.step,
        "score": position.score,
        "played": position.played.map(|played| played as u8),
        "values": position.values,
        "predictions": position.predictions.iter().map(prediction).collect::<Vec<_>>(),
    })
}

/// Returns the index of the model, the preferred move, and the numbers of the four moves. If a model predicts
/// only one move, the other three have null.
fn prediction(prediction: &Prediction) -> Value {
    let mut moves = prediction.moves;
    if let (Some(preferred), [None, None, None, None]) = (prediction.preferred, moves) {
        moves[preferred as usize] = prediction.probability;
    }
    json!([prediction.model, prediction.preferred.map(|preferred| preferred as u8), moves])
}
