//! The list of all board functions, in the order of the documentation.

use super::arguments::{Argument, ArgumentKind};
use super::composite::{exps_type, spawn_type};
use super::function::Function;
use super::{composite, evs, kernels, masked};
use arrow::datatypes::DataType;

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
/// Up, down, left, right.
const MOVE: Argument = argument("move", ArgumentKind::Number(3));
/// In row-major order.
const CELL: Argument = argument("cell", ArgumentKind::Number(15));
const SYMMETRY: Argument = argument("symmetry", ArgumentKind::Number(7));
const MAX_EXP: Argument = argument("max_exp", ArgumentKind::Number(16));
const MASK_65536: Argument = argument("tile_65536_mask", ArgumentKind::Mask);
/// The cells that hold 65,536.
const MASK: &[Argument] = &[MASK_65536];
const MASKS: &[Argument] = &[MASK_65536, argument("next_tile_65536_mask", ArgumentKind::Mask)];
const UP: Argument = argument("ev_up", ArgumentKind::Ev);
const DOWN: Argument = argument("ev_down", ArgumentKind::Ev);
const LEFT: Argument = argument("ev_left", ArgumentKind::Ev);
const RIGHT: Argument = argument("ev_right", ArgumentKind::Ev);
/// Whether the EVs are normalized first.
const RAW: &[Argument] = &[argument("raw_evs", ArgumentKind::Flag)];

/// Each entry is `name(arguments; optional arguments) -> type, kernel: description, example = value;`.
macro_rules! functions {
    ($($name:ident($($argument:ident),*; $optional:expr) -> $returns:expr, $kernel:path:
       $doc:literal, $example:literal = $value:literal;)*) => {
        &[$(Function {
            name: stringify!($name),
            arguments: &[$($argument),*],
            optional: $optional,
            doc: $doc,
            example: ($example, $value),
            returns: || $returns,
            kernel: $kernel,
        }),*]
    };
}

/// Most examples use the board that the example of `board_text` shows.
static FUNCTIONS: &[Function] = functions! {
    exps(BOARD; MASK) -> exps_type(), composite::exps:
        "The exponents of the sixteen cells in row-major order, each 0..=15; 16 where the mask is set.",
        "exps(1306927023419491499)" = "[1, 2, 2, 3, 2, 3, 3, 4, 1, 2, 4, 7, 0, 4, 10, 11]";
    tile(BOARD, CELL; MASK) -> DataType::UInt32, kernels::tile:
        "The tile in a cell: 2, 4, …, 65536, or 0 if it is empty.",
        "tile(1306927023419491499, 15)" = "2048";
    max_tile(BOARD; MASK) -> DataType::UInt32, kernels::max_tile:
        "The largest tile; 0 for the empty board.",
        "max_tile(1306927023419491499)" = "2048";
    empty_cells(BOARD; MASK) -> DataType::UInt8, kernels::empty_cells:
        "The number of empty cells, 0..=16.",
        "empty_cells(1306927023419491499)" = "1";
    tile_sum(BOARD; MASK) -> DataType::UInt32, kernels::tile_sum:
        "The sum of the tiles.",
        "tile_sum(1306927023419491499)" = "3292";
    board_score(BOARD; MASK) -> DataType::Int64, kernels::board_score:
        "The sum of (k - 1) * 2^k over the tiles 2^k. It is the score of a game that led to this board, if every \
         spawned tile was a 2.",
        "board_score(1306927023419491499)" = "30672";
    legal_moves(BOARD; MASK) -> DataType::UInt8, kernels::legal_moves:
        "The moves that change the board, as a mask 0..=15: bit 0 is up, 1 down, 2 left, 3 right.",
        "legal_moves(1306927023419491499)" = "14";
    num_legal(BOARD; MASK) -> DataType::UInt8, kernels::num_legal:
        "The number of legal moves, 0..=4.",
        "num_legal(1306927023419491499)" = "3";
    afterstate(BOARD, MOVE; MASK) -> DataType::UInt64, kernels::afterstate:
        "The board after sliding, before a tile spawns; the board itself if the move is illegal.",
        "afterstate(1306927023419491499, 2)" = "1382644943205911216";
    reward(BOARD, MOVE; MASK) -> DataType::UInt32, kernels::reward:
        "The sum of the tiles that a move creates by merging; 0 if the move is illegal.",
        "reward(1306927023419491499, 2)" = "24";
    spawn(BOARD, MOVE, NEXT_BOARD; MASKS) -> spawn_type(), composite::spawn:
        "The cell and the tile that spawned between a move and the next board. NULL if the move is illegal, or if the \
         next board is not the afterstate plus one 2 or 4.",
        "spawn(1306927023419491499, 2, 1382926418182621872)" = "{cell: 3, tile: 2}";
    is_terminal(BOARD; MASK) -> DataType::Boolean, kernels::is_terminal:
        "Whether no move is legal.",
        "is_terminal(1306927023419491499)" = "false";
    transform(BOARD, SYMMETRY; MASK) -> DataType::UInt64, kernels::transform:
        "The board under a symmetry: 0 is the identity, 1 to 3 are quarter turns clockwise, 4 swaps left and right, 5 \
         swaps top and bottom, 6 mirrors at the main diagonal, 7 at the other one.",
        "transform(1306927023419491499, 1)" = "81419053539964739";
    transform_move(MOVE, SYMMETRY; &[]) -> DataType::UInt8, kernels::transform_move:
        "The direction of a move after a symmetry, 0..=3: transform(afterstate(b, m), s) = afterstate(transform(b, \
         s), transform_move(m, s)).",
        "transform_move(2, 1)" = "0";
    canonical(BOARD; MASK) -> DataType::UInt64, kernels::canonical:
        "The smallest of the eight symmetric boards. It is the same for positions that differ only by a symmetry.",
        "canonical(1306927023419491499)" = "81419053539964739";
    canonical_symmetry(BOARD; MASK) -> DataType::UInt8, kernels::canonical_symmetry:
        "The first of the eight symmetries that makes the board canonical, 0..=7.",
        "canonical_symmetry(1306927023419491499)" = "1";
    canonical_move(BOARD, MOVE; MASK) -> DataType::UInt8, kernels::canonical_move:
        "The direction of a move on the canonical board, 0..=3; the smallest one if several symmetries make the board \
         canonical. It is the same for moves that differ only by a symmetry.",
        "canonical_move(1306927023419491499, 2)" = "0";
    afterstate_mask(BOARD, MOVE, MASK_65536; &[]) -> DataType::UInt16, masked::afterstate_mask:
        "The cells with 65536 on the afterstate, as a mask 0..=65535: bit i for cell i.",
        "afterstate_mask(18374686479671623680, 2, 0)" = "1";
    transform_mask(BOARD, SYMMETRY, MASK_65536; &[]) -> DataType::UInt16, masked::transform_mask:
        "The cells with 65536 on the board under a symmetry, as a mask 0..=65535: bit i for cell i.",
        "transform_mask(17293822569102704640, 1, 1)" = "8";
    canonical_mask(BOARD, MASK_65536; &[]) -> DataType::UInt16, masked::canonical_mask:
        "The cells with 65536 on the canonical board, as a mask 0..=65535: bit i for cell i.",
        "canonical_mask(17293822569102704640, 1)" = "32768";
    board_text(BOARD; MASK) -> DataType::Utf8, composite::board_text:
        "The tiles as text: spaces between cells, slashes between rows, and a dot for an empty cell.",
        "board_text(1306927023419491499)" = "2 4 4 8 / 4 8 8 16 / 2 4 16 128 / . 16 1024 2048";
    monotonicity(BOARD; MASK) -> DataType::Int32, kernels::monotonicity:
        "How far rows and columns are from being sorted: 0 if they are sorted, else negative. For each axis, the \
         rises and the falls of exponents are summed, and the smaller sum is subtracted. It equals \
         monotonicity2 of ov3y/2048-AI.",
        "monotonicity(1306927023419491499)" = "-3";
    smoothness(BOARD; MASK) -> DataType::Int32, kernels::smoothness:
        "How much exponents of neighboring tiles differ, across empty cells: 0 if they are equal, else minus the sum \
         of the differences. It equals smoothness of ov3y/2048-AI.",
        "smoothness(1306927023419491499)" = "-39";
    ev_gap(UP, DOWN, LEFT, RIGHT; RAW) -> DataType::Float32, evs::ev_gap:
        "The best EV minus the second best, at least 0. NULL if three or four EVs are NULL or NaN. If raw_evs \
         is true, the EVs are normalized first: the least becomes 0, and the best 1.",
        "ev_gap(NULL, 1.5, 4.0, 3.25)" = "0.75";
    ev_loss(MOVE, UP, DOWN, LEFT, RIGHT; RAW) -> DataType::Float32, evs::ev_loss:
        "The best EV minus the EV of the move, at least 0. NULL if the EV of the move is NULL or NaN. raw_evs as in \
         ev_gap.",
        "ev_loss(1, NULL, 1.5, 4.0, 3.25)" = "2.5";
    best_move(UP, DOWN, LEFT, RIGHT; &[]) -> DataType::UInt8, evs::best_move:
        "The move with the largest EV, 0..=3; the first one if several are equal. NULL if every EV is NULL or NaN.",
        "best_move(NULL, 1.5, 4.0, 4.0)" = "2";
    phase_of(MAX_EXP; &[]) -> DataType::Utf8, composite::phase_of:
        "The phase of a board with this largest exponent, as in the archive's column phase: early, mid or late.",
        "phase_of(1)" = "early";
};
