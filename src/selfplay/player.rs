//! The built-in player: expectimax over a heuristic of rows and columns.
//!
//! The heuristic is the row score of `2048.cpp` in nneonneo's 2048-ai, with the same weights. They were found by
//! CMA-ES. It rewards empty cells and possible merges. It penalizes rows that are not monotonic and large sums of
//! many tiles.

use crate::board::{Board, Move};
use crate::run::{BEST_EV, Branches};
use std::sync::LazyLock;

/// A player that searches `depth` spawns ahead.
///
/// Depth 0 chooses the best board after its move, and plays millions of steps per second. Depth 1 averages over every
/// spawn and the best move after it. Each further ply costs about fifty times more.
#[derive(Clone, Copy, Debug)]
pub struct Player {
    depth: u8,
}

/// The probability that a spawned tile is a 4.
const P_FOUR: f32 = 0.1;
/// The search cuts lines that are less likely than this, because they hardly change the value.
const MIN_PROBABILITY: f32 = 0.001;

const LOST_PENALTY: f32 = 200_000.0;
const EMPTY_WEIGHT: f32 = 270.0;
const MERGES_WEIGHT: f32 = 700.0;
const MONOTONICITY_WEIGHT: f32 = 47.0;
const MONOTONICITY_POWER: f32 = 4.0;
const SUM_WEIGHT: f32 = 11.0;
const SUM_POWER: f32 = 3.5;

static ROW_SCORES: LazyLock<Box<[f32]>> = LazyLock::new(row_scores);

/// Builds the table of row scores unless it exists.
pub fn build_tables() {
    LazyLock::force(&ROW_SCORES);
}

impl Player {
    /// Returns a player that searches `depth` spawns ahead.
    #[must_use]
    pub const fn new(depth: u8) -> Player {
        Player { depth }
    }

    /// Returns the best move on a board and the values of all four moves; `None` if no move is legal.
    ///
    /// The values follow the convention of other engines. At each step, the expected values of the legal moves are
    /// scaled to [0, 1) by the smallest and the largest. The best becomes `1 - f32::EPSILON`, and equal values
    /// become 0.5.
    #[must_use]
    pub fn choose(self, board: Board) -> Option<(Move, Branches)> {
        let mut raw = [f32::NEG_INFINITY; 4];
        let mut legal = 0;
        let mut best: Option<Move> = None;
        let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
        for (direction, after) in Move::ALL.into_iter().zip(board.slides()) {
            if after == board {
                continue;
            }
            let value = after_move(after, self.depth, 1.0);
            raw[direction as usize] = value;
            legal |= direction.bit();
            low = low.min(value);
            if best.is_none() || value > high {
                best = Some(direction);
                high = value;
            }
        }
        let best = best?;
        let single = legal & (legal - 1) == 0;
        let values = raw.map(|value| match value {
            f32::NEG_INFINITY => 0.0,
            _ if single => BEST_EV,
            _ if high <= low => 0.5,
            value => ((value - low) / (high - low)).min(BEST_EV),
        });
        Some((best, Branches { values, legal }))
    }
}

/// Returns the value of a board before a tile spawns.
fn after_move(board: Board, depth: u8, probability: f32) -> f32 {
    let num_empty = board.num_empty();
    if depth == 0 || probability < MIN_PROBABILITY || num_empty == 0 {
        return score(board);
    }
    let of_cell = 1.0 / num_empty as f32;
    let mut value = 0.0;
    for shift in (0..64).step_by(4) {
        if board.0 >> shift & 15 == 0 {
            let (two, four) = (Board(board.0 | 1 << shift), Board(board.0 | 2 << shift));
            value += (1.0 - P_FOUR) * before_move(two, depth, probability * of_cell * (1.0 - P_FOUR));
            value += P_FOUR * before_move(four, depth, probability * of_cell * P_FOUR);
        }
    }
    value * of_cell
}

/// Returns the value of a board before a move; 0 if no move is legal.
fn before_move(board: Board, depth: u8, probability: f32) -> f32 {
    let afters = board.slides().into_iter().filter(|&after| after != board);
    afters.map(|after| after_move(after, depth - 1, probability)).fold(0.0, f32::max)
}

fn score(board: Board) -> f32 {
    let scores = &*ROW_SCORES;
    let of = |board: Board| -> f32 { (0..4).map(|row| scores[(board.0 >> (16 * row)) as u16 as usize]).sum() };
    of(board) + of(board.transpose())
}

fn row_scores() -> Box<[f32]> {
    // A power takes longer than the rest of a row, and a tile has one of 16 exponents.
    let of_exps = |power: f32| std::array::from_fn::<f32, 16, _>(|exp| (exp as f32).powf(power));
    let (sums, monotonicity) = (of_exps(SUM_POWER), of_exps(MONOTONICITY_POWER));
    (0..=u16::MAX).map(|row| row_score(row, &sums, &monotonicity)).collect()
}

/// Returns the score of a row; `sums` and `monotonicity` have the powers of each exponent.
fn row_score(row: u16, sums: &[f32; 16], monotonicity: &[f32; 16]) -> f32 {
    let exps: [u16; 4] = [row >> 12, row >> 8 & 15, row >> 4 & 15, row & 15];
    let (mut sum, mut empty, mut merges) = (0.0, 0.0, 0.0);
    let (mut previous, mut equal) = (0, 0.0);
    for exp in exps {
        sum += sums[usize::from(exp)];
        if exp == 0 {
            empty += 1.0;
            continue;
        }
        if exp == previous {
            equal += 1.0;
        } else {
            merges += if equal > 0.0 { 1.0 + equal } else { 0.0 };
            equal = 0.0;
        }
        previous = exp;
    }
    merges += if equal > 0.0 { 1.0 + equal } else { 0.0 };
    let (mut falling, mut climbing) = (0.0, 0.0);
    for pair in exps.windows(2) {
        let [left, right] = [pair[0], pair[1]].map(|exp| monotonicity[usize::from(exp)]);
        falling += (right - left).max(0.0);
        climbing += (left - right).max(0.0);
    }
    LOST_PENALTY + EMPTY_WEIGHT * empty + MERGES_WEIGHT * merges
        - MONOTONICITY_WEIGHT * f32::min(falling, climbing)
        - SUM_WEIGHT * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfplay::spawner::Spawner;

    #[test]
    fn values_follow_the_convention_of_other_engines() {
        let mut spawner = Spawner::of_game(1, 0);
        let mut board = spawner.first_board();
        let mut steps = 0;
        while let Some((chosen, branches)) = Player::new(1).choose(board) {
            assert_eq!(branches.legal, board.legal_moves());
            assert!(branches.legal & chosen.bit() != 0);
            for direction in Move::ALL {
                let value = branches.values[direction as usize];
                assert!((0.0..1.0).contains(&value) && value <= branches.values[chosen as usize]);
            }
            let best = branches.values[chosen as usize];
            assert!(best == 1.0 - f32::EPSILON || best == 0.5, "{best}");
            board = spawner.spawn(board.slide(chosen));
            steps += 1;
        }
        assert!(board.is_terminal() && steps > 300, "{steps}");
    }
}
