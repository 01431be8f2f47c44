//! One game: its steps, its final board, and what its engine said of it.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use std::fmt;

/// What a run's file says of the run as a whole.
///
/// The engine's own words: nothing here is derived from the steps, or checked against them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMeta {
    /// When the game began, in seconds since 1970 UTC; 0 = unknown.
    pub start_unix_s: u64,
    /// How long it took, in seconds.
    pub elapsed_s: f32,
    /// The final score as the engine counts it, usually [`Board::score`] of the final board.
    pub max_score: u64,
    /// The largest tile reached: 2048, not 11.
    pub highest_tile: u32,
    /// The engine's name. Absent and empty are different things in a2run2; A2T1 knows only absent.
    pub engine: Option<String>,
}

/// What an engine expected of the four moves of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branches {
    /// The value of up, down, left and right; 0.0 where illegal.
    pub values: [f32; 4],
    /// The legality mask: bit 0 is up, bit 3 is right.
    pub legal: u8,
}

/// One decoded game.
///
/// Its steps lie in columns of equal length, one entry per step. Build one with [`Run::builder`], read one with
/// [`read_run`](crate::read_run).
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    meta: RunMeta,
    steps: RunBuilder,
    final_board: Board,
}

/// A run that grows step by step.
#[derive(Clone, Debug, Default)]
pub struct RunBuilder {
    boards: Vec<Board>,
    moves: Vec<Move>,
    ev_values: Vec<[f32; 4]>,
    ev_legal: Vec<u8>,
    has_evs: Vec<bool>,
}

/// The first place where a run breaks the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The step, from 0.
    pub step: usize,
    /// What is wrong there.
    pub what: String,
}

impl Run {
    /// Starts a run, with room for `capacity` steps.
    #[must_use]
    pub fn builder(capacity: usize) -> RunBuilder {
        RunBuilder {
            boards: Vec::with_capacity(capacity),
            moves: Vec::with_capacity(capacity),
            ev_values: Vec::with_capacity(capacity),
            ev_legal: Vec::with_capacity(capacity),
            has_evs: Vec::with_capacity(capacity),
        }
    }

    /// What the file says of the run as a whole.
    #[must_use]
    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    /// The number of steps.
    #[must_use]
    pub fn num_steps(&self) -> usize {
        self.steps.boards.len()
    }

    /// The board before each step's move.
    #[must_use]
    pub fn boards(&self) -> &[Board] {
        &self.steps.boards
    }

    /// The move chosen at each step.
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.steps.moves
    }

    /// The values of up, down, left and right at each step: 0.0 where illegal, four NaNs where the run has none.
    #[must_use]
    pub fn ev_values(&self) -> &[[f32; 4]] {
        &self.steps.ev_values
    }

    /// The legality mask of each step: from its branches, or else from the rules.
    #[must_use]
    pub fn ev_legal(&self) -> &[u8] {
        &self.steps.ev_legal
    }

    /// Whether each step has branches.
    #[must_use]
    pub fn has_evs(&self) -> &[bool] {
        &self.steps.has_evs
    }

    /// The branches of a step, `None` when it has none or does not exist.
    #[must_use]
    #[inline]
    pub fn branches(&self, step: usize) -> Option<Branches> {
        let steps = &self.steps;
        (*steps.has_evs.get(step)?).then(|| Branches { values: steps.ev_values[step], legal: steps.ev_legal[step] })
    }

    /// The board after the last move.
    #[must_use]
    pub fn final_board(&self) -> Board {
        self.final_board
    }

    /// Checks the trajectory against the rules: every move is legal, every board is the one before it slid with one
    /// tile spawned, and every legality mask that came with the run is the rules'.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn verify(&self) -> Result<(), Violation> {
        let RunBuilder { boards, moves, ev_legal, has_evs, .. } = &self.steps;
        for step in 0..boards.len() {
            let (board, direction, legal) = (boards[step], moves[step], ev_legal[step]);
            let next = *boards.get(step + 1).unwrap_or(&self.final_board);
            let after = board.slide(direction);
            let violation = |what: String| Err(Violation { step, what });
            if after == board {
                return violation(format!("move {} is illegal on {board}", direction.name()));
            }
            if !after.spawns_into(next) {
                return violation(format!("move {} leads to {after}, which cannot become {next}", direction.name()));
            }
            // Without branches the mask is the rules' already.
            if has_evs[step] && legal != board.legal_moves() {
                let rules = board.legal_moves();
                return violation(format!("legality mask {legal:04b}, expected {rules:04b} on {board}"));
            }
        }
        Ok(())
    }
}

impl RunBuilder {
    /// Adds a step. Without branches its legality mask comes from the rules; with them, the value of an illegal
    /// branch becomes 0.0.
    #[inline]
    pub fn push(&mut self, board: Board, chosen: Move, branches: Option<Branches>) {
        let (values, legal) = match branches {
            Some(Branches { mut values, legal }) => {
                for direction in Move::ALL {
                    if legal & direction.bit() == 0 {
                        values[direction as usize] = 0.0;
                    }
                }
                (values, legal & 0b1111)
            }
            None => ([f32::NAN; 4], board.legal_moves()),
        };
        self.boards.push(board);
        self.moves.push(chosen);
        self.ev_values.push(values);
        self.ev_legal.push(legal);
        self.has_evs.push(branches.is_some());
    }

    /// Adds steps without branches.
    pub(crate) fn extend(&mut self, boards: &[Board], moves: &[Move]) {
        self.boards.extend_from_slice(boards);
        self.moves.extend_from_slice(moves);
        let len = self.boards.len();
        self.ev_legal.extend(boards.iter().map(|board| board.legal_moves()));
        self.ev_values.resize(len, [f32::NAN; 4]);
        self.has_evs.resize(len, false);
    }

    /// Ends the run.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) above 2^32 - 1 steps, which no format can hold.
    pub fn finish(self, meta: RunMeta, final_board: Board) -> Result<Run> {
        if u32::try_from(self.boards.len()).is_err() {
            return Err(Error::argument("steps", "at most 4294967295", self.boards.len()));
        }
        Ok(Run { meta, steps: self, final_board })
    }
}

impl PartialEq for RunBuilder {
    /// Values are compared bit by bit, so that a step without branches equals itself.
    fn eq(&self, other: &Self) -> bool {
        let bits = |values: &[[f32; 4]]| bytemuck::cast_slice::<_, u32>(values).to_vec();
        self.boards == other.boards
            && self.moves == other.moves
            && self.ev_legal == other.ev_legal
            && self.has_evs == other.has_evs
            && bits(&self.ev_values) == bits(&other.ev_values)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

impl std::error::Error for Violation {}
