//! The input and the output of a policy, and the conversion of its output into moves.

use super::env::VectorEnv;
use crate::board::{Board, Move};
use crate::error::{Error, Result};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// The boards of a batch, for which a policy chooses moves. None of the games is over.
#[derive(Clone, Copy, Debug)]
pub struct Positions<'a> {
    /// The boards.
    pub boards: &'a [Board],
    /// The legality masks of the boards: bit 0 is up, bit 3 is right.
    pub legal: &'a [u8],
}

/// The answer of a policy: one row for each board.
#[derive(Clone, Debug)]
pub enum Choices {
    /// The number of each move. All moves must be legal.
    Moves(Vec<i64>),
    /// The logits of up, down, left and right. Logits of illegal moves are ignored.
    Logits(Vec<[f32; 4]>),
}

/// A chooser of moves: it takes them by number, takes the best one, or draws one.
pub(super) struct Chooser {
    temperature: f32,
    /// The random generator of each slot's game, so that draws do not depend on other games. Empty if nothing is
    /// drawn.
    chances: Vec<Xoshiro256PlusPlus>,
}

impl Chooser {
    pub(super) fn new(temperature: f32, env: &VectorEnv) -> Chooser {
        let num_drawn = if temperature > 0.0 { env.len() } else { 0 };
        Chooser { temperature, chances: (0..num_drawn).map(|slot| env.chance(slot)).collect() }
    }

    /// Resets the generator of a slot in which another game began.
    pub(super) fn restart(&mut self, slot: usize, env: &VectorEnv) {
        if let Some(chance) = self.chances.get_mut(slot) {
            *chance = env.chance(slot);
        }
    }

    /// Removes a slot; the last slot takes its place.
    pub(super) fn remove(&mut self, slot: usize) {
        if slot < self.chances.len() {
            self.chances.swap_remove(slot);
        }
    }

    /// Writes the move of each row to `moves`. Moves given by number may still be illegal.
    pub(super) fn choose(&mut self, positions: Positions<'_>, choices: &Choices, moves: &mut Vec<Move>) -> Result<()> {
        moves.clear();
        match choices {
            Choices::Moves(_) if self.temperature > 0.0 => {
                return Err(Error::argument("policy", "logits, because the temperature is above 0", "moves"));
            }
            Choices::Moves(numbers) => {
                check_length("moves", positions, numbers.len())?;
                to_moves(numbers, moves)?;
            }
            Choices::Logits(logits) => {
                check_length("logits", positions, logits.len())?;
                for (row, (logits, &legal)) in logits.iter().zip(positions.legal).enumerate() {
                    let (best, most) = best(logits, legal).ok_or_else(|| bad_logits(row, logits, legal))?;
                    moves.push(match self.chances.get_mut(row) {
                        Some(chance) => draw(logits, legal, most, self.temperature, chance).unwrap_or(best),
                        None => best,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Appends the moves with these numbers.
pub(crate) fn to_moves(numbers: &[i64], moves: &mut Vec<Move>) -> Result<()> {
    for (row, &number) in numbers.iter().enumerate() {
        let direction = u8::try_from(number).ok().and_then(Move::from_index);
        let error = || Error::argument("moves", format!("0..=3 in row {row}"), number);
        moves.push(direction.ok_or_else(error)?);
    }
    Ok(())
}

fn check_length(what: &'static str, positions: Positions<'_>, found: usize) -> Result<()> {
    let expected = positions.boards.len();
    if found == expected { Ok(()) } else { Err(Error::argument(what, format!("{expected} rows"), found)) }
}

/// Returns the legal move with the greatest logit, and that logit. If several logits are equal, the first wins.
/// Returns `None` if any logit is NaN or +inf, or if all legal logits are -inf.
fn best(logits: &[f32; 4], legal: u8) -> Option<(Move, f32)> {
    let mut best = None;
    let mut most = f32::NEG_INFINITY;
    for (direction, &logit) in Move::ALL.into_iter().zip(logits) {
        // This is false for NaN too.
        let is_fit = logit < f32::INFINITY;
        if !is_fit {
            return None;
        }
        if legal & direction.bit() != 0 && logit > most {
            (best, most) = (Some(direction), logit);
        }
    }
    best.map(|best| (best, most))
}

/// Draws a move from the softmax of the legal logits. `most` is the greatest of them.
fn draw(logits: &[f32; 4], legal: u8, most: f32, temperature: f32, chance: &mut Xoshiro256PlusPlus) -> Option<Move> {
    let mut weights = [0.0; 4];
    for direction in Move::ALL {
        if legal & direction.bit() != 0 {
            let logit = logits[direction as usize];
            weights[direction as usize] = (f64::from(logit - most) / f64::from(temperature)).exp();
        }
    }
    let uniform = (chance.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut left = uniform * weights.iter().sum::<f64>();
    // Rounding may leave a remainder after the last weight, so the last move is the fallback.
    let mut drawn = None;
    for direction in Move::ALL {
        let weight = weights[direction as usize];
        if weight > 0.0 {
            drawn = Some(direction);
            if left < weight {
                break;
            }
            left -= weight;
        }
    }
    drawn
}

fn bad_logits(row: usize, logits: &[f32; 4], legal: u8) -> Error {
    let expected = match logits.iter().all(|&logit| logit < f32::INFINITY) {
        true => format!("a number for {} in row {row}", super::env::names(legal)),
        false => format!("numbers or -inf in row {row}"),
    };
    Error::argument("logits", expected, format!("{logits:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selfplay::spawner::Spawner;

    #[test]
    fn best_is_the_first_greatest_legal_logit() {
        let of = |logits: [f32; 4], legal| best(&logits, legal).map(|(best, _)| best as u8);
        assert_eq!(of([1.0, 5.0, 5.0, 9.0], 0b0111), Some(1));
        assert_eq!(of([f32::NEG_INFINITY, -3.0, 0.0, 0.0], 0b0011), Some(1));
        assert_eq!(of([f32::NEG_INFINITY; 4], 0b1111), None);
        assert_eq!(of([0.0, 0.0, 0.0, f32::NAN], 0b0111), None);
        assert_eq!(of([0.0, f32::INFINITY, 0.0, 0.0], 0b1111), None);
        assert_eq!(of([f32::MIN, f32::NEG_INFINITY, 3.0, 3.0], 0b0011), Some(0));
    }

    #[test]
    fn draws_follow_the_softmax_of_the_legal_moves() {
        let mut chance = Spawner::of_game(3, 0).beside();
        let logits = [0.0, 9.0, 2.0_f32.ln(), 3.0_f32.ln()];
        let mut counts = [0_u32; 4];
        for _ in 0..60_000 {
            counts[draw(&logits, 0b1101, 3.0_f32.ln(), 1.0, &mut chance).unwrap() as usize] += 1;
        }
        // The expected ratio is 1 : 2 : 3. Four standard deviations are less than 500.
        for (count, expected) in counts.into_iter().zip([10_000, 0, 20_000, 30_000]) {
            assert!(count.abs_diff(expected) < 500, "{counts:?}");
        }
        // At half the temperature the weights are squared.
        let mut counts = [0_u32; 4];
        for _ in 0..70_000 {
            counts[draw(&logits, 0b1101, 3.0_f32.ln(), 0.5, &mut chance).unwrap() as usize] += 1;
        }
        for (count, expected) in counts.into_iter().zip([5_000, 0, 20_000, 45_000]) {
            assert!(count.abs_diff(expected) < 600, "{counts:?}");
        }
        // At the lowest temperature the best move is drawn. A logit of -inf is never drawn.
        let cold = [-1e30, f32::NEG_INFINITY, 3.0, 2.0];
        for _ in 0..1000 {
            assert_eq!(draw(&cold, 0b1111, 3.0, f32::MIN_POSITIVE, &mut chance), Some(Move::Left));
            assert_ne!(draw(&cold, 0b1111, 3.0, 1e30, &mut chance), Some(Move::Down));
        }
    }
}
