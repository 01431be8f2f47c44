//! The vectorized environment: many games, stepped together.
//!
//! Invariant: the seed, the number `g` and the moves determine game `g`. Its slot and the other games make no
//! difference.
//!
//! A step of one game makes sixteen lookups in 576 KiB: four in a slide table, four in the reward table and eight
//! in the legality table. A slot takes 57 bytes, 48 of them for the generator and the counts, so a few thousand
//! slots fit in the second-level cache.

use super::spawner::Spawner;
use crate::board::{Board, Move};
use crate::error::{Error, Result};

/// The largest number of slots: more boards than any policy evaluates at once.
pub(super) const MAX_ENVS: usize = 1 << 24;

/// A vectorized environment: many games side by side, one in each slot.
///
/// When a game is over, its slot keeps the final board and ignores moves until [`restart`](VectorEnv::restart) begins
/// the next game there. Games are numbered in the order in which they begin.
///
/// ```
/// use a2store::Move;
/// use a2store::selfplay::{IllegalMoves, VectorEnv};
/// let mut env = VectorEnv::new(1000, 7)?;
/// for _ in 0..100 {
///     let first = |legal: &u8| Move::from_index(legal.trailing_zeros() as u8).unwrap_or(Move::Up);
///     let moves: Vec<Move> = env.legal_moves().iter().map(first).collect();
///     let rewards = env.step(&moves, IllegalMoves::Refused)?;
///     assert_eq!(rewards.len(), env.len());
///     let over: Vec<usize> = (0..env.len()).filter(|&slot| env.legal_moves()[slot] == 0).collect();
///     over.into_iter().for_each(|slot| env.restart(slot));
/// }
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VectorEnv {
    seed: u64,
    next_game: u64,
    boards: Vec<Board>,
    /// The legality masks; 0 = the game is over.
    legal: Vec<u8>,
    games: Vec<EnvGame>,
}

/// A game of a [`VectorEnv`]: the parts that a step does not need for every slot.
#[derive(Clone, Debug)]
pub struct EnvGame {
    spawner: Spawner,
    /// The number of the game.
    pub number: u64,
    /// The sum of the rewards.
    pub score: u32,
    /// The number of steps.
    pub num_steps: u32,
}

/// The effect of a move that does not change the board, in [`VectorEnv::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllegalMoves {
    /// Returns an error and steps no game.
    Refused,
    /// Leaves that game unchanged, with a reward of 0.
    Ignored,
}

impl VectorEnv {
    /// Begins the first `num_envs` games of a seed.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) unless `num_envs` is from 1 to 2^24.
    pub fn new(num_envs: usize, seed: u64) -> Result<VectorEnv> {
        Error::check_range("num_envs", 1..=MAX_ENVS, num_envs)?;
        Ok(VectorEnv::begun(num_envs, seed))
    }

    /// Begins the first `num_envs` games of a seed.
    pub(super) fn begun(num_envs: usize, seed: u64) -> VectorEnv {
        let mut env = VectorEnv { seed, next_game: 0, boards: Vec::new(), legal: Vec::new(), games: Vec::new() };
        (0..num_envs).for_each(|_| env.add_slot());
        env
    }

    /// Begins the next game in a new slot.
    pub(super) fn add_slot(&mut self) {
        let (board, game) = self.next();
        self.legal.push(board.legal_moves());
        self.boards.push(board);
        self.games.push(game);
    }

    /// Begins the next game.
    fn next(&mut self) -> (Board, EnvGame) {
        let number = self.next_game;
        self.next_game += 1;
        let mut spawner = Spawner::of_game(self.seed, number);
        (spawner.first_board(), EnvGame { spawner, number, score: 0, num_steps: 0 })
    }

    /// Begins the next game in a slot, even if the current game is not over.
    ///
    /// # Panics
    /// If the slot does not exist.
    pub fn restart(&mut self, slot: usize) {
        let (board, game) = self.next();
        self.boards[slot] = board;
        self.legal[slot] = board.legal_moves();
        self.games[slot] = game;
    }

    /// Removes a slot; the last slot takes its place.
    pub(super) fn remove(&mut self, slot: usize) {
        self.boards.swap_remove(slot);
        self.legal.swap_remove(slot);
        self.games.swap_remove(slot);
    }

    /// Returns the number of slots.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.boards.len()
    }

    /// Returns the seed of the games.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of games that have begun.
    #[must_use]
    pub fn num_games(&self) -> u64 {
        self.next_game
    }

    /// Returns the board in each slot.
    #[must_use]
    pub fn boards(&self) -> &[Board] {
        &self.boards
    }

    /// Returns the legality mask of each board: bit 0 is up, bit 3 is right; 0 if the game is over.
    #[must_use]
    pub fn legal_moves(&self) -> &[u8] {
        &self.legal
    }

    /// Returns the game in each slot.
    #[must_use]
    pub fn games(&self) -> &[EnvGame] {
        &self.games
    }

    /// Makes a move in every game that is not over, and returns the rewards.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the number of moves is not the number of slots, and
    /// for an illegal move if such moves are [refused](IllegalMoves::Refused). In both cases no game is stepped.
    pub fn step(&mut self, moves: &[Move], illegal: IllegalMoves) -> Result<Vec<u32>> {
        if moves.len() != self.len() {
            return Err(Error::argument("moves", self.len().to_string(), moves.len()));
        }
        let is_illegal = |(&direction, &legal): (&Move, &u8)| legal != 0 && legal & direction.bit() == 0;
        if illegal == IllegalMoves::Refused
            && let Some(slot) = moves.iter().zip(&self.legal).position(is_illegal)
        {
            let found = format!("{}, which does not change {}", moves[slot].name(), self.boards[slot]);
            return Err(Error::argument("moves", format!("{} in row {slot}", names(self.legal[slot])), found));
        }
        let slots = self.boards.iter_mut().zip(&mut self.games);
        let step = |((board, game), &direction): ((&mut Board, &mut EnvGame), &Move)| {
            let (after, reward) = (board.slide(direction), board.reward(direction));
            // An illegal move merges nothing, so its reward is 0. The same holds for a game that is over.
            if after != *board {
                *board = game.spawner.spawn(after);
                game.score += reward;
                game.num_steps += 1;
            }
            reward
        };
        let rewards = slots.zip(moves).map(step).collect();
        // In a separate loop, the lookups of one board need not wait for the board before it.
        for (board, legal) in self.boards.iter().zip(&mut self.legal) {
            *legal = board.legal_moves();
        }
        Ok(rewards)
    }
}

/// Returns the names of the moves in a mask, joined by "or".
pub(super) fn names(legal: u8) -> String {
    let names: Vec<&str> =
        Move::ALL.into_iter().filter(|direction| legal & direction.bit() != 0).map(Move::name).collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests;
