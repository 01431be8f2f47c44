//! One game: its steps, its final board, and what its engine said of it.

use crate::board::{Board, Move};
use crate::error::{Error, Result};
use std::borrow::Cow;
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
    /// The seed that the game was played with. Run files have none.
    pub seed: Option<u64>,
    /// Whether the values of the branches are the engine's own numbers, of any size, rather than normalised to `[0, 1)`
    /// step by step.
    pub raw_evs: bool,
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
///
/// A run file holds a **whole** game. Other sources leave things out: the final board, some moves, or all steps but
/// every `N`-th ([`Run::missing`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    meta: RunMeta,
    steps: RunBuilder,
    final_board: Option<Board>,
}

/// A run that grows step by step.
#[derive(Clone, Debug, Default)]
pub struct RunBuilder {
    boards: Vec<Board>,
    moves: Vec<Move>,
    ev_values: Vec<[f32; 4]>,
    ev_legal: Vec<u8>,
    has_evs: Vec<bool>,
    /// The steps whose move is not known, in ascending order; mostly none.
    unknown_moves: Vec<u32>,
    /// The index of each step in its game; empty if they are 0, 1, 2, …
    step_indices: Vec<u32>,
}

/// One step, as it goes into a run and comes out of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunStep {
    /// Its index in the game, from 0: its place in the run unless steps are missing.
    pub index: u32,
    /// The board before the move.
    pub board: Board,
    /// The chosen move, where it is known.
    pub chosen: Option<Move>,
    /// What the engine expected of the four moves, where it said so.
    pub branches: Option<Branches>,
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
            unknown_moves: Vec::new(),
            step_indices: Vec::new(),
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

    /// The move chosen at each step. Where it is not known, at [`Run::unknown_moves`], stands [`Move::Up`].
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

    /// The steps whose move is not known, in ascending order.
    #[must_use]
    pub fn unknown_moves(&self) -> &[u32] {
        &self.steps.unknown_moves
    }

    /// The index of each step in its game, if they are not 0, 1, 2, …: `None` unless steps are missing.
    #[must_use]
    pub fn step_indices(&self) -> Option<&[u32]> {
        (!self.steps.step_indices.is_empty()).then_some(&self.steps.step_indices)
    }

    /// A step, `None` beyond the last.
    #[must_use]
    #[inline]
    pub fn step(&self, step: usize) -> Option<RunStep> {
        let board = *self.steps.boards.get(step)?;
        let known =
            self.steps.unknown_moves.is_empty() || self.steps.unknown_moves.binary_search(&(step as u32)).is_err();
        Some(RunStep {
            index: self.steps.step_indices.get(step).copied().unwrap_or(step as u32),
            board,
            chosen: known.then(|| self.steps.moves[step]),
            branches: self.branches(step),
        })
    }

    /// The board after the last move, where it is known.
    #[must_use]
    pub fn final_board(&self) -> Option<Board> {
        self.final_board
    }

    /// What keeps this from being a whole game that a run file can hold: `"a final board"`, `"every move"` or
    /// `"every step"`; `None` if nothing does.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        if self.step_indices().is_some() {
            Some("every step")
        } else if !self.steps.unknown_moves.is_empty() {
            Some("every move")
        } else if self.final_board.is_none() {
            Some("a final board")
        } else {
            None
        }
    }

    /// The final board of a whole game.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when something of the game is missing.
    pub(crate) fn whole(&self) -> Result<Board> {
        match (self.missing(), self.final_board) {
            (None, Some(board)) => Ok(board),
            (missing, _) => {
                let found = format!("one without {}", missing.unwrap_or("a final board"));
                Err(Error::argument("run", "a whole game", found))
            }
        }
    }

    /// This run with values in `[0, 1)`: raw ones are shifted and scaled step by step so that the least legal one becomes
    /// 0 and the greatest `1 - f32::EPSILON`; a single legal one becomes that too, and equal ones 0.5. As the field's engines
    /// write them.
    #[must_use]
    pub fn normalized(&self) -> Cow<'_, Run> {
        if !self.meta.raw_evs {
            return Cow::Borrowed(self);
        }
        let mut run = self.clone();
        run.meta.raw_evs = false;
        let steps = &mut run.steps;
        for ((values, &legal), &has) in steps.ev_values.iter_mut().zip(&steps.ev_legal).zip(&steps.has_evs) {
            if has {
                *values = normalize(*values, legal);
            }
        }
        Cow::Owned(run)
    }

    /// Checks the trajectory against the rules: every move is legal, every board is the one before it slid with one
    /// tile spawned, and every legality mask that came with the run is the rules'. Of a move that is not known there must be
    /// one that could have been chosen; boards between which steps are missing are not compared.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn verify(&self) -> Result<(), Violation> {
        let RunBuilder { boards, moves, ev_legal, has_evs, step_indices, unknown_moves, .. } = &self.steps;
        let mut unknown = unknown_moves.iter().peekable();
        for step in 0..boards.len() {
            let (board, direction, legal) = (boards[step], moves[step], ev_legal[step]);
            let violation = |what: String| Err(Violation { step, what });
            let is_unknown = unknown.next_if(|&&next| next as usize == step).is_some();
            let follows = step_indices.is_empty() || step_indices.get(step + 1) == Some(&(step_indices[step] + 1));
            let next = boards.get(step + 1).copied().or(self.final_board).filter(|_| follows);
            let leads = |direction: Move| {
                let after = board.slide(direction);
                after != board && next.is_none_or(|next| after.spawns_into(next))
            };
            if is_unknown && !Move::ALL.into_iter().any(leads) {
                return violation(format!("no move leads from {board} to the next board"));
            }
            if !is_unknown {
                let after = board.slide(direction);
                if after == board {
                    return violation(format!("move {} is illegal on {board}", direction.name()));
                }
                if let Some(next) = next
                    && !after.spawns_into(next)
                {
                    return violation(format!(
                        "move {} leads to {after}, which cannot become {next}",
                        direction.name()
                    ));
                }
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

    /// Adds a step of which the move may not be known, at an index that is above the last one's.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when the index is not above that of the step before.
    pub fn push_step(&mut self, step: RunStep) -> Result<()> {
        let place = self.boards.len() as u32;
        if step.index != place || !self.step_indices.is_empty() {
            if self.step_indices.is_empty() {
                self.step_indices.extend(0..place);
            }
            if let Some(&last) = self.step_indices.last()
                && step.index <= last
            {
                return Err(Error::argument("step index", format!("above {last}"), step.index));
            }
            self.step_indices.push(step.index);
        }
        if step.chosen.is_none() {
            self.unknown_moves.push(place);
        }
        self.push(step.board, step.chosen.unwrap_or(Move::Up), step.branches);
        Ok(())
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

    /// Ends the run, with its final board if that is known.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) above 2^32 - 1 steps, which no format can hold.
    pub fn finish(self, meta: RunMeta, final_board: impl Into<Option<Board>>) -> Result<Run> {
        if u32::try_from(self.boards.len()).is_err() {
            return Err(Error::argument("steps", "at most 4294967295", self.boards.len()));
        }
        Ok(Run { meta, steps: self, final_board: final_board.into() })
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
            && self.unknown_moves == other.unknown_moves
            && self.step_indices == other.step_indices
            && bits(&self.ev_values) == bits(&other.ev_values)
    }
}

/// The value of the best branch: the greatest number below 1 at half the precision of those next to it, as the field's
/// engines write it.
pub(crate) const BEST_EV: f32 = 1.0 - f32::EPSILON;

fn normalize(values: [f32; 4], legal: u8) -> [f32; 4] {
    let is_legal = |branch: usize| legal >> branch & 1 == 1;
    let of_legal = || (0..4).filter(|&branch| is_legal(branch)).map(|branch| values[branch]);
    let (least, most) = (of_legal().fold(f32::INFINITY, f32::min), of_legal().fold(f32::NEG_INFINITY, f32::max));
    // The difference of two f32 may exceed one.
    let (least, range) = (f64::from(least), f64::from(most) - f64::from(least));
    std::array::from_fn(|branch| match values[branch] {
        _ if !is_legal(branch) => 0.0,
        _ if of_legal().count() == 1 => BEST_EV,
        _ if range == 0.0 => 0.5,
        value => ((f64::from(value) - least) / range).min(f64::from(BEST_EV)) as f32,
    })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

impl std::error::Error for Violation {}
