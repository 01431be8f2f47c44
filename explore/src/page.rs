//! The page that replays a game: the explorer's page in one file, with its data.

use super::data::{predictions, replay_json};
use super::replay::Replay;
use crate::report::with_data;
use a2store::archive::Archive;
use a2store::board::Palette;
use a2store::error::Result;
use a2store::query::{QueryOptions, short};
use a2store::system::cancellation::CancellationToken;
use serde_json::{Value, json};

/// The page without data, built from `web/`.
const TEMPLATE: &str = include_str!("../assets/replay.html");

/// The minimum loss of a blunder, from 0 to 1: the best value minus the value of the played move.
pub const MIN_LOSS: f32 = 0.1;

/// The maximum gap of a hard move, from 0 to 1: the best value minus the second best. Equal values do not make a hard
/// move, because both moves are right.
pub(super) const MAX_GAP: f32 = 0.001;

/// The content of a page that replays a game.
pub struct ReplayPage<'a> {
    /// The game.
    pub replay: &'a Replay,
    /// The index of the first position to show.
    pub at: usize,
    /// The minimum loss of a blunder; [`MIN_LOSS`] by default.
    pub min_loss: f32,
    /// All predictions of models, from [`ReplayPage::predictions`].
    pub predictions: Vec<Value>,
    /// The name of a policy, and its values for each position.
    pub policy: Option<(&'a str, Vec<[Option<f32>; 4]>)>,
}

impl ReplayPage<'_> {
    /// Returns all predictions for a run.
    ///
    /// # Errors
    /// The errors of queries.
    pub fn predictions(archive: &Archive, run_id: u32, cancel: &CancellationToken) -> Result<Vec<Value>> {
        let mut rows = predictions(archive, run_id, 0..u32::MAX, &QueryOptions::default(), cancel)?;
        rows.iter_mut().for_each(|row| round(&mut row["bins"]));
        Ok(rows)
    }

    /// Returns the page: HTML that needs no other file and no network.
    #[must_use]
    pub fn to_html(&self) -> String {
        let policy = self.policy.as_ref().map(|(name, values)| {
            let values: Vec<_> = values.iter().map(|four| four.map(|value| value.map(short))).collect();
            json!({ "name": name, "values": values })
        });
        let data = json!({
            "run": replay_json(self.replay),
            "at": self.at,
            "annotations": self.predictions,
            "policy": policy,
            "min_loss": short(self.min_loss),
            "max_gap": short(MAX_GAP),
            "palettes": palettes(),
        });
        with_data(TEMPLATE, &data)
    }
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
