//! The row of a Macroxue pack: one step in 46 bytes, or in 48 bytes with padding.

use crate::board::{Board, Move, WideBoard};
use crate::error::{Error, Result};
use crate::format::files::mapped_rows::{FileNumbering, RowFields, part_of};
use crate::format::files::npy::NpyHeader;
use crate::format::rows::known_move;
use crate::run::{Branches, RunStep};
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

/// A row without padding, as the original packer writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, packed)]
pub(super) struct PackedRow {
    head: Head,
    tail: Tail,
}

/// The padding before the tail of a row with aligned fields, as the documentation of the format describes it.
const PADDING: usize = 2;

const _: () = assert!(size_of::<Head>() == 26 && size_of::<PackedRow>() == 46);

/// The naming of shards by the original packer.
pub(super) const NUMBERING: FileNumbering = FileNumbering { digits: 5, first: 0 };

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

/// Returns the layout of packed rows, and the layout of aligned rows.
pub(super) fn layouts() -> [RowFields; 2] {
    let packed = RowFields::packed(FIELDS);
    let mut aligned = packed.clone();
    let tail = aligned.fields.iter_mut().filter(|field| field.offset >= size_of::<Head>());
    tail.for_each(|field| field.offset += PADDING);
    aligned.stride += PADDING;
    [packed, aligned]
}

/// Returns whether an array with this header has the rows of a pack.
pub(in crate::format) fn has_rows(header: &NpyHeader) -> bool {
    layouts().iter().any(|layout| layout.are_of(header))
}

/// Returns the id of the run and the index of the step in a row.
pub(super) fn key(row: &[u8]) -> (u64, u32) {
    let &Head { run_id, step_index, .. } = part_of(row, 0);
    (u64::from(run_id), step_index)
}

impl PackedRow {
    /// Returns the row of a step, with the id of a valuation type, an evaluation of the board, and the run's seed.
    pub(super) fn new(
        run_id: u32,
        step: &RunStep,
        valuation_type: u8,
        board_eval: i32,
        seed: u32,
    ) -> Result<PackedRow> {
        let Branches { values, legal } = step.branches.unwrap_or(Branches { values: [0.0; 4], legal: 0 });
        if let Some(value) = values.into_iter().find(|value| !value.is_finite()) {
            let found = format!("{value} at step {}", step.index);
            return Err(Error::argument("run", "finite values of branches", found));
        }
        let head = Head {
            run_id,
            step_index: step.index,
            board: step.board.board().0,
            board_eval,
            tile_65536_mask: step.board.tile_65536_mask(),
            move_dir: known_move(step)? as u8,
            valuation_type,
            ev_legal: legal,
            max_rank: step.board.max_exp(),
        };
        Ok(PackedRow { head, tail: Tail { seed, branch_evs: values } })
    }
}

/// The largest `max_rank` that a board can have.
const MAX_RANK: u8 = 16;

/// Returns the step in a row of either layout.
pub(super) fn to_step(row: &[u8]) -> Result<RunStep> {
    let tail_at = row.len() - size_of::<Tail>();
    let (head, tail): (&Head, &Tail) = (part_of(row, 0), part_of(row, tail_at));
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
