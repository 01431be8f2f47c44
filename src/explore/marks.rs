//! Marks of interesting steps.

use super::game::{Game, Position};
use std::fmt;

/// The reason why a step is interesting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The engine's value of the played move is far below its best value.
    Blunder,
    /// The two best values are almost equal.
    Hard,
    /// A model prefers another move than the played one.
    Disagreement,
    /// The board has a larger tile than all earlier boards.
    NewTile,
}

impl Mark {
    pub(crate) const ALL: [Mark; 4] = [Mark::Blunder, Mark::Hard, Mark::Disagreement, Mark::NewTile];
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mark::Blunder => "blunder",
            Mark::Hard => "hard move",
            Mark::Disagreement => "disagreement",
            Mark::NewTile => "new tile",
        })
    }
}

/// The limits that decide which steps are marked. Both apply to normalised values, which are from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    /// The minimum loss of a blunder.
    pub(crate) min_loss: f32,
    /// The maximum gap of a hard move. Equal values do not make a hard move, because both moves are right.
    pub(crate) max_gap: f32,
}

impl Default for Thresholds {
    fn default() -> Self {
        Thresholds { min_loss: 0.1, max_gap: 0.001 }
    }
}

impl Game {
    /// Returns the marks of each position.
    pub(crate) fn marks(&self, thresholds: Thresholds) -> Vec<Vec<Mark>> {
        let mut max_exp = self.positions.first().map_or(0, |position| position.board.max_exp());
        let mut marks = Vec::with_capacity(self.positions.len());
        for position in &self.positions {
            let is_new = position.board.max_exp() > max_exp;
            max_exp = max_exp.max(position.board.max_exp());
            let has = |mark: &Mark| match mark {
                Mark::Blunder => position.loss().is_some_and(|loss| loss >= thresholds.min_loss),
                Mark::Hard => position.gap().is_some_and(|gap| gap > 0.0 && gap <= thresholds.max_gap),
                Mark::Disagreement => disagrees(position),
                Mark::NewTile => is_new,
            };
            marks.push(Mark::ALL.into_iter().filter(has).collect());
        }
        marks
    }
}

fn disagrees(position: &Position) -> bool {
    let played = position.played;
    position
        .predictions
        .iter()
        .any(|prediction| played.is_some() && prediction.preferred.is_some_and(|preferred| Some(preferred) != played))
}
