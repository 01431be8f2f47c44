//! What the classes of boards, positions and pages in Python need: `python/a2store/_boards.py` and `_pages.py`.

use crate::error::OrRaise;
use crate::support::integers::{Bounded, U16, U64};
use crate::support::interpreter::detached;
use crate::support::results::is_first;
use a2store::board::{Board, Move, Palette, WideBoard, board_svg};
use a2store_explore::Position;
use pyo3::prelude::*;
use std::path::PathBuf;

/// Return the exponents of a board, 16 for a tile of 65536.
#[pyfunction]
#[pyo3(name = "_exponents")]
pub(crate) fn exponents(board: U64, tile_65536_mask: U16) -> PyResult<[u8; 16]> {
    Ok(WideBoard::new(Board(board.get()), tile_65536_mask.get()).or_raise()?.exps())
}

/// Return a board as SVG.
#[pyfunction]
#[pyo3(name = "_board_svg")]
pub(crate) fn svg(board: U64, tile_65536_mask: U16, size: Bounded<u32, 1, 10_000>, colors: &str) -> PyResult<String> {
    let is_classic = is_first("colors", colors, ["classic", "viridis"]).or_raise()?;
    let palette = if is_classic { Palette::Classic } else { Palette::Viridis };
    Ok(board_svg(WideBoard::new(Board(board.get()), tile_65536_mask.get()).or_raise()?, palette, size.get()))
}

/// Write text to a file. Replace an existing file atomically.
#[pyfunction]
#[pyo3(name = "_write_page")]
pub(crate) fn write_page(py: Python<'_>, path: PathBuf, page: &str) -> PyResult<()> {
    detached(py, || a2store_explore::write_page(&path, page)).or_raise()
}

/// Returns an instance of `a2store.Position`.
pub(crate) fn position<'py>(py: Python<'py>, position: &Position) -> PyResult<Bound<'py, PyAny>> {
    let classes = py.import("a2store._boards")?;
    let board = position.board;
    let board = classes.call_method1("Board", (board.board().0, board.tile_65536_mask()))?;
    let number = |direction: Option<Move>| direction.map(|direction| direction as u8);
    let (played, best) = (number(position.played), number(position.best()));
    let values = (position.step, board, position.score, played, best, position.values, position.loss());
    classes.call_method1("Position", values)
}
