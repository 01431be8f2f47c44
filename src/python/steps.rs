//! Conversion of boards, moves and values of steps to and from NumPy arrays.

use super::integers::{Bounded, U64, exact_integer, shown};
use super::numpy::{array, contiguous};
use crate::board::{Board, Move};
use crate::error::Error;
use crate::run::Branches;
use crate::selfplay::{write_legal, write_tokens};
use pyo3::buffer::{Element, PyBuffer, ReadOnlyCell};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray};

/// Converts a board from its bits, or from sixteen exponents. `name` is the argument.
pub(super) fn board_from(name: &'static str, board: &Bound<'_, PyAny>) -> PyResult<Board> {
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
        return Ok(Board::from_exps(exps)?);
    }
    let wrong = |found: &Bound<'_, PyAny>| {
        let found = found.get_type().name()?;
        let expected = "an int of 64 bits, or sixteen exponents of 0..=15";
        Err(PyTypeError::new_err(format!("{name}: expected {expected}, found {found}")))
    };
    let Ok(exps) = board.try_iter() else { return wrong(board) };
    let mut len = 0_usize;
    for exp in exps {
        let exp = exp?;
        if exact_integer(&exp).is_none() {
            return wrong(&exp);
        }
        Bounded::<u8, 0, 15>::part(name, &exp)?;
        len += 1;
    }
    Err(Error::argument(name, "sixteen exponents", len).into())
}

/// Converts a move from its number; 255 means none.
pub(super) fn move_from(index: i128) -> PyResult<Option<Move>> {
    match u8::try_from(index) {
        Ok(u8::MAX) => Ok(None),
        Ok(small @ 0..=3) => Ok(Move::from_index(small)),
        _ => Err(Error::argument("move", "0..=3, or 255 for none", shown(index)).into()),
    }
}

/// Returns the values with the legality mask of the rules; four NaNs mean none.
pub(super) fn branches(board: Board, values: [f32; 4]) -> Option<Branches> {
    let is_none = values.iter().all(|value| value.is_nan());
    (!is_none).then(|| Branches { values, legal: board.legal_moves() })
}

/// An array of boards, or of their exponents.
pub(super) enum Boards {
    Bits(PyBuffer<u64>),
    Exps(PyBuffer<u8>),
}

pub(super) enum BoardCells<'a> {
    Bits(&'a [ReadOnlyCell<u64>]),
    Exps(&'a [ReadOnlyCell<u8>]),
}

impl Boards {
    pub(super) fn of(boards: &Bound<'_, PyAny>) -> PyResult<Boards> {
        if let Some(bits) = buffer(boards, &[None]) {
            return Ok(Boards::Bits(bits));
        }
        if let Some(exps) = buffer(boards, &[None, Some(16)]) {
            return Ok(Boards::Exps(exps));
        }
        if buffer::<i64>(boards, &[None]).is_some() {
            // The view has the same memory.
            return Boards::of(&contiguous(boards, None)?.call_method1("view", ("u8",))?);
        }
        let array = contiguous(boards, None)?;
        let dimensions: usize = array.getattr("ndim")?.extract()?;
        let dtype = if dimensions == 2 { "u1" } else { "u8" };
        let array = exact(&array, dtype)?;
        let found = if dimensions == 2 {
            buffer(&array, &[None, Some(16)]).map(Boards::Exps)
        } else {
            buffer(&array, &[None]).map(Boards::Bits)
        };
        found.ok_or_else(|| PyValueError::new_err("boards: expected an array of shape (n,) or (n, 16)"))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Boards::Bits(bits) => bits.item_count(),
            Boards::Exps(exps) => exps.item_count() / 16,
        }
    }

    pub(super) fn cells<'a>(&'a self, py: Python<'a>) -> PyResult<BoardCells<'a>> {
        Ok(match self {
            Boards::Bits(bits) => BoardCells::Bits(cells(py, bits)?),
            Boards::Exps(exps) => BoardCells::Exps(cells(py, exps)?),
        })
    }
}

impl BoardCells<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            BoardCells::Bits(bits) => bits.len(),
            BoardCells::Exps(exps) => exps.len() / 16,
        }
    }

    pub(super) fn check(&self, place: usize) -> PyResult<()> {
        let BoardCells::Exps(exps) = self else { return Ok(()) };
        match exps.iter().skip(16 * place).take(16).map(ReadOnlyCell::get).find(|&exp| exp > 15) {
            Some(exp) => {
                Err(PyValueError::new_err(format!("boards, row {place}: expected exponents 0..=15, found {exp}")))
            }
            None => Ok(()),
        }
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Board {
        match self {
            BoardCells::Bits(bits) => Board(bits.get(place).map_or(0, ReadOnlyCell::get)),
            BoardCells::Exps(exps) => {
                let exps = exps.get(16 * place..16 * place + 16).unwrap_or_default();
                Board(exps.iter().fold(0, |board, exp| board << 4 | u64::from(exp.get())))
            }
        }
    }
}

/// An array of moves.
pub(super) struct Moves(PyBuffer<u8>);

pub(super) struct MoveCells<'a>(&'a [ReadOnlyCell<u8>]);

impl Moves {
    pub(super) fn of(moves: &Bound<'_, PyAny>, len: usize) -> PyResult<Moves> {
        let shape = [Some(len)];
        if let Some(buffer) = buffer(moves, &shape) {
            return Ok(Moves(buffer));
        }
        let array = contiguous(moves, None)?;
        let dtype = array.getattr("dtype")?;
        if !["i", "u"].contains(&dtype.getattr("kind")?.extract::<String>()?.as_str()) {
            return Err(PyTypeError::new_err(format!("moves: expected integers, found {dtype}")));
        }
        // -1 and 255 mean none. Any other value that does not fit a byte is not a move.
        let (least, most) = (array.call_method0("min"), array.call_method0("max"));
        for extreme in [least, most].into_iter().flatten() {
            if !(-1..=255).contains(&extreme.extract::<i128>()?) {
                return Err(Error::argument("move", "0..=3, or 255 for none", extreme).into());
            }
        }
        let array = array.call_method1("astype", ("u1",))?;
        let refuse = || PyValueError::new_err(format!("moves: expected an array of shape ({len},), like boards"));
        buffer(&array, &shape).map(Moves).ok_or_else(refuse)
    }

    pub(super) fn cells<'a>(&'a self, py: Python<'a>) -> PyResult<MoveCells<'a>> {
        Ok(MoveCells(cells(py, &self.0)?))
    }
}

impl MoveCells<'_> {
    pub(super) fn check(&self, place: usize) -> PyResult<()> {
        move_from(self.0.get(place).map_or(u8::MAX, ReadOnlyCell::get).into()).map(drop)
    }

    #[inline]
    pub(super) fn get(&self, place: usize) -> Option<Move> {
        self.0.get(place).and_then(|index| Move::from_index(index.get()))
    }
}

pub(super) fn floats(values: &Bound<'_, PyAny>, len: usize) -> PyResult<PyBuffer<f32>> {
    let shape = [Some(len), Some(4)];
    if let Some(buffer) = buffer(values, &shape) {
        return Ok(buffer);
    }
    let refuse =
        || PyValueError::new_err(format!("ev_values: expected an array of shape ({len}, 4), one row per board"));
    buffer(&contiguous(values, Some("f4"))?, &shape).ok_or_else(refuse)
}

/// Returns the memory of a C-contiguous array with this type and shape.
fn buffer<T: Element>(array: &Bound<'_, PyAny>, shape: &[Option<usize>]) -> Option<PyBuffer<T>> {
    let buffer = PyBuffer::<T>::get(array).ok()?;
    let format = buffer.format().to_bytes();
    let is_native = !format.starts_with(b">") && !format.starts_with(b"!");
    let fits = buffer.dimensions() == shape.len()
        && buffer.shape().iter().zip(shape).all(|(&found, expected)| expected.is_none_or(|expected| found == expected));
    (is_native && fits && buffer.is_c_contiguous()).then_some(buffer)
}

pub(super) fn cells<'a, T: Element>(py: Python<'a>, buffer: &'a PyBuffer<T>) -> PyResult<&'a [ReadOnlyCell<T>]> {
    buffer.as_slice(py).ok_or_else(|| PyValueError::new_err("expected a C-contiguous array"))
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
pub(super) fn tokens_array<'py>(py: Python<'py>, boards: &[Board], wide: bool) -> PyResult<Bound<'py, PyAny>> {
    let size = if wide { 8 } else { 1 };
    let bytes = PyByteArray::new_with(py, 16 * size * boards.len(), |bytes| {
        if wide {
            let cells = boards.iter().flat_map(|board| board.exps());
            for (bytes, exp) in bytes.chunks_exact_mut(8).zip(cells) {
                bytes.copy_from_slice(&i64::from(exp).to_ne_bytes());
            }
        } else {
            write_tokens(boards, bytemuck::cast_slice_mut(bytes));
        }
        Ok(())
    })?;
    array(bytes.as_any(), if wide { "=i8" } else { "|u1" }, 0, (boards.len(), Some(16)))
}

/// Returns legality masks as a new array, (n, 4) bool.
pub(super) fn legal_array<'py>(py: Python<'py>, masks: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, 4 * masks.len(), |bytes| {
        write_legal(masks, bytemuck::cast_slice_mut(bytes));
        Ok(())
    })?;
    array(bytes.as_any(), "|b1", 0, (masks.len(), Some(4)))
}
