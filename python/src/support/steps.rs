//! Conversion of boards, moves and values of steps to and from NumPy arrays.

use super::integers::{Bounded, U64, exact_integer, shown};
use super::numpy::{array, buffer, contiguous, type_and_shape, values};
use crate::error::{OrRaise, raised};
use a2store::board::{Board, Move};
use a2store::error::Error;
use a2store::run::Branches;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray};

/// Converts a board from its bits, or from sixteen exponents. `name` is the argument.
pub(crate) fn board_from(name: &'static str, board: &Bound<'_, PyAny>) -> PyResult<Board> {
    // Many boards exceed i64, so this comes before `exact_integer`, which is slow for them.
    if !board.is_instance_of::<PyBool>()
        && let Ok(bits) = board.extract()
    {
        return Ok(Board(bits));
    }
    if exact_integer(board).is_some() {
        return U64::part(name, board).map(Board);
    }
    if let Ok(exps) = board.extract::<[u8; 16]>() {
        return Board::from_exps(exps).or_raise();
    }
    let wrong = |found: &Bound<'_, PyAny>| {
        let found = found.get_type().name()?;
        let expected = "an int of 64 bits, or sixteen exponents of 0..=15";
        Err(PyTypeError::new_err(format!("{name}: expected {expected}, found {found}")))
    };
    let Ok(exps) = board.try_iter() else { return wrong(board) };
    let mut found = Vec::new();
    for exp in exps {
        let exp = exp?;
        if exact_integer(&exp).is_none() {
            return wrong(&exp);
        }
        found.push(Bounded::<u8, 0, 15>::part(name, &exp)?);
    }
    let Ok(exps) = <[u8; 16]>::try_from(found.as_slice()) else {
        return Err(raised(Error::argument(name, "sixteen exponents", found.len())));
    };
    Board::from_exps(exps).or_raise()
}

/// Converts a move from its number; 255 means none.
pub(crate) fn move_from(index: i128) -> PyResult<Option<Move>> {
    match u8::try_from(index) {
        Ok(u8::MAX) => Ok(None),
        Ok(small @ 0..=3) => Ok(Move::from_index(small)),
        _ => Err(raised(Error::argument("move", "0..=3, or 255 for none", shown(index)))),
    }
}

/// Returns the values with the legality mask of the rules; four NaNs mean none.
pub(crate) fn branches(board: Board, values: [f32; 4]) -> Option<Branches> {
    let is_none = values.iter().all(|value| value.is_nan());
    (!is_none).then(|| Branches { values, legal: board.legal_moves() })
}

/// Converts an array of boards, or of their exponents.
pub(crate) fn boards_from(boards: &Bound<'_, PyAny>) -> PyResult<Vec<Board>> {
    if let Some(boards) = native_boards(boards)? {
        return Ok(boards);
    }
    let array = contiguous(boards, None)?;
    let array = if buffer::<i64>(&array, &[None]).is_some() {
        // The bits of a board may be a negative integer of 64 bits.
        array.call_method1("view", ("u8",))?
    } else {
        let dimensions: usize = array.getattr("ndim")?.extract()?;
        exact(&array, if dimensions == 2 { "u1" } else { "u8" })?
    };
    native_boards(&array)?.ok_or_else(|| PyValueError::new_err("boards: expected an array of shape (n,) or (n, 16)"))
}

/// Converts an array of shape (n,), uint64, or (n, 16), uint8; `None` for another array.
fn native_boards(boards: &Bound<'_, PyAny>) -> PyResult<Option<Vec<Board>>> {
    let py = boards.py();
    if let Some(bits) = buffer::<u64>(boards, &[None]) {
        return Ok(Some(bytemuck::cast_vec(bits.to_vec(py)?)));
    }
    let Some(exps) = buffer::<u8>(boards, &[None, Some(16)]) else { return Ok(None) };
    let board = |(row, exps): (usize, &[u8])| match exps.iter().find(|&&exp| exp > 15) {
        Some(exp) => Err(PyValueError::new_err(format!("boards, row {row}: expected exponents 0..=15, found {exp}"))),
        None => Ok(Board(exps.iter().fold(0, |board, &exp| board << 4 | u64::from(exp)))),
    };
    exps.to_vec(py)?.chunks_exact(16).enumerate().map(board).collect::<PyResult<_>>().map(Some)
}

/// Converts an array of `len` moves.
pub(crate) fn moves_from(moves: &Bound<'_, PyAny>, len: usize) -> PyResult<Vec<Option<Move>>> {
    if let Some(native) = buffer::<u8>(moves, &[Some(len)]) {
        return native.to_vec(moves.py())?.into_iter().map(|index| move_from(index.into())).collect();
    }
    let array = contiguous(moves, None)?;
    let (kind, shape) = type_and_shape(&array)?;
    if !["i", "u"].contains(&kind.as_str()) {
        let found = array.getattr("dtype")?;
        return Err(PyTypeError::new_err(format!("moves: expected integers, found {found}")));
    }
    if shape != [len] {
        return Err(PyValueError::new_err(format!("moves: expected an array of shape ({len},), like boards")));
    }
    if kind == "u" {
        return values::<u64>(&array, "u8")?.into_iter().map(|index| move_from(index.into())).collect();
    }
    // -1 means none, like 255.
    let signed = |index: i64| move_from(if index == -1 { 255 } else { index.into() });
    values::<i64>(&array, "i8")?.into_iter().map(signed).collect()
}

/// Converts an array of values, four for each of `len` boards.
pub(crate) fn values_from(values: &Bound<'_, PyAny>, len: usize) -> PyResult<Vec<[f32; 4]>> {
    let found = buffer::<f32>(&contiguous(values, Some("f4"))?, &[Some(len), Some(4)]).ok_or_else(|| {
        PyValueError::new_err(format!("ev_values: expected an array of shape ({len}, 4), one row per board"))
    })?;
    Ok(found.to_vec(values.py())?.chunks_exact(4).map(|four| std::array::from_fn(|at| four[at])).collect())
}

/// Converts an array to another type, if no value changes.
fn exact<'py>(array: &Bound<'py, PyAny>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    let other = array.call_method1("astype", (dtype,))?;
    let is_same: bool = other.call_method1("__eq__", (array,))?.call_method0("all")?.extract()?;
    if is_same {
        return Ok(other);
    }
    Err(PyValueError::new_err("boards: expected integers that a board, or an exponent, can hold"))
}

/// Returns the exponents of boards as a new array, (n, 16) uint8, or int64 if `wide`.
pub(crate) fn tokens_array<'py>(py: Python<'py>, boards: &[Board], wide: bool) -> PyResult<Bound<'py, PyAny>> {
    let size = if wide { 8 } else { 1 };
    let bytes = PyByteArray::new_with(py, 16 * size * boards.len(), |bytes| {
        if wide {
            let cells = boards.iter().flat_map(|board| board.exps());
            for (bytes, exp) in bytes.chunks_exact_mut(8).zip(cells) {
                bytes.copy_from_slice(&i64::from(exp).to_ne_bytes());
            }
        } else {
            bytes.chunks_exact_mut(16).zip(boards).for_each(|(tokens, board)| tokens.copy_from_slice(&board.exps()));
        }
        Ok(())
    })?;
    array(bytes.as_any(), if wide { "=i8" } else { "|u1" }, 0, (boards.len(), Some(16)))
}

/// Returns legality masks as a new array, (n, 4) bool.
pub(crate) fn legal_array<'py>(py: Python<'py>, masks: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, 4 * masks.len(), |bytes| {
        for (legal, mask) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(masks) {
            *legal = std::array::from_fn(|direction| mask >> direction & 1);
        }
        Ok(())
    })?;
    array(bytes.as_any(), "|b1", 0, (masks.len(), Some(4)))
}
