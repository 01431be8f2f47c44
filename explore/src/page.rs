//! The page that replays a game: the explorer's page in one file, with its data.

use super::data::{predictions, replay_json};
use super::replay::Replay;
use crate::report::with_data;
use a2store::archive::Archive;
use a2store::board::Palette;
use a2store::error::{Error, Result};
use a2store::query::{QueryOptions, short};
use a2store::system::cancellation::CancellationToken;
use a2store::system::publish::Output;
use serde_json::{Value, json};
use std::io::Write;
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
        (0..=16).map(|exp| [palette.background(exp).hex(), Palette::text(exp).hex()]).collect()
    };
    json!({ "classic": colors(Palette::Classic), "safe": colors(Palette::Viridis) })
}
