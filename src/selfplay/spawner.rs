//! The random spawns of tiles.

use crate::board::Board;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The random generator of a game's spawns.
#[derive(Clone, Debug)]
pub(super) struct Spawner(Xoshiro256PlusPlus);

impl Spawner {
    /// Returns the spawner of a game of a seed. Its spawns depend only on the seed, the game number and the boards.
    pub(super) fn of_game(seed: u64, game: u64) -> Spawner {
        // The generator's seeding mixes all bits, so neighbouring games are unrelated.
        Spawner(Xoshiro256PlusPlus::seed_from_u64(Spawner::seed_of(seed, game)))
    }

    /// Returns the generator's seed for a game. It is unique for each game of each seed below 2^32.
    pub(super) fn seed_of(seed: u64, game: u64) -> u64 {
        seed.rotate_left(32) ^ game
    }

    /// Returns a first board, which has two tiles.
    pub(super) fn first_board(&mut self) -> Board {
        let board = self.spawn(Board::default());
        self.spawn(board)
    }

    /// Returns the board with a new tile in a random empty cell: a 4 with probability 1/10, otherwise a 2. Returns
    /// a full board unchanged.
    #[inline]
    pub(super) fn spawn(&mut self, board: Board) -> Board {
        let taken = board.0 | board.0 >> 2;
        let empty = !(taken | taken >> 1) & 0x1111_1111_1111_1111;
        if empty == 0 {
            return board;
        }
        // Each nibble counts the empty cells up to it, from below, modulo 16. So the top count of an empty board is
        // 0.
        let counts = empty.wrapping_mul(0x1111_1111_1111_1111);
        let num_empty = if counts >> 60 == 0 { 16 } else { counts >> 60 };
        let bits = self.0.next_u64();
        // The top half chooses the cell and the bottom half the tile, each by multiplication instead of division.
        let nth = ((bits >> 32) * num_empty) >> 32;
        let exp = if ((bits & 0xffff_ffff) * 10) >> 32 == 0 { 2 } else { 1 };
        // Find the first cell whose count is above `nth`. Branches would be unpredictable, so there are none.
        let mut shift = 0;
        for half in [32, 16, 8, 4] {
            let below = counts >> (shift + half - 4) & 15;
            shift += if below <= nth { half } else { 0 };
        }
        Board(board.0 | exp << shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spawns a tile naively, cell by cell from below.
    fn plain(random: &mut Xoshiro256PlusPlus, board: Board) -> Board {
        let empty: Vec<u32> = (0..64).step_by(4).filter(|shift| board.0 >> shift & 15 == 0).collect();
        if empty.is_empty() {
            return board;
        }
        let bits = random.next_u64();
        let nth = (u128::from(bits >> 32) * empty.len() as u128) >> 32;
        let exp = if u128::from(bits as u32) * 10 < 1 << 32 { 2 } else { 1 };
        Board(board.0 | exp << empty[nth as usize])
    }

    #[test]
    fn spawns_are_fair() {
        let mut spawner = Spawner::of_game(7, 0);
        let board = Board(0x1111_1111_1111_1000);
        let mut counts = [[0u32; 3]; 3];
        for _ in 0..30_000 {
            let next = spawner.spawn(board);
            assert!(board.spawns_into(next));
            let spawned = next.0 ^ board.0;
            counts[(spawned.trailing_zeros() / 4) as usize][(spawned >> (spawned.trailing_zeros() & !3)) as usize] += 1;
        }
        // Each cell should get 9,000 twos and 1,000 fours. Four standard deviations are 320 and 124.
        for [_, twos, fours] in counts {
            assert!(twos.abs_diff(9_000) < 320 && fours.abs_diff(1_000) < 124, "{counts:?}");
        }
        assert_eq!(spawner.spawn(Board(u64::MAX)), Board(u64::MAX));
    }

    #[test]
    fn spawns_agree_with_the_naive_rule_for_every_set_of_empty_cells() {
        let mut spawner = Spawner::of_game(1, 2);
        let mut random = spawner.0.clone();
        for set in 0..=u16::MAX {
            let board = (0..16).fold(0, |board, cell| board | (u64::from(set >> cell & 1) * 15) << (4 * cell));
            assert_eq!(spawner.spawn(Board(board)), plain(&mut random, Board(board)), "{board:016x}");
        }
    }
}
