//! The input and the output of a policy, and the conversion of its output into moves.

use crate::board::{Board, Move};
use crate::error::{Error, Result};

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
    /// The logits of up, down, left and right. The legal move with the greatest logit is made.
    Logits(Vec<[f32; 4]>),
}

/// Writes the move of each row to `moves`. Moves given by number may still be illegal.
pub(super) fn choose(positions: Positions<'_>, choices: &Choices, moves: &mut Vec<Move>) -> Result<()> {
    moves.clear();
    match choices {
        Choices::Moves(numbers) => {
            check_length("moves", positions, numbers.len())?;
            push_moves(numbers, moves)?;
        }
        Choices::Logits(logits) => {
            check_length("logits", positions, logits.len())?;
            for (row, (logits, &legal)) in logits.iter().zip(positions.legal).enumerate() {
                moves.push(best(logits, legal).ok_or_else(|| bad_logits(row, logits, legal))?);
            }
        }
    }
    Ok(())
}

/// Appends the moves with these numbers.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a number outside `0..=3`, with its row.
pub fn push_moves(numbers: &[i64], moves: &mut Vec<Move>) -> Result<()> {
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

/// Returns the legal move with the greatest logit. If several logits are equal, the first wins. Returns `None` if any
/// logit is NaN or +inf, or if all legal logits are -inf.
fn best(logits: &[f32; 4], legal: u8) -> Option<Move> {
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
    best
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

    #[test]
    fn best_is_the_first_greatest_legal_logit() {
        let of = |logits: [f32; 4], legal| best(&logits, legal).map(|best| best as u8);
        assert_eq!(of([1.0, 5.0, 5.0, 9.0], 0b0111), Some(1));
        assert_eq!(of([f32::NEG_INFINITY, -3.0, 0.0, 0.0], 0b0011), Some(1));
        assert_eq!(of([f32::NEG_INFINITY; 4], 0b1111), None);
        assert_eq!(of([0.0, 0.0, 0.0, f32::NAN], 0b0111), None);
        assert_eq!(of([0.0, f32::INFINITY, 0.0, 0.0], 0b1111), None);
        assert_eq!(of([f32::MIN, f32::NEG_INFINITY, 3.0, 3.0], 0b0011), Some(0));
    }
}
