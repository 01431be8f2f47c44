//! A game: its positions with values, scores and predictions.

use crate::archive::{Archive, StoredRun};
use crate::board::{Move, WideBoard};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::query::{QueryOptions, ScalarValue, query_error};
use crate::run::{Branches, Run, RunStep};
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float32Type, UInt8Type, UInt32Type};
use std::collections::HashMap;

/// A run of an archive, as a sequence of positions.
#[derive(Clone, Debug)]
pub(crate) struct Game {
    /// The id in the archive; `None` for a run from a file.
    pub(crate) run_id: Option<u32>,
    pub(crate) engine: Option<String>,
    /// The final score that the source states.
    pub(crate) max_score: u64,
    pub(crate) highest_tile: u32,
    /// Whether the values are in the engine's own unit instead of 0 to 1.
    pub(crate) has_raw_values: bool,
    /// The positions in the order of the game. The last one is the final board, if it is known.
    pub(crate) positions: Vec<Position>,
    /// The models that annotated steps of the run.
    pub(crate) models: Vec<String>,
}

/// A board, and the decision that was made on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position {
    /// The index of the step; `None` for the final board.
    pub(crate) step: Option<u32>,
    pub(crate) board: WideBoard,
    /// The score before the move, by the rules; `None` if it is unknown, as after a missing step.
    pub(crate) score: Option<u64>,
    /// The played move; `None` if it is unknown, and for the final board.
    pub(crate) played: Option<Move>,
    /// The engine's values of up, down, left and right; `None` for an illegal move or an unknown value.
    pub(crate) values: [Option<f32>; 4],
    /// The values, normalised to 0 to 1 by [`Run::normalized`].
    normalized: [Option<f32>; 4],
    /// The predictions, one for each model that annotated the step.
    pub(crate) predictions: Vec<Prediction>,
}

/// The prediction of a model for a position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The index of the model in [`Game::models`].
    pub(crate) model: usize,
    pub(crate) preferred: Option<Move>,
    /// The probability of the preferred move, or the probability mass of its top bin.
    pub(crate) probability: Option<f32>,
    /// The probability mass of the top bin of each move; `None` if the model does not predict bins.
    pub(crate) moves: [Option<f32>; 4],
}

impl Position {
    /// Returns the move with the largest value; the first one if several are equal.
    pub(crate) fn best(&self) -> Option<Move> {
        let best = descending(self.values).next()?;
        Move::ALL.into_iter().find(|&direction| self.values[direction as usize] == Some(best))
    }

    /// Returns the best value minus the value of the played move, both normalised to 0 to 1.
    pub(crate) fn loss(&self) -> Option<f32> {
        let best = descending(self.normalized).next()?;
        Some(best - self.normalized[self.played? as usize]?)
    }

    /// Returns the best value minus the second best, both normalised to 0 to 1.
    pub(crate) fn gap(&self) -> Option<f32> {
        let mut values = descending(self.normalized);
        Some(values.next()? - values.next()?)
    }
}

/// Returns the known values in descending order.
fn descending(values: [Option<f32>; 4]) -> impl Iterator<Item = f32> {
    let mut values: Vec<f32> = values.into_iter().flatten().collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    values.into_iter()
}

impl Game {
    /// Returns the number of steps.
    pub(crate) fn num_steps(&self) -> usize {
        self.positions.iter().filter(|position| position.step.is_some()).count()
    }

    /// Returns the positions of a run, without predictions.
    pub(crate) fn of_run(run_id: Option<u32>, run: &Run) -> Game {
        let (meta, normalized) = (run.meta(), run.normalized());
        let steps = (0..run.num_steps()).filter_map(|step| run.step(step).zip(normalized.step(step)));
        let mut positions: Vec<Position> = steps.map(|(step, normal)| Position::of_step(step, normal)).collect();
        positions.extend(run.final_board().map(Position::of_final_board));
        set_scores(&mut positions);
        Game {
            run_id,
            engine: meta.engine.clone(),
            max_score: meta.max_score,
            highest_tile: meta.highest_tile,
            has_raw_values: meta.raw_evs,
            positions,
            models: Vec::new(),
        }
    }
}

impl Position {
    /// `normalized` is the same step of the normalised run.
    fn of_step(step: RunStep, normalized: RunStep) -> Position {
        let value = |branches: &Branches, direction: Move| {
            let value = branches.values[direction as usize];
            (branches.legal & direction.bit() != 0 && !value.is_nan()).then_some(value)
        };
        let values = |step: &RunStep| Move::ALL.map(|direction| value(step.branches.as_ref()?, direction));
        Position {
            step: Some(step.index),
            board: step.board,
            score: None,
            played: step.chosen,
            values: values(&step),
            normalized: values(&normalized),
            predictions: Vec::new(),
        }
    }

    fn of_final_board(board: WideBoard) -> Position {
        Position {
            step: None,
            board,
            score: None,
            played: None,
            values: [None; 4],
            normalized: [None; 4],
            predictions: Vec::new(),
        }
    }
}

impl Archive {
    /// Reads a run.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the archive has no such run. Errors of reading the archive.
    pub(crate) fn run(&self, run_id: u32, cancel: &CancellationToken) -> Result<StoredRun> {
        let mut found = None;
        self.read_runs(&[run_id], Some(1), &(), cancel, Ok, |_, run| {
            found = Some(run);
            Ok(())
        })?;
        let expected = || format!("the id of one of {} runs", self.num_runs());
        found.ok_or_else(|| Error::argument("run_id", expected(), run_id))
    }

    /// Reads a run, with the predictions for its steps.
    ///
    /// # Errors
    /// The errors of [`run`](Archive::run) and of queries.
    pub(crate) fn game(&self, run_id: u32, cancel: &CancellationToken) -> Result<Game> {
        self.game_of(run_id, &self.run(run_id, cancel)?.run, cancel)
    }

    /// Returns the positions of a run of this archive, with the predictions for its steps.
    ///
    /// # Errors
    /// The errors of queries.
    pub(crate) fn game_of(&self, run_id: u32, run: &Run, cancel: &CancellationToken) -> Result<Game> {
        let mut game = Game::of_run(Some(run_id), run);
        game.models = add_predictions(self, run_id, &mut game.positions, cancel)?;
        Ok(game)
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
    let rows = read(
        archive,
        "SELECT step_index, model, argmax_head, argmax_prob, \
         policy_p1_up AS up, policy_p1_down AS down, policy_p1_left AS left, policy_p1_right AS right \
         FROM annotations WHERE run_id = $run ORDER BY model, step_index",
        run_id,
        cancel,
    )?;
    let places: HashMap<u32, usize> =
        positions.iter().enumerate().filter_map(|(place, position)| Some((position.step?, place))).collect();
    let (steps, models) = (rows.u32("step_index")?, rows.text("model")?);
    let (heads, probabilities) = (rows.u8("argmax_head")?, rows.f32("argmax_prob")?);
    let moves = [rows.f32("up")?, rows.f32("down")?, rows.f32("left")?, rows.f32("right")?];
    let mut names: Vec<String> = Vec::new();
    for (row, model) in models.into_iter().enumerate() {
        let model = model.unwrap_or_default();
        if names.last() != Some(&model) {
            names.push(model);
        }
        if let Some(position) = steps[row].and_then(|step| positions.get_mut(*places.get(&step)?)) {
            position.predictions.push(Prediction {
                model: names.len() - 1,
                preferred: heads[row].and_then(Move::from_index),
                probability: probabilities[row],
                moves: std::array::from_fn(|direction| moves[direction][row]),
            });
        }
    }
    Ok(names)
}

/// The rows of a query.
struct Rows(RecordBatch);

fn read(archive: &Archive, sql: &str, run_id: u32, cancel: &CancellationToken) -> Result<Rows> {
    let params = vec![("run", ScalarValue::from(run_id))];
    let query = archive.sql_unless_cancelled(sql, params.into(), &QueryOptions::default(), cancel)?;
    let mut stream = query.stream_unless_cancelled(cancel)?;
    let mut batches = Vec::new();
    while let Some(batch) = stream.next_unless_cancelled(cancel)? {
        batches.push(batch);
    }
    Ok(Rows(concat_batches(&stream.schema(), &batches).map_err(|error| query_error(error.into()))?))
}

/// Defines a function that returns a column of the query as values.
macro_rules! primitive {
    ($name:ident, $type:ty, $arrow:ty, $dtype:expr) => {
        fn $name(&self, name: &str) -> Result<Vec<Option<$type>>> {
            Ok(self.column(name, &$dtype)?.as_primitive::<$arrow>().iter().collect())
        }
    };
}

impl Rows {
    fn column(&self, name: &str, dtype: &DataType) -> Result<ArrayRef> {
        let missing = || ErrorKind::Query { message: format!("no column {name}") };
        cast(self.0.column_by_name(name).ok_or_else(missing)?, dtype).map_err(|error| query_error(error.into()))
    }

    primitive!(u8, u8, UInt8Type, DataType::UInt8);
    primitive!(u32, u32, UInt32Type, DataType::UInt32);
    primitive!(f32, f32, Float32Type, DataType::Float32);

    fn text(&self, name: &str) -> Result<Vec<Option<String>>> {
        let column = self.column(name, &DataType::Utf8)?;
        Ok(column.as_string::<i32>().iter().map(|text| text.map(str::to_owned)).collect())
    }
}
