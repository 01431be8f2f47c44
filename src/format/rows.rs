//! The mapping between runs and rows. [`flatten`] turns a run into rows, [`rebuild`] turns rows into a run. A
//! format defines its row by implementing [`StepRow`].

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, ErrorKind, Result};
use crate::run::{Branches, Run, RunMeta, RunStep};
use crate::step::Step;

/// A row that holds one step.
///
/// A row may omit parts of a step. They are `None` in the decoded step.
pub trait StepRow: Sized {
    /// Returns the row of a step of the run with this id.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the row cannot hold the step.
    fn from_step(run_id: u64, step: &RunStep) -> Result<Self>;

    /// Returns the step in this row.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) if the row holds no valid step. Its offset counts from the
    /// start of the row.
    fn to_step(&self) -> Result<RunStep>;
}

/// Appends a run's steps as rows.
///
/// # Errors
/// The errors of [`StepRow::from_step`]. The rows of earlier steps have then been appended.
///
/// # Examples
/// ```
/// use a2store::{Board, Move, Run, RunMeta, Step};
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let mut rows: Vec<Step> = Vec::new();
/// a2store::flatten(&run, 7, &mut rows)?;
/// assert_eq!((rows[0].run_id, rows[0].chosen), (7, Move::Left as u8));
/// let back = a2store::rebuild(&rows, run.meta().clone(), run.final_board())?;
/// assert_eq!(back, run);
/// # Ok::<(), a2store::Error>(())
/// ```
pub fn flatten<R: StepRow>(run: &Run, run_id: u64, rows: &mut Vec<R>) -> Result<()> {
    rows.reserve(run.num_steps());
    for place in 0..run.num_steps() {
        if let Some(step) = run.step(place) {
            rows.push(R::from_step(run_id, &step)?);
        }
    }
    Ok(())
}

/// Builds a run from its rows, in order.
///
/// # Errors
/// The errors of [`StepRow::to_step`], with the step and the offset from the first row.
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) also if step indices do not ascend.
pub fn rebuild<R: StepRow>(rows: &[R], meta: RunMeta, final_board: impl Into<Option<WideBoard>>) -> Result<Run> {
    rebuild_with(rows, meta, final_board, |_, index| index)
}

/// Builds a run as [`rebuild`] does. `index_of` gets the place of each row and the index that it stores, and returns the
/// step's index.
pub(super) fn rebuild_with<R: StepRow>(
    rows: &[R],
    meta: RunMeta,
    final_board: impl Into<Option<WideBoard>>,
    index_of: impl Fn(usize, u32) -> u32,
) -> Result<Run> {
    let mut steps = Run::builder(rows.len());
    for (place, row) in rows.iter().enumerate() {
        let pushed = row.to_step().and_then(|step| {
            let index = index_of(place, step.index);
            let step = RunStep { index, ..step };
            let out_of_order = |_| Error::decode(0, "step index", "an index above the previous one", index);
            steps.push_step(step).map_err(out_of_order)
        });
        pushed.map_err(|error| at_row(error, place, size_of::<R>()))?;
    }
    steps.finish(meta, final_board)
}

#[cold]
fn at_row(error: Error, place: usize, stride: usize) -> Error {
    match error.into_kind() {
        ErrorKind::Decode { mut location, what, expected, found } => {
            location.step = Some(place as u64);
            location.offset = Some(location.offset.unwrap_or_default() + (place * stride) as u64);
            ErrorKind::Decode { location, what, expected, found }.into()
        }
        other => other.into(),
    }
}

/// Returns whether a row with this mask is read as a step with branches. Excludes an empty mask, and a mask of
/// only the chosen move if the rules allow another move.
#[inline]
pub(super) fn has_branches(board: Board, chosen: Move, mask: u8) -> bool {
    mask != 0 && (mask != chosen.bit() || board.legal_moves() & !mask == 0)
}

/// Returns a run id as rows store it.
#[inline]
pub(super) fn stored_id(run_id: u64) -> Result<u32> {
    u32::try_from(run_id).map_err(|_| Error::argument("run_id", "at most 4294967295", run_id))
}

/// Returns the move of a step, for rows that cannot store an unknown move.
#[inline]
pub(super) fn known_move(step: &RunStep) -> Result<Move> {
    let found = || format!("an unknown move at step {}", step.index);
    step.chosen.ok_or_else(|| Error::argument("run", "a run without unknown moves", found()))
}

/// The stored move of a step whose move is unknown.
const NO_MOVE: u8 = 255;

/// A step with all that a [`Step`] cannot hold. The [`Step`] has the board's nibbles, and an index of at most 65,535.
#[derive(Clone, Copy, Debug, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct WideStep {
    pub(crate) step: Step,
    pub(crate) step_index: u32,
    pub(crate) tile_65536_mask: u16,
    padding: [u8; 2],
}

impl StepRow for WideStep {
    #[inline]
    fn from_step(run_id: u64, step: &RunStep) -> Result<WideStep> {
        let index = step.index.min(u32::from(u16::MAX));
        let narrow = RunStep { board: step.board.board().into(), index, ..*step };
        let mut row = WideStep {
            step: Step::from_step(run_id, &narrow)?,
            step_index: step.index,
            tile_65536_mask: step.board.tile_65536_mask(),
            padding: [0; 2],
        };
        if step.branches.is_none() && row.tile_65536_mask != 0 {
            row.step.ev_legal = step.board.legal_moves();
        }
        Ok(row)
    }

    #[inline]
    fn to_step(&self) -> Result<RunStep> {
        let board = WideBoard::new(self.step.board, self.tile_65536_mask)?;
        Ok(RunStep { board, index: self.step_index, ..self.step.to_step()? })
    }
}

impl StepRow for Step {
    #[inline]
    fn from_step(run_id: u64, step: &RunStep) -> Result<Step> {
        let run_id = stored_id(run_id)?;
        let step_index = u16::try_from(step.index)
            .map_err(|_| Error::argument("step_index", "at most 65535 in a row", step.index))?;
        let board = step.narrow_board()?;
        let (ev_values, ev_legal) = match step.branches {
            Some(Branches { values, legal }) => (values, legal),
            None => ([f32::NAN; 4], board.legal_moves()),
        };
        let chosen = step.chosen.map_or(NO_MOVE, |chosen| chosen as u8);
        Ok(Step { board, ev_values, run_id, step_index, chosen, ev_legal })
    }

    #[inline]
    fn to_step(&self) -> Result<RunStep> {
        let chosen = match self.chosen {
            NO_MOVE => None,
            index => Some(Move::from_index(index).ok_or_else(|| {
                Error::decode(std::mem::offset_of!(Step, chosen) as u64, "move", "0..=3, or 255 for none", index)
            })?),
        };
        let has_evs = !self.ev_values.iter().all(|value| value.is_nan());
        let branches = has_evs.then_some(Branches { values: self.ev_values, legal: self.ev_legal });
        Ok(RunStep { index: u32::from(self.step_index), board: self.board.into(), chosen, branches })
    }
}
