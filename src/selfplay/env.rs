//! Many games side by side, stepped together.
//!
//! Invariant: game `g` of a seed is a function of the seed, of `g` and of the moves made in it, whatever slot it is played
//! in and whatever is played beside it.
//!
//! A step reads four rows of a slide table and four of the rewards, spawns a tile, and reads eight rows of the legality
//! table: sixteen lookups in 576 KiB, which is what it costs at least. A slot takes 57 bytes, 48 of them the generator and
//! the counts, so that a few thousand lie in the second-level cache.

use super::spawner::Spawner;
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use rand_xoshiro::Xoshiro256PlusPlus;

/// More games side by side than any policy is asked about at once.
pub(super) const MAX_ENVS: usize = 1 << 24;

/// Games side by side, one in each slot.
///
/// A slot whose game is over stays as it is until [`restart`](VectorEnv::restart) begins the next game there; moves for it
/// are ignored. Games are numbered in the order in which they begin.
///
/// ```
/// use a2store::{IllegalMoves, Move, VectorEnv};
/// let mut env = VectorEnv::new(1000, 7)?;
/// let mut rewards = vec![0; env.len()];
/// for _ in 0..100 {
///     let first = |legal: &u8| Move::from_index(legal.trailing_zeros() as u8).unwrap_or(Move::Up);
///     let moves: Vec<Move> = env.legal_moves().iter().map(first).collect();
///     env.step(&moves, IllegalMoves::Refused, &mut rewards)?;
///     (0..env.len()).filter(|&slot| env.is_over(slot)).collect::<Vec<_>>().into_iter().for_each(|slot| env.restart(slot));
/// }
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VectorEnv {
    seed: u64,
    next_game: u64,
    boards: Vec<Board>,
    /// Legality masks, 0 = the game is over.
    legal: Vec<u8>,
    games: Vec<Slot>,
}

/// What of a game is not asked for at every step.
#[derive(Clone, Debug)]
struct Slot {
    spawner: Spawner,
    number: u64,
    score: u32,
    num_steps: u32,
}

/// What [`VectorEnv::step`] makes of a move that does not change the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllegalMoves {
    /// It is an error, and no game is stepped.
    Refused,
    /// That game is left as it is, without a reward.
    Ignored,
}

impl VectorEnv {
    /// The first games of a seed.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for no games, or above 2^24.
    pub fn new(num_envs: usize, seed: u64) -> Result<VectorEnv> {
        if !(1..=MAX_ENVS).contains(&num_envs) {
            return Err(Error::argument("num_envs", format!("1..={MAX_ENVS}"), num_envs));
        }
        let mut env = VectorEnv { seed, next_game: 0, boards: Vec::new(), legal: Vec::new(), games: Vec::new() };
        env.fill(num_envs);
        Ok(env)
    }

    /// Begins anew with the first games of a seed.
    pub fn reset(&mut self, seed: u64) {
        let num_envs = self.len();
        (self.seed, self.next_game) = (seed, 0);
        self.boards.clear();
        self.legal.clear();
        self.games.clear();
        self.fill(num_envs);
    }

    fn fill(&mut self, num_envs: usize) {
        for _ in 0..num_envs {
            let (board, game) = self.next();
            self.legal.push(board.legal_moves());
            self.boards.push(board);
            self.games.push(game);
        }
    }

    fn next(&mut self) -> (Board, Slot) {
        let number = self.next_game;
        self.next_game += 1;
        let mut spawner = Spawner::of_game(self.seed, number);
        (spawner.first_board(), Slot { spawner, number, score: 0, num_steps: 0 })
    }

    /// Begins the next game in a slot, whether or not the one there is over.
    ///
    /// # Panics
    /// Where there is no such slot.
    pub fn restart(&mut self, slot: usize) {
        let (board, game) = self.next();
        self.boards[slot] = board;
        self.legal[slot] = board.legal_moves();
        self.games[slot] = game;
    }

    /// Drops a slot; the last one takes its place.
    pub(super) fn remove(&mut self, slot: usize) {
        self.boards.swap_remove(slot);
        self.legal.swap_remove(slot);
        self.games.swap_remove(slot);
    }

    /// The number of slots.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // It never is.
    pub fn len(&self) -> usize {
        self.boards.len()
    }

    /// What the games follow from.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of games that have begun.
    #[must_use]
    pub fn num_games(&self) -> u64 {
        self.next_game
    }

    /// The board in each slot.
    #[must_use]
    pub fn boards(&self) -> &[Board] {
        &self.boards
    }

    /// The legality mask of each board: bit 0 is up, bit 3 is right; 0 where the game is over.
    #[must_use]
    pub fn legal_moves(&self) -> &[u8] {
        &self.legal
    }

    /// Whether the game in a slot is over.
    ///
    /// # Panics
    /// Where there is no such slot.
    #[must_use]
    pub fn is_over(&self, slot: usize) -> bool {
        self.legal[slot] == 0
    }

    /// The number of the game in each slot.
    #[must_use]
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = u64> {
        self.games.iter().map(|game| game.number)
    }

    /// What the merges of each game earned so far.
    #[must_use]
    pub fn scores(&self) -> impl ExactSizeIterator<Item = u32> {
        self.games.iter().map(|game| game.score)
    }

    /// The number of steps of each game so far.
    #[must_use]
    pub fn num_steps(&self) -> impl ExactSizeIterator<Item = u32> {
        self.games.iter().map(|game| game.num_steps)
    }

    /// A game's number, score and number of steps.
    pub(super) fn game(&self, slot: usize) -> (u64, u32, u32) {
        let game = &self.games[slot];
        (game.number, game.score, game.num_steps)
    }

    /// A source of numbers of a slot's game for what is not its spawns; it begins where it began before.
    pub(super) fn chance(&self, slot: usize) -> Xoshiro256PlusPlus {
        Spawner::of_game(self.seed, self.games[slot].number).beside()
    }

    /// Makes a move in every game that is not over, and writes what each earned.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) when there are more or fewer moves than slots, and for illegal
    /// moves that are [refused](IllegalMoves::Refused). No game is stepped then.
    ///
    /// # Panics
    /// When `rewards` is not as long as there are slots.
    pub fn step(&mut self, moves: &[Move], illegal: IllegalMoves, rewards: &mut [u32]) -> Result<()> {
        assert_eq!(rewards.len(), self.len(), "a reward for each slot");
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
        for ((board, game), (&direction, earned)) in slots.zip(moves.iter().zip(rewards)) {
            let (after, reward) = board.slide_with_reward(direction);
            // Where nothing merges nothing is earned, so this holds of an illegal move and of a game that is over too.
            *earned = reward;
            if after != *board {
                *board = game.spawner.spawn(after);
                game.score += reward;
                game.num_steps += 1;
            }
        }
        // A loop of its own: the lookups of one board need not wait for those of the one before.
        for (board, legal) in self.boards.iter().zip(&mut self.legal) {
            *legal = board.legal_moves();
        }
        Ok(())
    }

    /// Writes the exponents of each board, cell by cell.
    ///
    /// # Panics
    /// When `tokens` is not as long as there are slots.
    pub fn write_tokens(&self, tokens: &mut [[u8; 16]]) {
        write_tokens(&self.boards, tokens);
    }

    /// Writes whether each move is legal on each board, 1 or 0.
    ///
    /// # Panics
    /// When `legal` is not as long as there are slots.
    pub fn write_legal(&self, legal: &mut [[u8; 4]]) {
        write_legal(&self.legal, legal);
    }
}

/// Writes the exponents of each board, cell by cell.
pub(crate) fn write_tokens(boards: &[Board], tokens: &mut [[u8; 16]]) {
    assert_eq!(tokens.len(), boards.len(), "tokens for each board");
    for (board, tokens) in boards.iter().zip(tokens) {
        *tokens = board.exps();
    }
}

/// Spreads each mask over four bytes.
pub(crate) fn write_legal(masks: &[u8], legal: &mut [[u8; 4]]) {
    assert_eq!(legal.len(), masks.len(), "a row for each mask");
    for (&mask, legal) in masks.iter().zip(legal) {
        // Bit i goes to byte i: the copies that the factor makes lie 7 bits apart.
        *legal = ((u32::from(mask & 15) * 0x0020_4081) & 0x0101_0101).to_le_bytes();
    }
}

/// The moves of a mask in words.
pub(super) fn names(legal: u8) -> String {
    let names: Vec<&str> =
        Move::ALL.into_iter().filter(|direction| legal & direction.bit() != 0).map(Move::name).collect();
    names.join(" or ")
}

#[cfg(test)]
mod tests;
