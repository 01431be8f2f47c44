//! Functions of boards that return a number or a board.
//!
//! Loops run over plain slices and compute null slots too, because every uint64 is a valid board. An argument
//! with the same value in all rows, such as a literal, is checked once and gets a specialized loop.

use super::arguments::{Arguments, array, constant};
use super::loops::{map, map_wide, zip, zip_wide};
use super::masked::{Row, corrected, rows};
use crate::board::{Board, Move, Symmetry};
use crate::error::Result;
use arrow::array::{ArrayRef, ArrowPrimitiveType, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type, UInt64Type};
use std::sync::Arc;

pub(super) fn tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, cells) = (arguments.boards(0)?, arguments.numbers(1)?);
    let tile = |board: u64, cell: u8| tile_of(board >> (60 - 4 * u32::from(cell & 15)) & 15);
    corrected::<UInt32Type>(arguments, zip(&boards, &cells, tile), |row| {
        // An empty cell has no tile of 1.
        1 << row.board.exps()[usize::from(row.number & 15)] & !1
    })
}

pub(super) fn max_tile(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let highest = |board| {
        let tiles = of_pairs(board, &TILES, |a, b| a | b);
        // Keep only the highest bit.
        (1_u64 << (u32::BITS - tiles.leading_zeros()) >> 1) as u32
    };
    of_boards::<UInt32Type>(arguments, highest, |row| row.board.highest_tile())
}

pub(super) fn empty_cells(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let empty = |board| 16 - filled(board).count_ones() as u8;
    of_boards_wide::<UInt8Type>(arguments, empty, |row| row.board.num_empty() as u8)
}

pub(super) fn tile_sum(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let sum = |board| of_pairs(board, &TILE_SUMS, |a, b| a + b);
    of_boards::<UInt32Type>(arguments, sum, |row| row.board.tile_sum())
}

pub(super) fn board_score(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let score = |board| of_pairs(board, &SCORES, |a, b| a + b).into();
    of_boards::<Int64Type>(arguments, score, |row| row.board.score().cast_signed())
}

pub(super) fn legal_moves(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let legal = |board| {
        let [up, down, left, right] = changes(board);
        u8::from(up != 0) | u8::from(down != 0) << 1 | u8::from(left != 0) << 2 | u8::from(right != 0) << 3
    };
    of_boards_wide::<UInt8Type>(arguments, legal, |row| row.board.legal_moves())
}

pub(super) fn num_legal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let count = |board| {
        let [up, down, left, right] = changes(board);
        u8::from(up != 0) + u8::from(down != 0) + u8::from(left != 0) + u8::from(right != 0)
    };
    of_boards_wide::<UInt8Type>(arguments, count, |row| row.board.legal_moves().count_ones() as u8)
}

pub(super) fn is_terminal(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let mut terminal = map_wide(&arguments.boards(0)?, |board| {
        let [up, down, left, right] = changes(board);
        up | down | left | right == 0
    });
    rows(arguments)?.iter().for_each(|row| terminal[row.at] = row.board.is_terminal());
    Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(terminal), arguments.nulls())))
}

pub(super) fn afterstate(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, moves) = (arguments.boards(0)?, arguments.numbers(1)?);
    corrected::<UInt64Type>(arguments, slides(&boards, &moves), |row| row.board.slide(row.direction()).board().0)
}

/// Returns the boards after sliding.
pub(super) fn slides(boards: &[u64], moves: &[u8]) -> Vec<u64> {
    match constant(moves).and_then(Move::from_index) {
        Some(Move::Up) => map(boards, |board| Board(board).slide(Move::Up).0),
        Some(Move::Down) => map(boards, |board| Board(board).slide(Move::Down).0),
        Some(Move::Left) => map(boards, |board| Board(board).slide(Move::Left).0),
        Some(Move::Right) => map(boards, |board| Board(board).slide(Move::Right).0),
        // Directions change from row to row, and a mispredicted branch costs more than a second slide.
        None => zip(boards, moves, |board, direction| {
            let rows = transpose_if(is_vertical(direction), board);
            let (left, right) = (Board(rows).slide(Move::Left).0, Board(rows).slide(Move::Right).0);
            transpose_if(is_vertical(direction), choose(direction & 1 == 1, right, left))
        }),
    }
}

pub(super) fn reward(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, moves) = (arguments.boards(0)?, arguments.numbers(1)?);
    // Opposite moves merge the same tiles, so up is as good as down and left as right.
    let rewards = match constant(&moves) {
        Some(0 | 1) => map(&boards, |board| Board(board).reward(Move::Up)),
        Some(_) => map(&boards, |board| Board(board).reward(Move::Left)),
        None => zip(&boards, &moves, |board, direction| {
            Board(transpose_if(is_vertical(direction), board)).reward(Move::Left)
        }),
    };
    corrected::<UInt32Type>(arguments, rewards, |row| row.board.reward(row.direction()))
}

pub(super) fn transform(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, symmetries) = (arguments.boards(0)?, arguments.numbers(1)?);
    let turned = match constant(&symmetries) {
        Some(0) => boards.to_vec(),
        Some(1) => turned::<1>(&boards),
        Some(2) => turned::<2>(&boards),
        Some(3) => turned::<3>(&boards),
        Some(4) => turned::<4>(&boards),
        Some(5) => turned::<5>(&boards),
        Some(6) => turned::<6>(&boards),
        Some(7) => turned::<7>(&boards),
        _ => zip_wide(&boards, &symmetries, |board, symmetry| Symmetry::apply_index(symmetry, Board(board)).0),
    };
    corrected::<UInt64Type>(arguments, turned, |row| row.board.transform(row.symmetry()).board().0)
}

fn turned<const SYMMETRY: u8>(boards: &[u64]) -> Vec<u64> {
    map_wide(boards, |board| Symmetry::apply_index(SYMMETRY, Board(board)).0)
}

/// The direction of a move after a symmetry, by symmetry and then by move.
static MOVES: [u8; 32] = {
    let mut moves = [0; 32];
    let mut index = 0;
    while index < 32 {
        moves[index] = Symmetry::ALL[index / 4].apply_to_move(Move::ALL[index % 4]) as u8;
        index += 1;
    }
    moves
};

pub(super) fn transform_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (moves, symmetries) = (arguments.numbers(0)?, arguments.numbers(1)?);
    let turned = zip(&moves, &symmetries, |direction, symmetry| MOVES[usize::from(symmetry << 2 | direction) & 31]);
    Ok(array::<UInt8Type>(turned, arguments.nulls()))
}

pub(super) fn canonical_symmetry(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let first = |board| {
        let images = images(board);
        let smallest = smallest(&images);
        let mut first = 0;
        // The loop runs in descending order, so that the first symmetry wins.
        for symmetry in (0..8).rev() {
            first = if images[symmetry] == smallest { symmetry as u8 } else { first };
        }
        first
    };
    of_boards_wide::<UInt8Type>(arguments, first, |row| row.to_canonical().next().map_or(0, |symmetry| symmetry as u8))
}

pub(super) fn canonical_move(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let (boards, moves) = (arguments.boards(0)?, arguments.numbers(1)?);
    let turned = zip(&boards, &moves, |board, direction| {
        let images = images(board);
        let smallest = smallest(&images);
        let mut least = 3;
        for symmetry in 0..8 {
            let turned = MOVES[symmetry << 2 | usize::from(direction & 3)];
            least = if images[symmetry] == smallest { turned.min(least) } else { least };
        }
        least
    });
    corrected::<UInt8Type>(arguments, turned, |row| {
        let images = row.to_canonical().map(|symmetry| symmetry.apply_to_move(row.direction()) as u8);
        images.min().unwrap_or_default()
    })
}

/// Returns a board under the eight symmetries, in the order of their numbers.
#[inline(always)]
fn images(board: u64) -> [u64; 8] {
    let turn = |symmetry: Symmetry| Symmetry::apply_index(symmetry as u8, Board(board)).0;
    let [a, b, c, d, e, f, g, h] = Symmetry::ALL;
    [turn(a), turn(b), turn(c), turn(d), turn(e), turn(f), turn(g), turn(h)]
}

#[inline(always)]
fn smallest(images: &[u64; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = *images;
    a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
}

pub(super) fn canonical(arguments: &Arguments<'_>) -> Result<ArrayRef> {
    let smallest = |board| {
        let turn = |symmetry: Symmetry, board| Symmetry::apply_index(symmetry as u8, Board(board)).0;
        // This needs fewer operations than `images`. The eight boards are the board and its transpose, each
        // with rows and columns flipped or not.
        let four = |board| {
            let flipped = turn(Symmetry::FlipColumns, board);
            [board, turn(Symmetry::FlipRows, board), flipped, turn(Symmetry::FlipRows, flipped)]
        };
        let ([a, b, c, d], [e, f, g, h]) = (four(board), four(Board(board).transpose().0));
        a.min(b).min(c.min(d)).min(e.min(f).min(g.min(h)))
    };
    of_boards_wide::<UInt64Type>(arguments, smallest, |row| row.board.canonical().board().0)
}

/// Returns the tile of an exponent; 0 for an empty cell.
#[inline(always)]
pub(super) fn tile_of(exp: u64) -> u32 {
    1 << (exp as u32 & 15) & !1
}

/// Returns a board with the lowest bit of each cell set if the cell has a tile.
#[inline(always)]
fn filled(board: u64) -> u64 {
    let pairs = board | board >> 1;
    (pairs | pairs >> 2) & EACH
}

/// The lowest bit of each cell.
const EACH: u64 = 0x1111_1111_1111_1111;

/// Returns, for each move, the cells where a tile merges with a neighbor or slides into an empty cell; 0 if the move is
/// illegal. Unlike lookup tables, this needs no cache and runs on several boards at once.
#[inline(always)]
fn changes(board: u64) -> [u64; 4] {
    /// The cells with a neighbor to the right, and those with a neighbor below.
    const RIGHT: u64 = 0x1110_1110_1110_1110;
    const BELOW: u64 = 0x1111_1111_1111_0000;
    let here = filled(board);
    // All four bits set is the tile 32768, which does not merge.
    let pairs = board & board >> 1;
    let merges = here & !(pairs & pairs >> 2);
    let axis = |shift: u32, cells: u64| {
        let there = here << shift;
        let merge = merges & !filled(board ^ board << shift);
        ((merge | (there & !here)) & cells, (merge | (here & !there)) & cells)
    };
    let ((up, down), (left, right)) = (axis(16, BELOW), axis(4, RIGHT));
    [up, down, left, right]
}

/// Folds the values of the eight pairs of neighboring cells.
#[inline(always)]
fn of_pairs(board: u64, pairs: &[u32; 256], fold: impl Fn(u32, u32) -> u32) -> u32 {
    let pair = |shift: u32| pairs[usize::from((board >> shift) as u8)];
    let four = |shift| fold(fold(pair(shift), pair(shift + 8)), fold(pair(shift + 16), pair(shift + 24)));
    fold(four(0), four(32))
}

const TILE: [u32; 16] = [0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];

/// The tiles of a pair of cells, combined with OR.
static TILES: [u32; 256] = {
    let mut tiles = [0; 256];
    let mut pair = 0;
    while pair < 256 {
        tiles[pair] = TILE[pair >> 4] | TILE[pair & 15];
        pair += 1;
    }
    tiles
};

static TILE_SUMS: [u32; 256] = pair_sums(TILE);

/// A tile `2^k` counts `(k - 1) * 2^k`, as in [`Board::score`]. Sixteen of the largest sum to 7 million.
static SCORES: [u32; 256] = {
    let mut of_exp = [0; 16];
    let mut exp = 2;
    while exp < 16 {
        of_exp[exp] = (exp as u32 - 1) << exp;
        exp += 1;
    }
    pair_sums(of_exp)
};

const fn pair_sums(of_exp: [u32; 16]) -> [u32; 256] {
    let mut sums = [0; 256];
    let mut pair = 0;
    while pair < 256 {
        sums[pair] = of_exp[pair >> 4] + of_exp[pair & 15];
        pair += 1;
    }
    sums
}

#[inline(always)]
fn is_vertical(direction: u8) -> bool {
    direction < 2
}

#[inline(always)]
fn transpose_if(condition: bool, board: u64) -> u64 {
    choose(condition, Board(board).transpose().0, board)
}

/// Selects a value without a branch.
#[inline(always)]
fn choose(condition: bool, yes: u64, no: u64) -> u64 {
    let mask = u64::from(condition).wrapping_neg();
    (yes & mask) | (no & !mask)
}

/// Computes a value of each board by table lookups. `masked` computes it for a board with tiles of 65,536.
#[inline(always)]
pub(super) fn of_boards<T: ArrowPrimitiveType>(
    arguments: &Arguments<'_>,
    value: impl Fn(u64) -> T::Native,
    masked: impl Fn(&Row) -> T::Native,
) -> Result<ArrayRef> {
    corrected::<T>(arguments, map(&arguments.boards(0)?, value), masked)
}

/// Computes a value of each board by arithmetic.
#[inline(always)]
fn of_boards_wide<T: ArrowPrimitiveType>(
    arguments: &Arguments<'_>,
    value: impl Fn(u64) -> T::Native,
    masked: impl Fn(&Row) -> T::Native,
) -> Result<ArrayRef> {
    corrected::<T>(arguments, map_wide(&arguments.boards(0)?, value), masked)
}
