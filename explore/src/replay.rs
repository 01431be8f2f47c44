//! A game: its positions with values, scores and predictions.

use super::rows::read;
use a2store::archive::Archive;
use a2store::board::{Move, WideBoard};
use a2store::error::Result;
use a2store::query::{QueryOptions, json_rows};
use a2store::run::{Branches, Run, RunStep};
use a2store::system::cancellation::CancellationToken;
use serde_json::Value;
use std::collections::HashMap;

/// A run of an archive, as a sequence of positions.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The id in the archive; `None` for a run from a file.
    pub run_id: Option<u32>,
    /// The engine or the label.
    pub engine: Option<String>,
    /// The final score that the source states.
    pub max_score: u64,
    /// The highest tile of the game.
    pub highest_tile: u32,
    /// Whether the values are in the engine's own unit instead of 0 to 1.
    pub has_raw_values: bool,
    /// The positions in the order of the game. The last one is the final board, if it is known.
    pub positions: Vec<Position>,
    /// The models that annotated steps of the run.
    pub models: Vec<String>,
}

/// A board, and the decision that was made on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Position {
    /// The index of the step; `None` for the final board.
    pub step: Option<u32>,
    /// The board before the move.
    pub board: WideBoard,
    /// The score before the move, by the rules; `None` if it is unknown, as after a missing step.
    pub score: Option<u64>,
    /// The played move; `None` if it is unknown, and for the final board.
    pub played: Option<Move>,
    /// The engine's values of up, down, left and right; `None` for an illegal move or an unknown value.
    pub values: [Option<f32>; 4],
    /// The values, normalized to 0 to 1 by [`Run::normalized`].
    normalized: [Option<f32>; 4],
    /// The predictions, one for each model that annotated the step.
    pub predictions: Vec<Prediction>,
}

/// The prediction of a model for a position.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The index of the model in [`Replay::models`].
    pub model: usize,
    /// The move with the highest probability.
    pub preferred: Option<Move>,
    /// The probability of the preferred move, or the probability mass of its top bin.
    pub probability: Option<f32>,
    /// The probability mass of the top bin of each move; `None` if the model does not predict bins.
    pub moves: [Option<f32>; 4],
}

impl Position {
    /// Returns the move with the largest value; the first one if several are equal.
    #[must_use]
    pub fn best(&self) -> Option<Move> {
        let best = descending(self.values).next()?;
        Move::ALL.into_iter().find(|&direction| self.values[direction as usize] == Some(best))
    }

    /// Returns the best value minus the value of the played move, both normalized to 0 to 1.
    #[must_use]
    pub fn loss(&self) -> Option<f32> {
        let best = descending(self.normalized).next()?;
        Some(best - self.normalized[self.played? as usize]?)
    }

    /// Returns the best value minus the second best, both normalized to 0 to 1.
    #[must_use]
    pub fn gap(&self) -> Option<f32> {
        let mut values = descending(self.normalized);
        Some(values.next()? - values.next()?)
    }

    /// `normalized` is the same step of the normalized run.
    fn of_step(step: RunStep, normalized: RunStep) -> Position {
        let value = |branches: &Branches, direction: Move| {
            let value = branches.values[direction as usize];
            (branches.legal & direction.bit() != 0 && !value.is_nan()).then_some(value)
        };
        let values = |step: &RunStep| Move::ALL.map(|direction| value(step.branches.as_ref()?, direction));
        Position {
            step: Some(step.index),
            board: step.board,
            played: step.chosen,
            values: values(&step),
            normalized: values(&normalized),
            ..Position::default()
        }
    }
}

/// Returns the known values in descending order.
fn descending(values: [Option<f32>; 4]) -> impl Iterator<Item = f32> {
    let mut values: Vec<f32> = values.into_iter().flatten().collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values.into_iter()
}

impl Replay {
    /// Returns the number of steps.
    #[must_use]
    pub fn num_steps(&self) -> usize {
        self.positions.iter().filter(|position| position.step.is_some()).count()
    }

    /// Returns the positions of a run, without predictions.
    #[must_use]
    pub fn of_run(run_id: Option<u32>, run: &Run) -> Replay {
        let (meta, normalized) = (run.meta(), run.normalized());
        let steps = (0..run.num_steps()).filter_map(|step| run.step(step).zip(normalized.step(step)));
        let mut positions: Vec<Position> = steps.map(|(step, normal)| Position::of_step(step, normal)).collect();
        positions.extend(run.final_board().map(|board| Position { board, ..Position::default() }));
        set_scores(&mut positions);
        Replay {
            run_id,
            engine: meta.engine.clone(),
            max_score: meta.max_score,
            highest_tile: meta.highest_tile,
            has_raw_values: meta.raw_evs,
            positions,
            models: Vec::new(),
        }
    }

    /// Returns the positions of a run that was read from an archive, with the predictions for its steps.
    ///
    /// # Errors
    /// The errors of queries.
    pub fn of_stored(archive: &Archive, run_id: u32, run: &Run, cancel: &CancellationToken) -> Result<Replay> {
        let mut replay = Replay::of_run(Some(run_id), run);
        replay.models = add_predictions(archive, run_id, &mut replay.positions, cancel)?;
        Ok(replay)
    }
}

/// Sets the score before each move: the sum of the rewards so far, by the rules.
///
/// The score that the source states may differ, because engines count differently. After a missing step or
/// move, the scores are unknown. All scores are unknown if the first board has more than two tiles, or a tile
/// above 4.
fn set_scores(positions: &mut [Position]) {
    let is_opening =
        |board: WideBoard| board.max_exp() <= 2 && board.exps().iter().filter(|&&exp| exp > 0).count() <= 2;
    let mut score = positions.first().filter(|position| is_opening(position.board)).map(|_| 0);
    let mut next = Some(0);
    for position in positions {
        if position.step.is_some() && position.step != next {
            score = None;
        }
        position.score = score;
        let reward = position.played.map(|played| u64::from(position.board.reward(played)));
        score = score.zip(reward).map(|(score, reward)| score + reward);
        next = position.step.and_then(|step| step.checked_add(1));
    }
}

/// Adds the predictions of each model to the positions, and returns the names of the models.
fn add_predictions(
    archive: &Archive,
    run_id: u32,
    positions: &mut [Position],
    cancel: &CancellationToken,
) -> Result<Vec<String>> {
    if archive.annotations().is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT step_index, model, argmax_head, argmax_prob, \
         policy_p1_up AS up, policy_p1_down AS down, policy_p1_left AS left, policy_p1_right AS right \
         FROM annotations WHERE run_id = {run_id} ORDER BY model, step_index"
    );
    let places: HashMap<u32, usize> =
        positions.iter().enumerate().filter_map(|(place, position)| Some((position.step?, place))).collect();
    let mut names: Vec<String> = Vec::new();
    for row in json_rows(&read(archive, &sql, &QueryOptions::default(), cancel)?)? {
        let Ok([step, model, preferred, probability, moves @ ..]) = <[Value; 8]>::try_from(row) else { continue };
        let model = model.as_str().unwrap_or_default();
        if names.last().is_none_or(|last| last != model) {
            names.push(model.to_owned());
        }
        let byte = |value: &Value| value.as_u64().and_then(|value| u8::try_from(value).ok());
        let float = |value: &Value| value.as_f64().map(|value| value as f32);
        let step = step.as_u64().and_then(|step| u32::try_from(step).ok());
        if let Some(position) = step.and_then(|step| positions.get_mut(*places.get(&step)?)) {
            position.predictions.push(Prediction {
                model: names.len() - 1,
                preferred: byte(&preferred).and_then(Move::from_index),
                probability: float(&probability),
                moves: moves.each_ref().map(float),
            });
        }
    }
    Ok(names)
}
