//! The list of all board functions, in the order of the documentation.

use super::arguments::{Argument, ArgumentKind};
use super::function::Function;
use super::returns::Returns;
use super::{composite, evs, features, kernels, masked};

/// Returns all functions that this crate adds to SQL, in the order of the documentation.
#[must_use]
pub fn functions() -> &'static [Function] {
    FUNCTIONS
}

const fn argument(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument { name, kind }
}

const BOARD: Argument = argument("board", ArgumentKind::Board);
const NEXT_BOARD: Argument = argument("next_board", ArgumentKind::Board);
const MOVE: Argument = argument("move", ArgumentKind::Move);
const CELL: Argument = argument("cell", ArgumentKind::Cell);
const SYMMETRY: Argument = argument("symmetry", ArgumentKind::Symmetry);
const MAX_EXP: Argument = argument("max_exp", ArgumentKind::Exponent);
const MASK_65536: Argument = argument("tile_65536_mask", ArgumentKind::Mask);
/// The cells that hold 65,536.
const MASK: &[Argument] = &[MASK_65536];
const MASKS: &[Argument] = &[MASK_65536, argument("next_tile_65536_mask", ArgumentKind::Mask)];
const UP: Argument = argument("ev_up", ArgumentKind::Ev);
const DOWN: Argument = argument("ev_down", ArgumentKind::Ev);
const LEFT: Argument = argument("ev_left", ArgumentKind::Ev);
const RIGHT: Argument = argument("ev_right", ArgumentKind::Ev);
/// Whether the EVs are normalised first.
const RAW: &[Argument] = &[argument("raw_evs", ArgumentKind::Flag)];

/// Most examples use the board that the example of `board_text` shows.
static FUNCTIONS: &[Function] = &[
    Function {
        name: "exps",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The exponents of the sixteen cells in row-major order, each 0..=15; 16 where the mask is set.",
        example: ("exps(1306927023419491499)", "[1, 2, 2, 3, 2, 3, 3, 4, 1, 2, 4, 7, 0, 4, 10, 11]"),
        returns: Returns::Exps,
        kernel: composite::exps,
        kernel_with_optional: masked::exps,
    },
    Function {
        name: "tile",
        arguments: &[BOARD, CELL],
        optional: MASK,
        doc: "The tile in a cell: 2, 4, …, 65536, or 0 if it is empty.",
        example: ("tile(1306927023419491499, 15)", "2048"),
        returns: Returns::UInt32,
        kernel: kernels::tile,
        kernel_with_optional: masked::tile,
    },
    Function {
        name: "max_tile",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The largest tile; 0 for the empty board.",
        example: ("max_tile(1306927023419491499)", "2048"),
        returns: Returns::UInt32,
        kernel: kernels::max_tile,
        kernel_with_optional: masked::max_tile,
    },
    Function {
        name: "empty_cells",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The number of empty cells, 0..=16.",
        example: ("empty_cells(1306927023419491499)", "1"),
        returns: Returns::UInt8,
        kernel: kernels::empty_cells,
        kernel_with_optional: masked::empty_cells,
    },
    Function {
        name: "tile_sum",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The sum of the tiles.",
        example: ("tile_sum(1306927023419491499)", "3292"),
        returns: Returns::UInt32,
        kernel: kernels::tile_sum,
        kernel_with_optional: masked::tile_sum,
    },
    Function {
        name: "board_score",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The sum of (k - 1) * 2^k over the tiles 2^k. It is the score of a game that led to this board, \
            if every spawned tile was a 2.",
        example: ("board_score(1306927023419491499)", "30672"),
        returns: Returns::Int64,
        kernel: kernels::board_score,
        kernel_with_optional: masked::board_score,
    },
    Function {
        name: "legal_moves",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The moves that change the board, as a mask 0..=15: bit 0 is up, 1 down, 2 left, 3 right.",
        example: ("legal_moves(1306927023419491499)", "14"),
        returns: Returns::UInt8,
        kernel: kernels::legal_moves,
        kernel_with_optional: masked::legal_moves,
    },
    Function {
        name: "num_legal",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The number of legal moves, 0..=4.",
        example: ("num_legal(1306927023419491499)", "3"),
        returns: Returns::UInt8,
        kernel: kernels::num_legal,
        kernel_with_optional: masked::num_legal,
    },
    Function {
        name: "afterstate",
        arguments: &[BOARD, MOVE],
        optional: MASK,
        doc: "The board after sliding, before a tile spawns; the board itself if the move is illegal.",
        example: ("afterstate(1306927023419491499, 2)", "1382644943205911216"),
        returns: Returns::UInt64,
        kernel: kernels::afterstate,
        kernel_with_optional: masked::afterstate,
    },
    Function {
        name: "reward",
        arguments: &[BOARD, MOVE],
        optional: MASK,
        doc: "The sum of the tiles that a move creates by merging; 0 if the move is illegal.",
        example: ("reward(1306927023419491499, 2)", "24"),
        returns: Returns::UInt32,
        kernel: kernels::reward,
        kernel_with_optional: masked::reward,
    },
    Function {
        name: "spawn",
        arguments: &[BOARD, MOVE, NEXT_BOARD],
        optional: MASKS,
        doc: "The cell and the tile that spawned between a move and the next board. NULL if the move is \
            illegal, or if the next board is not the afterstate plus one 2 or 4.",
        example: ("spawn(1306927023419491499, 2, 1382926418182621872)", "{cell: 3, tile: 2}"),
        returns: Returns::Spawn,
        kernel: composite::spawn,
        kernel_with_optional: masked::spawn,
    },
    Function {
        name: "is_terminal",
        arguments: &[BOARD],
        optional: MASK,
        doc: "Whether no move is legal.",
        example: ("is_terminal(1306927023419491499)", "false"),
        returns: Returns::Bool,
        kernel: kernels::is_terminal,
        kernel_with_optional: masked::is_terminal,
    },
    Function {
        name: "transform",
        arguments: &[BOARD, SYMMETRY],
        optional: MASK,
        doc: "The board under a symmetry: 0 is the identity, 1 to 3 are quarter turns clockwise, 4 swaps \
            left and right, 5 swaps top and bottom, 6 mirrors at the main diagonal, 7 at the other one.",
        example: ("transform(1306927023419491499, 1)", "81419053539964739"),
        returns: Returns::UInt64,
        kernel: kernels::transform,
        kernel_with_optional: masked::transform,
    },
    Function {
        name: "transform_move",
        arguments: &[MOVE, SYMMETRY],
        optional: &[],
        doc: "The direction of a move after a symmetry, 0..=3: transform(afterstate(b, m), s) = \
            afterstate(transform(b, s), transform_move(m, s)).",
        example: ("transform_move(2, 1)", "0"),
        returns: Returns::UInt8,
        kernel: kernels::transform_move,
        kernel_with_optional: kernels::transform_move,
    },
    Function {
        name: "canonical",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The smallest of the eight symmetric boards. It is the same for positions that differ only by a \
            symmetry.",
        example: ("canonical(1306927023419491499)", "81419053539964739"),
        returns: Returns::UInt64,
        kernel: kernels::canonical,
        kernel_with_optional: masked::canonical,
    },
    Function {
        name: "canonical_symmetry",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The first of the eight symmetries that makes the board canonical, 0..=7.",
        example: ("canonical_symmetry(1306927023419491499)", "1"),
        returns: Returns::UInt8,
        kernel: kernels::canonical_symmetry,
        kernel_with_optional: masked::canonical_symmetry,
    },
    Function {
        name: "canonical_move",
        arguments: &[BOARD, MOVE],
        optional: MASK,
        doc: "The direction of a move on the canonical board, 0..=3; the smallest one if several symmetries \
            make the board canonical. It is the same for moves that differ only by a symmetry.",
        example: ("canonical_move(1306927023419491499, 2)", "0"),
        returns: Returns::UInt8,
        kernel: kernels::canonical_move,
        kernel_with_optional: masked::canonical_move,
    },
    Function {
        name: "afterstate_mask",
        arguments: &[BOARD, MOVE, MASK_65536],
        optional: &[],
        doc: "The cells with 65536 on the afterstate, as a mask 0..=65535: bit i for cell i.",
        example: ("afterstate_mask(18374686479671623680, 2, 0)", "1"),
        returns: Returns::UInt16,
        kernel: masked::afterstate_mask,
        kernel_with_optional: masked::afterstate_mask,
    },
    Function {
        name: "transform_mask",
        arguments: &[BOARD, SYMMETRY, MASK_65536],
        optional: &[],
        doc: "The cells with 65536 on the board under a symmetry, as a mask 0..=65535: bit i for cell i.",
        example: ("transform_mask(17293822569102704640, 1, 1)", "8"),
        returns: Returns::UInt16,
        kernel: masked::transform_mask,
        kernel_with_optional: masked::transform_mask,
    },
    Function {
        name: "canonical_mask",
        arguments: &[BOARD, MASK_65536],
        optional: &[],
        doc: "The cells with 65536 on the canonical board, as a mask 0..=65535: bit i for cell i.",
        example: ("canonical_mask(17293822569102704640, 1)", "32768"),
        returns: Returns::UInt16,
        kernel: masked::canonical_mask,
        kernel_with_optional: masked::canonical_mask,
    },
    Function {
        name: "board_text",
        arguments: &[BOARD],
        optional: MASK,
        doc: "The tiles as text: spaces between cells, slashes between rows, and a dot for an empty cell.",
        example: ("board_text(1306927023419491499)", "2 4 4 8 / 4 8 8 16 / 2 4 16 128 / . 16 1024 2048"),
        returns: Returns::Text,
        kernel: composite::board_text,
        kernel_with_optional: masked::board_text,
    },
    Function {
        name: "monotonicity",
        arguments: &[BOARD],
        optional: MASK,
        doc: "How far rows and columns are from being sorted: 0 if they are sorted, else negative. For each \
            axis, the rises and the falls of exponents are summed, and the smaller sum is subtracted. As \
            monotonicity2 of ov3y/2048-AI.",
        example: ("monotonicity(1306927023419491499)", "-3"),
        returns: Returns::Int32,
        kernel: features::monotonicity,
        kernel_with_optional: masked::monotonicity,
    },
    Function {
        name: "smoothness",
        arguments: &[BOARD],
        optional: MASK,
        doc: "How much exponents of neighboring tiles differ, across empty cells: 0 if they are equal, else \
            minus the sum of the differences. As smoothness of ov3y/2048-AI.",
        example: ("smoothness(1306927023419491499)", "-39"),
        returns: Returns::Int32,
        kernel: features::smoothness,
        kernel_with_optional: masked::smoothness,
    },
    Function {
        name: "ev_gap",
        arguments: &[UP, DOWN, LEFT, RIGHT],
        optional: RAW,
        doc: "The best EV minus the second best, at least 0. NULL unless at least two EVs are neither NULL \
            nor NaN. If raw_evs is true, the EVs are normalised first: the least becomes 0, and the best 1.",
        example: ("ev_gap(NULL, 1.5, 4.0, 3.25)", "0.75"),
        returns: Returns::Float32,
        kernel: evs::ev_gap,
        kernel_with_optional: evs::normalized_ev_gap,
    },
    Function {
        name: "ev_loss",
        arguments: &[MOVE, UP, DOWN, LEFT, RIGHT],
        optional: RAW,
        doc: "The best EV minus the EV of the move, at least 0. NULL if the EV of the move is NULL or NaN. \
            raw_evs as in ev_gap.",
        example: ("ev_loss(1, NULL, 1.5, 4.0, 3.25)", "2.5"),
        returns: Returns::Float32,
        kernel: evs::ev_loss,
        kernel_with_optional: evs::normalized_ev_loss,
    },
    Function {
        name: "best_move",
        arguments: &[UP, DOWN, LEFT, RIGHT],
        optional: &[],
        doc: "The move with the largest EV, 0..=3; the first one if several are equal. NULL if every EV is \
            NULL or NaN.",
        example: ("best_move(NULL, 1.5, 4.0, 4.0)", "2"),
        returns: Returns::UInt8,
        kernel: evs::best_move,
        kernel_with_optional: evs::best_move,
    },
    Function {
        name: "phase_of",
        arguments: &[MAX_EXP],
        optional: &[],
        doc: "The phase of a board with this largest exponent, as in the archive's column phase: early, mid \
            or late.",
        example: ("phase_of(1)", "early"),
        returns: Returns::Text,
        kernel: composite::phase_of,
        kernel_with_optional: composite::phase_of,
    },
];
