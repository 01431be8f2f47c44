//! One game: its steps, its final board and its metadata.

use crate::board::{Board, Move, WideBoard, has_two_of_15};
use crate::error::{Error, Result};
use crate::step_details::StepDetails;
use std::borrow::Cow;

/// The metadata of a run, as its file has it.
///
/// The values come from the engine. They are neither derived from the steps nor checked against them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMeta {
    /// The start of the game, in seconds since 1970 UTC; 0 = unknown.
    pub start_unix_s: u64,
    /// The duration of the game, in seconds.
    pub elapsed_s: f32,
    /// The final score as the engine counts it, usually [`Board::score`] of the final board.
    pub max_score: u64,
    /// The largest tile reached: 2048, not 11.
    pub highest_tile: u32,
    /// The engine's name. a2run2 distinguishes an absent name from an empty one; A2T1 does not.
    pub engine: Option<String>,
    /// The seed of the game. Run files do not store it.
    pub seed: Option<u64>,
    /// Whether the values of the branches are the engine's own numbers, of any size. Otherwise they are normalized to
    /// `[0, 1)` step by step.
    pub raw_evs: bool,
}

/// The engine's values of the four moves at one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Branches {
    /// The value of up, down, left and right; 0.0 where illegal.
    pub values: [f32; 4],
    /// The legality mask: bit 0 is up, bit 3 is right.
    pub legal: u8,
}

/// One decoded game.
///
/// The steps are stored in columns of equal length, one entry per step. [`Run::builder`] builds a run, and
/// [`read_run`](crate::format::read_run) reads one from a file.
///
/// A run file holds a **whole** game. Other sources may lack the final board, some moves, or all steps except every
/// `N`-th ([`Run::missing`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    meta: RunMeta,
    steps: RunBuilder,
    final_board: Option<WideBoard>,
    details: Option<Box<StepDetails>>,
}

/// A builder of [`Run`]s, to which steps are added one by one.
#[derive(Clone, Debug, Default)]
pub struct RunBuilder {
    boards: Vec<Board>,
    /// The mask of the cells with 65,536 at each step; empty if no step has such a tile.
    tile_65536_masks: Vec<u16>,
    moves: Vec<Move>,
    ev_values: Vec<[f32; 4]>,
    ev_legal: Vec<u8>,
    has_evs: Vec<bool>,
    /// The steps whose move is unknown, in ascending order. Usually empty.
    unknown_moves: Vec<u32>,
    /// The index of each step in its game; empty if the indices are 0, 1, 2, …
    step_indices: Vec<u32>,
}

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunStep {
    /// The index of the step in the game, from 0. It differs from the position in the run if steps are missing.
    pub index: u32,
    /// The board before the move.
    pub board: WideBoard,
    /// The chosen move; `None` if it is unknown.
    pub chosen: Option<Move>,
    /// The engine's values of the four moves, if the engine recorded them.
    pub branches: Option<Branches>,
}

/// What a format without masks expects of a run.
const NARROW: &str = "tiles of at most 32768 in this format; session and macroxue hold larger tiles";

impl RunStep {
    /// Returns the board, for a format that cannot hold a tile of 65,536.
    #[inline]
    pub(crate) fn narrow_board(&self) -> Result<Board> {
        let found = || format!("65536 at step {}", self.index);
        self.board.narrow().ok_or_else(|| Error::argument("run", NARROW, found()))
    }
}

/// The first violation of the rules in a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {what}")]
pub struct Violation {
    /// The step, from 0.
    pub step: usize,
    /// The broken rule.
    pub what: String,
}

impl Run {
    /// Returns a builder with room for `capacity` steps.
    #[must_use]
    pub fn builder(capacity: usize) -> RunBuilder {
        RunBuilder {
            boards: Vec::with_capacity(capacity),
            moves: Vec::with_capacity(capacity),
            ev_values: Vec::with_capacity(capacity),
            ev_legal: Vec::with_capacity(capacity),
            has_evs: Vec::with_capacity(capacity),
            ..RunBuilder::default()
        }
    }

    /// Returns the metadata of the run.
    #[must_use]
    pub fn meta(&self) -> &RunMeta {
        &self.meta
    }

    /// Returns the number of steps.
    #[must_use]
    pub fn num_steps(&self) -> usize {
        self.steps.boards.len()
    }

    /// Returns the nibbles of the board before the move of each step: 15 for both 32,768 and 65,536.
    #[must_use]
    pub fn boards(&self) -> &[Board] {
        &self.steps.boards
    }

    /// Returns the mask of the cells with 65,536 at each step ([`WideBoard::tile_65536_mask`]); `None` if no step has
    /// such a tile.
    #[must_use]
    pub fn tile_65536_masks(&self) -> Option<&[u16]> {
        (!self.steps.tile_65536_masks.is_empty()).then_some(&self.steps.tile_65536_masks)
    }

    /// Returns the move chosen at each step. Unknown moves ([`Run::unknown_moves`]) are stored as [`Move::Up`].
    #[must_use]
    pub fn moves(&self) -> &[Move] {
        &self.steps.moves
    }

    /// Returns the values of up, down, left and right at each step: 0.0 if the move is illegal, four NaNs if the
    /// step has no values.
    #[must_use]
    pub fn ev_values(&self) -> &[[f32; 4]] {
        &self.steps.ev_values
    }

    /// Returns the legality mask of each step: the engine's mask if the step has branches, otherwise the mask by
    /// the rules.
    #[must_use]
    pub fn ev_legal(&self) -> &[u8] {
        &self.steps.ev_legal
    }

    /// Returns whether each step has branches.
    #[must_use]
    pub fn has_evs(&self) -> &[bool] {
        &self.steps.has_evs
    }

    /// Returns the branches of a step; `None` if the step has no branches or does not exist.
    #[must_use]
    #[inline]
    pub fn branches(&self, step: usize) -> Option<Branches> {
        let steps = &self.steps;
        (*steps.has_evs.get(step)?).then(|| Branches { values: steps.ev_values[step], legal: steps.ev_legal[step] })
    }

    /// Returns the steps whose move is unknown, in ascending order.
    #[must_use]
    pub fn unknown_moves(&self) -> &[u32] {
        &self.steps.unknown_moves
    }

    /// Returns the index of each step in its game; `None` if no steps are missing, so that the indices are 0, 1, 2, …
    #[must_use]
    pub fn step_indices(&self) -> Option<&[u32]> {
        (!self.steps.step_indices.is_empty()).then_some(&self.steps.step_indices)
    }

    /// Returns a step; `None` if it does not exist.
    #[must_use]
    #[inline]
    pub fn step(&self, step: usize) -> Option<RunStep> {
        let board = self.steps.board(step)?;
        let known =
            self.steps.unknown_moves.is_empty() || self.steps.unknown_moves.binary_search(&(step as u32)).is_err();
        Some(RunStep {
            index: self.steps.step_indices.get(step).copied().unwrap_or(step as u32),
            board,
            chosen: known.then(|| self.steps.moves[step]),
            branches: self.branches(step),
        })
    }

    /// Returns all steps.
    pub(crate) fn steps(&self) -> impl Iterator<Item = RunStep> {
        (0..self.num_steps()).filter_map(|place| self.step(place))
    }

    /// Returns the last step, if there is one.
    pub(crate) fn last_step(&self) -> Option<RunStep> {
        self.step(self.num_steps().checked_sub(1)?)
    }

    /// Returns the board after the last move, if it is known.
    #[must_use]
    pub fn final_board(&self) -> Option<WideBoard> {
        self.final_board
    }

    /// Returns the details that only the Macroxue engine records; `None` if no step has any.
    #[must_use]
    pub fn details(&self) -> Option<&StepDetails> {
        self.details.as_deref()
    }

    /// Returns this run with these details of its steps.
    #[must_use]
    pub fn with_details(self, details: StepDetails) -> Run {
        Run { details: (!details.is_empty()).then(|| Box::new(details)), ..self }
    }

    /// Returns this run with an unknown start time.
    pub(crate) fn without_start_time(mut self) -> Run {
        self.meta.start_unix_s = 0;
        self
    }

    /// Returns what a run file needs and this run lacks: `"a final board"`, `"every move"` or `"every step"`.
    /// Returns `None` for a whole game.
    #[must_use]
    pub fn missing(&self) -> Option<&'static str> {
        let parts = [
            (self.step_indices().is_some(), "every step"),
            (!self.steps.unknown_moves.is_empty(), "every move"),
            (self.final_board.is_none(), "a final board"),
        ];
        parts.into_iter().find_map(|(lacks, part)| lacks.then_some(part))
    }

    /// Returns the final board of a whole game whose tiles fit a [`Board`].
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the game is not whole or has a tile of 65,536.
    pub(crate) fn whole(&self) -> Result<Board> {
        if let Some(missing) = self.missing() {
            return Err(Error::argument("run", "a whole game", format!("a game without {missing}")));
        }
        if self.tile_65536_masks().is_some() {
            self.steps().try_for_each(|step| step.narrow_board().map(drop))?;
        }
        let board = self.final_board.and_then(WideBoard::narrow);
        board.ok_or_else(|| Error::argument("run", NARROW, "65536 on the final board"))
    }

    /// Returns whether a step or the final board has a tile of 65,536.
    pub(crate) fn has_tile_65536(&self) -> bool {
        self.tile_65536_masks().is_some() || self.final_board.is_some_and(|board| board.narrow().is_none())
    }

    /// Returns the identity of the game: a hash of the boards of all steps, from 0 to 2^63 - 1. Runs of one game have
    /// the same identity, even in several formats or with values of other engines. `None` for a run without steps.
    ///
    /// The hash is the first eight bytes of BLAKE3 key derivation from the boards, and from the masks of 65,536 if
    /// there are any, as a little-endian integer without its top bit.
    ///
    /// # Examples
    /// ```
    /// use a2store::{Board, Run};
    /// use a2store::run::{RunMeta, RunStep};
    /// let run = |max_score| {
    ///     let mut steps = Run::builder(1);
    ///     steps.push_step(RunStep { index: 0, board: Board(0x11).into(), chosen: None, branches: None })?;
    ///     steps.finish(RunMeta { max_score, ..RunMeta::default() }, None)
    /// };
    /// assert_eq!(run(0)?.game(), run(4)?.game());
    /// # Ok::<(), a2store::Error>(())
    /// ```
    #[must_use]
    pub fn game(&self) -> Option<i64> {
        let mut hasher = blake3::Hasher::new_derive_key("a2store 2026 boards of a game");
        hasher.update(bytemuck::cast_slice(self.boards()));
        hasher.update(bytemuck::cast_slice(self.tile_65536_masks().unwrap_or_default()));
        let mut hash = [0; 8];
        hasher.finalize_xof().fill(&mut hash);
        (self.num_steps() > 0).then_some(i64::from_le_bytes(hash) & i64::MAX)
    }

    /// Returns this run with values in `[0, 1)`. Raw values are shifted and scaled step by step, as other 2048
    /// engines do it:
    ///
    /// - The least legal value becomes 0 and the greatest `1 - f32::EPSILON`.
    /// - The value of a single legal move becomes `1 - f32::EPSILON`.
    /// - Equal legal values become 0.5.
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
                let is_legal = |branch: usize| legal >> branch & 1 == 1;
                let present = std::array::from_fn(|branch| if is_legal(branch) { values[branch] } else { f32::NAN });
                *values = normalize(present).map(|value| if value.is_nan() { 0.0 } else { value });
            }
        }
        Cow::Owned(run)
    }

    /// Adds the final board, if it is missing and the last move and the final score determine it.
    pub(crate) fn with_derived_final_board(self) -> Run {
        let (Some(last), None, None) = (self.last_step(), self.final_board, self.step_indices()) else { return self };
        // Some programs compute the score before the last move. Then it equals the score of the last step's board.
        let is_of_last = self.meta.max_score == last.board.score();
        let fits = |board: WideBoard| {
            !is_of_last && (board.score(), board.highest_tile()) == (self.meta.max_score, self.meta.highest_tile)
        };
        Run { final_board: final_board_after(last, fits), ..self }
    }

    /// Checks the run against the rules:
    ///
    /// - Every known move is legal. For an unknown move, some legal move must lead to the next board.
    /// - Every board is the previous board after its move, plus one tile. Two boards are not compared if steps between
    ///   them are missing.
    /// - Every given legality mask follows the rules, with or without merges of 32,768.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn verify(&self) -> Result<(), Violation> {
        let RunBuilder { boards, moves, ev_legal, has_evs, step_indices, unknown_moves, .. } = &self.steps;
        let mut unknown = unknown_moves.iter().peekable();
        for step in 0..boards.len() {
            let (Some(board), direction, legal) = (self.steps.board(step), moves[step], ev_legal[step]) else { break };
            let violation = |what: String| Err(Violation { step, what });
            let is_unknown = unknown.next_if(|&&next| next as usize == step).is_some();
            let follows = step_indices.is_empty() || step_indices.get(step + 1) == Some(&(step_indices[step] + 1));
            let next = self.steps.board(step + 1).or(self.final_board).filter(|_| follows);
            let fits = |after: WideBoard| after != board && next.is_none_or(|next| after.spawns_into(next));
            let leads = |direction: Move| after_states(board, direction).any(fits);
            if is_unknown && !Move::ALL.into_iter().any(leads) {
                return violation(format!("no move leads from {board} to the next board"));
            }
            if !is_unknown && !leads(direction) {
                let (name, after) = (direction.name(), board.slide(direction));
                return violation(match next.filter(|_| after != board) {
                    None => format!("move {name} is illegal on {board}"),
                    Some(next) => format!("move {name} leads to {after}, which cannot become {next}"),
                });
            }
            // Without branches, the mask was computed by the rules.
            if has_evs[step] && legal != board.legal_moves() && legal != legal_up_to_32768(board) {
                let rules = board.legal_moves();
                return violation(format!("legality mask {legal:04b}, expected {rules:04b} on {board}"));
            }
        }
        Ok(())
    }
}

/// Returns the board after a step's move, if the move leaves one cell empty and `fits` holds for exactly one of the two
/// tiles that may spawn there.
pub(crate) fn final_board_after(last: RunStep, fits: impl Fn(WideBoard) -> bool) -> Option<WideBoard> {
    let after = last.board.slide(last.chosen?);
    if after == last.board || after.num_empty() != 1 {
        return None;
    }
    let spawned = |exp| WideBoard::from_exps(after.exps().map(|old| if old == 0 { exp } else { old })).ok();
    let mut boards = [1, 2].into_iter().filter_map(spawned).filter(|&board| fits(board));
    boards.next().filter(|_| boards.next().is_none())
}

/// Returns the possible boards after sliding. There are two if two tiles of 32,768 meet, because some engines merge
/// them and others do not.
pub(crate) fn after_states(board: WideBoard, direction: Move) -> impl Iterator<Item = WideBoard> {
    let capped = board.narrow().filter(|&board| has_two_of_15(board)).map(|board| board.slide(direction).into());
    [board.slide(direction)].into_iter().chain(capped)
}

/// Returns the legality mask of an engine that does not merge tiles of 32,768.
fn legal_up_to_32768(board: WideBoard) -> u8 {
    board.narrow().map_or_else(|| board.legal_moves(), Board::legal_moves)
}

impl RunBuilder {
    /// Adds a step. Without branches, its legality mask is computed by the rules. With branches, the value of an
    /// illegal move becomes 0.0.
    #[inline(always)]
    pub fn push(&mut self, board: impl Into<WideBoard>, chosen: Move, branches: Option<Branches>) {
        let board = board.into();
        let (values, legal) = match branches {
            Some(Branches { mut values, legal }) => {
                for direction in Move::ALL {
                    if legal & direction.bit() == 0 {
                        values[direction as usize] = 0.0;
                    }
                }
                (values, legal & 0b1111)
            }
            None => ([f32::NAN; 4], legal_up_to_32768(board)),
        };
        if board.tile_65536_mask() != 0 || !self.tile_65536_masks.is_empty() {
            self.tile_65536_masks.resize(self.boards.len(), 0);
            self.tile_65536_masks.push(board.tile_65536_mask());
        }
        self.boards.push(board.board());
        self.moves.push(chosen);
        self.ev_values.push(values);
        self.ev_legal.push(legal);
        self.has_evs.push(branches.is_some());
    }

    /// Adds a step whose move may be unknown. Its index must be above the index of the last step.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the index is not above the index of the last step.
    #[inline(always)]
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

    fn board(&self, step: usize) -> Option<WideBoard> {
        let board = *self.boards.get(step)?;
        let mask = self.tile_65536_masks.get(step).copied().unwrap_or(0);
        Some(WideBoard::of_parts(board, mask))
    }

    /// Adds steps without branches.
    pub(crate) fn extend(&mut self, boards: &[Board], moves: &[Move]) {
        self.boards.extend_from_slice(boards);
        if !self.tile_65536_masks.is_empty() {
            self.tile_65536_masks.resize(self.boards.len(), 0);
        }
        self.moves.extend_from_slice(moves);
        let len = self.boards.len();
        self.ev_legal.extend(boards.iter().map(|board| board.legal_moves()));
        self.ev_values.resize(len, [f32::NAN; 4]);
        self.has_evs.resize(len, false);
    }

    /// Finishes the run without details ([`Run::with_details`]), with its final board if it is known.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for more than 2^32 - 1 steps, which no format can hold.
    pub fn finish(self, meta: RunMeta, final_board: impl Into<Option<WideBoard>>) -> Result<Run> {
        if u32::try_from(self.boards.len()).is_err() {
            return Err(Error::argument("steps", "at most 4294967295", self.boards.len()));
        }
        Ok(Run { meta, steps: self, final_board: final_board.into(), details: None })
    }
}

impl PartialEq for RunBuilder {
    /// Compares values bit by bit, because a step without branches has NaNs, which differ from themselves as floats.
    fn eq(&self, other: &Self) -> bool {
        let bits = |values: &[[f32; 4]]| bytemuck::cast_slice::<_, u32>(values).to_vec();
        self.boards == other.boards
            && self.tile_65536_masks == other.tile_65536_masks
            && self.moves == other.moves
            && self.ev_legal == other.ev_legal
            && self.has_evs == other.has_evs
            && self.unknown_moves == other.unknown_moves
            && self.step_indices == other.step_indices
            && bits(&self.ev_values) == bits(&other.ev_values)
    }
}

/// The value of the best branch, as other 2048 engines write it: 1 less [`f32::EPSILON`].
pub(crate) const BEST_EV: f32 = 1.0 - f32::EPSILON;

/// Normalizes the raw values of a step, as [`Run::normalized`] does. The value of an absent branch is NaN.
pub(crate) fn normalize(values: [f32; 4]) -> [f32; 4] {
    let present = || values.into_iter().filter(|value| !value.is_nan());
    let (least, most) = (present().fold(f32::INFINITY, f32::min), present().fold(f32::NEG_INFINITY, f32::max));
    // The difference of two f32 values may exceed the range of f32.
    let (least, range) = (f64::from(least), f64::from(most) - f64::from(least));
    values.map(|value| match value {
        _ if value.is_nan() => value,
        _ if present().count() == 1 => BEST_EV,
        _ if range == 0.0 => 0.5,
        value => ((f64::from(value) - least) / range).min(f64::from(BEST_EV)) as f32,
    })
}
