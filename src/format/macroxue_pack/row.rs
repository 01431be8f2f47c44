//! The row of a Macroxue pack: one step in 46 bytes, or in 48 bytes with padding.

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::npy::{NpyField, NpyHeader};
use crate::format::rows::{StepRow, known_move, stored_id};
use crate::format::session::OfRun;
use crate::format::shards::NpyRow;
use crate::run::{Branches, RunStep};
use crate::step_details::StepDetail;
use std::mem::offset_of;

/// The part of a row before the padding, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct Head {
    pub(super) run_id: u32,
    pub(super) step_index: u32,
    pub(super) board: u64,
    pub(super) board_eval: i32,
    pub(super) tile_65536_mask: u16,
    pub(super) move_dir: u8,
    pub(super) valuation_type: u8,
    pub(super) ev_legal: u8,
    pub(super) max_rank: u8,
}

/// The part of a row after the padding, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct Tail {
    pub(super) seed: u32,
    pub(super) branch_evs: [f32; 4],
}

/// A row without padding, as the field's packer writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct PackedRow {
    head: Head,
    tail: Tail,
}

/// A row with aligned fields, as the documentation of the format describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct AlignedRow {
    head: Head,
    padding: [u8; 2],
    tail: Tail,
}

const _: () = {
    assert!(cfg!(target_endian = "little"));
    assert!(size_of::<PackedRow>() == 46);
    assert!(align_of::<PackedRow>() == 1);
    assert!(size_of::<AlignedRow>() == 48);
    assert!(align_of::<AlignedRow>() == 1);
    assert!(offset_of!(PackedRow, tail) == 26);
    assert!(offset_of!(AlignedRow, tail) == 28);
    assert!(offset_of!(Head, board) == 8);
    assert!(offset_of!(Head, board_eval) == 16);
    assert!(offset_of!(Head, tile_65536_mask) == 20);
    assert!(offset_of!(Head, max_rank) == 25);
    assert!(offset_of!(Tail, branch_evs) == 4);
};

/// A row of either layout.
pub(super) trait PackRow: NpyRow + OfRun + std::fmt::Debug {
    fn parts(&self) -> (Head, Tail);

    fn of_parts(head: Head, tail: Tail) -> Self;

    /// Returns the padding of these rows.
    fn padding_of(rows: &[Self]) -> Vec<u8>;

    /// Sets the padding of these rows, if it has the length of their padding.
    fn set_padding(rows: &mut [Self], padding: &[u8]);
}

/// The fields of a packed row.
const FIELDS: &[(&str, &str, usize)] = &[
    ("run_id", "<u4", 1),
    ("step_index", "<u4", 1),
    ("board", "<u8", 1),
    ("board_eval", "<i4", 1),
    ("tile_65536_mask", "<u2", 1),
    ("move_dir", "|u1", 1),
    ("valuation_type", "|u1", 1),
    ("ev_legal", "|u1", 1),
    ("max_rank", "|u1", 1),
    ("seed", "<u4", 1),
    ("branch_evs", "<f4", 4),
];

/// Returns whether an array with this header has the rows of a pack.
pub(super) fn has_rows(header: &NpyHeader) -> bool {
    header.has_fields(FIELDS) || is_aligned(header)
}

/// Returns whether an array with this header has aligned rows.
pub(super) fn is_aligned(header: &NpyHeader) -> bool {
    header.stride == size_of::<AlignedRow>() && header.fields == AlignedRow::fields()
}

impl NpyRow for PackedRow {
    const FIELDS: &'static [(&'static str, &'static str, usize)] = FIELDS;
}

impl NpyRow for AlignedRow {
    const FIELDS: &'static [(&'static str, &'static str, usize)] = FIELDS;

    fn fields() -> Vec<NpyField> {
        let mut fields = NpyField::packed(FIELDS);
        let padded = fields.iter_mut().filter(|field| field.offset >= size_of::<Head>());
        padded.for_each(|field| field.offset += size_of::<AlignedRow>() - size_of::<PackedRow>());
        fields
    }
}

impl PackRow for PackedRow {
    fn parts(&self) -> (Head, Tail) {
        (self.head, self.tail)
    }

    fn of_parts(head: Head, tail: Tail) -> PackedRow {
        PackedRow { head, tail }
    }

    fn padding_of(_: &[PackedRow]) -> Vec<u8> {
        Vec::new()
    }

    fn set_padding(_: &mut [PackedRow], _: &[u8]) {}
}

impl PackRow for AlignedRow {
    fn parts(&self) -> (Head, Tail) {
        (self.head, self.tail)
    }

    fn of_parts(head: Head, tail: Tail) -> AlignedRow {
        AlignedRow { head, padding: [0; 2], tail }
    }

    fn padding_of(rows: &[AlignedRow]) -> Vec<u8> {
        rows.iter().flat_map(|row| row.padding).collect()
    }

    fn set_padding(rows: &mut [AlignedRow], padding: &[u8]) {
        let (pairs, rest) = padding.as_chunks();
        if pairs.len() == rows.len() && rest.is_empty() {
            rows.iter_mut().zip(pairs).for_each(|(row, pair)| row.padding = *pair);
        }
    }
}

impl OfRun for PackedRow {
    #[inline]
    fn run_id(&self) -> u64 {
        u64::from(self.head.run_id)
    }

    #[inline]
    fn step_idx(&self) -> u32 {
        self.head.step_index
    }
}

impl OfRun for AlignedRow {
    #[inline]
    fn run_id(&self) -> u64 {
        u64::from(self.head.run_id)
    }

    #[inline]
    fn step_idx(&self) -> u32 {
        self.head.step_index
    }
}

impl StepRow for PackedRow {
    fn from_step(run_id: u64, step: &RunStep) -> Result<PackedRow> {
        from_step(run_id, step)
    }

    fn to_step(&self) -> Result<RunStep> {
        to_step(self.parts(), offset_of!(PackedRow, tail))
    }
}

impl StepRow for AlignedRow {
    fn from_step(run_id: u64, step: &RunStep) -> Result<AlignedRow> {
        from_step(run_id, step)
    }

    fn to_step(&self) -> Result<RunStep> {
        to_step(self.parts(), offset_of!(AlignedRow, tail))
    }
}

/// The largest `max_rank` that a board can have.
const MAX_RANK: u8 = 16;

/// Returns the row of a step, without its details.
fn from_step<R: PackRow>(run_id: u64, step: &RunStep) -> Result<R> {
    let Branches { values, legal } = step.branches.unwrap_or(Branches { values: [0.0; 4], legal: 0 });
    if let Some(value) = values.into_iter().find(|value| !value.is_finite()) {
        let found = format!("{value} at step {}", step.index);
        return Err(Error::argument("run", "finite values of branches", found));
    }
    let head = Head {
        run_id: stored_id(run_id)?,
        step_index: step.index,
        board: step.board.board().0,
        board_eval: 0,
        tile_65536_mask: step.board.tile_65536_mask(),
        move_dir: known_move(step)? as u8,
        valuation_type: 0,
        ev_legal: legal,
        max_rank: step.board.max_exp(),
    };
    Ok(R::of_parts(head, Tail { seed: 0, branch_evs: values }))
}

/// Returns the step in a row whose tail begins at this offset.
fn to_step((head, tail): (Head, Tail), tail_at: usize) -> Result<RunStep> {
    let refuse = |offset: usize, what, expected: &str, found: &dyn std::fmt::Display| {
        Err(Error::decode(offset as u64, what, expected, found))
    };
    let Some(chosen) = Move::from_index(head.move_dir) else {
        return refuse(offset_of!(Head, move_dir), "move_dir", "0..=3", &head.move_dir);
    };
    let legal = head.ev_legal;
    if legal > 15 {
        return refuse(offset_of!(Head, ev_legal), "ev_legal", "0..=15", &legal);
    }
    if head.max_rank > MAX_RANK {
        let expected = "at most 16, because a row cannot hold a tile above 65536";
        return refuse(offset_of!(Head, max_rank), "max_rank", expected, &head.max_rank);
    }
    let mask = head.tile_65536_mask;
    let Ok(board) = WideBoard::new(Board(head.board), mask) else {
        let expected = "a mask of cells with the nibble 15";
        return refuse(offset_of!(Head, tile_65536_mask), "tile_65536_mask", expected, &mask);
    };
    let values = tail.branch_evs;
    for (branch, value) in values.into_iter().enumerate() {
        let offset = tail_at + offset_of!(Tail, branch_evs) + branch * size_of::<f32>();
        if !value.is_finite() {
            return refuse(offset, "branch_evs", "a finite number", &value);
        }
        if legal >> branch & 1 == 0 && value.to_bits() != 0 {
            return refuse(offset, "branch_evs", "0 for an illegal branch", &value);
        }
    }
    let branches = (legal != 0).then_some(Branches { values, legal });
    Ok(RunStep { index: head.step_index, board, chosen: Some(chosen), branches })
}

/// Returns the details of a step in a row, with `name` as the name of its valuation type. `seed` is the usual seed.
pub(super) fn detail_of<'a, R: PackRow>(row: &R, name: &'a str, seed: u32, has_evals: bool) -> StepDetail<'a> {
    let (head, tail) = row.parts();
    let (own, rank) = (tail.seed, head.max_rank);
    let usual = WideBoard::of_parts(Board(head.board), head.tile_65536_mask).max_exp();
    StepDetail {
        valuation_type: Some(name),
        board_eval: has_evals.then_some(head.board_eval),
        seed: (own != seed).then_some(own),
        max_rank: (rank != usual).then_some(rank),
    }
}

/// Returns the row of a step with its details. `valuation_type` is the id of its type, and `seed` the usual seed.
pub(super) fn with_detail<R: PackRow>(row: &R, detail: StepDetail<'_>, valuation_type: u8, seed: u32) -> R {
    let (mut head, mut tail) = row.parts();
    head.valuation_type = valuation_type;
    head.board_eval = detail.board_eval.unwrap_or(0);
    head.max_rank = detail.max_rank.unwrap_or(head.max_rank);
    tail.seed = detail.seed.unwrap_or(seed);
    R::of_parts(head, tail)
}
