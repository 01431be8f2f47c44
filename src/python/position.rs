//! Boards and positions for display.

use super::integers::{Bounded, U16, U64};
use crate::board::{Board, Move, Palette, WideBoard, board_svg};
use crate::error::Error;
use crate::explore::Position;
use pyo3::prelude::*;
use std::fmt::Write;
use std::path::PathBuf;

/// The width of a picture of a board in pixels.
pub(super) const SIZE: u32 = 240;

/// A board that is shown as text in a terminal and as a picture in a notebook.
///
/// - ``board``: the board as a uint64 of sixteen 4-bit exponents.
/// - ``tile_65536_mask``: the cells with a tile of 65536, bit ``i`` for cell ``i``.
///
/// Raises ``ValueError`` if a cell of the mask does not have the exponent 15.
///
/// >>> board = a2store.Board(0x1020_0000_0000_00AB)
/// >>> print(board)
///     2     .     4     .
///     .     .     .     .
///     .     .     .     .
///     .     .  1024  2048
/// >>> int(board) == 0x1020_0000_0000_00AB
/// True
#[pyclass(frozen, eq, hash, name = "Board", module = "a2store")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct PyBoard(WideBoard);

#[pymethods]
impl PyBoard {
    #[new]
    #[pyo3(signature = (board, tile_65536_mask=0))]
    fn new(board: U64, #[pyo3(from_py_with = U16::int)] tile_65536_mask: u16) -> PyResult<PyBoard> {
        Ok(PyBoard(WideBoard::new(Board(board.get()), tile_65536_mask)?))
    }

    /// The tiles, row by row: a list of four lists of four integers; 0 = an empty cell.
    #[getter]
    fn tiles(&self) -> Vec<Vec<u32>> {
        let tile = |&exp: &u8| if exp == 0 { 0 } else { 1 << exp };
        self.0.exps().chunks(4).map(|row| row.iter().map(tile).collect()).collect()
    }

    /// The cells with a tile of 65536, bit ``i`` for cell ``i``.
    #[getter]
    fn tile_65536_mask(&self) -> u16 {
        self.0.tile_65536_mask()
    }

    /// Return the board as SVG.
    ///
    /// - ``size``: the width and height in pixels, in ``1..=10_000``.
    /// - ``colors``: ``"classic"`` = the colours of the game; ``"viridis"`` = colours ordered by lightness, for
    ///   every kind of colour vision.
    ///
    /// Raises ``ValueError`` for other sizes or colours.
    ///
    /// >>> a2store.Board(0x12).to_svg()[:4]
    /// '<svg'
    #[pyo3(signature = (size=240, *, colors="classic"))]
    fn to_svg(
        &self,
        #[pyo3(from_py_with = Bounded::<u32, 1, 10_000>::int)] size: u32,
        colors: &str,
    ) -> PyResult<String> {
        let palette = match colors {
            "classic" => Palette::Classic,
            "viridis" => Palette::Viridis,
            _ => return Err(Error::argument("colors", "\"classic\" or \"viridis\"", format!("{colors:?}")).into()),
        };
        Ok(board_svg(self.0, palette, size))
    }

    /// Write the board to an SVG file. An existing file is replaced.
    ///
    /// - ``path``: the file.
    ///
    /// Raises ``OSError`` if the file cannot be written.
    ///
    /// >>> a2store.Board(0x12).save("board.svg")
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        let svg = board_svg(self.0, Palette::Classic, SIZE);
        Ok(std::fs::write(&path, svg).map_err(|source| Error::io(&path, source))?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, (u64, u16)) {
        (py.get_type::<PyBoard>().into_any(), (self.0.board().0, self.0.tile_65536_mask()))
    }

    fn __index__(&self) -> u64 {
        self.0.board().0
    }

    fn __str__(&self) -> String {
        format!("{:#}", self.0)
    }

    fn __repr__(&self) -> String {
        match self.0.tile_65536_mask() {
            0 => format!("Board({:#018x})", self.0.board().0),
            mask => format!("Board({:#018x}, tile_65536_mask={mask})", self.0.board().0),
        }
    }

    fn _repr_svg_(&self) -> String {
        board_svg(self.0, Palette::Classic, SIZE)
    }
}

/// One position of a run: a board, the values of the four moves, and the move that was played.
///
/// A notebook shows the board and a table of the moves.
///
/// >>> position = a2store.read_run("runs/run-00000.a2run2").position(0)
/// >>> position.played, position.best
/// (3, 3)
#[pyclass(frozen, name = "Position", module = "a2store")]
pub(super) struct PyPosition(pub(super) Position);

#[pymethods]
impl PyPosition {
    /// The index of the step in its game; ``None`` for the final board.
    #[getter]
    fn step(&self) -> Option<u32> {
        self.0.step
    }

    /// The board.
    #[getter]
    fn board(&self) -> PyBoard {
        PyBoard(self.0.board)
    }

    /// The score before the move: the sum of the tiles that merges have made; ``None`` = unknown.
    ///
    /// It is unknown if an earlier step or move is missing, or if the game does not begin with one or two tiles of 2
    /// or 4.
    ///
    /// The score that the engine states, ``run.meta.max_score``, may differ, because engines count differently.
    #[getter]
    fn score(&self) -> Option<u64> {
        self.0.score
    }

    /// The played move, 0 to 3 in the order UDLR; ``None`` if it is unknown, and for the final board.
    #[getter]
    fn played(&self) -> Option<u8> {
        self.0.played.map(|direction| direction as u8)
    }

    /// The move with the largest value, 0 to 3; ``None`` without values.
    #[getter]
    fn best(&self) -> Option<u8> {
        self.0.best().map(|direction| direction as u8)
    }

    /// The engine's values of up, down, left and right; ``None`` for an illegal move or an unknown value.
    #[getter]
    fn values(&self) -> [Option<f32>; 4] {
        self.0.values
    }

    /// The best value minus the value of the played move; ``None`` if the values or the move are unknown.
    ///
    /// Raw values are normalised first: the least value of the step is 0, and the best value is 1.
    #[getter]
    fn loss(&self) -> Option<f32> {
        self.0.loss()
    }

    fn __repr__(&self) -> String {
        let what = self.0.step.map_or_else(|| "final board".to_owned(), |step| format!("step {step}"));
        let played = self.0.played.map_or_else(String::new, |played| format!(", played {}", played.name()));
        format!("Position({what}: {}{played})", self.0.board)
    }

    fn _repr_html_(&self) -> String {
        let board = board_svg(self.0.board, Palette::Classic, SIZE);
        let mut rows = String::new();
        for direction in Move::ALL {
            let value = self.0.values[direction as usize].map_or_else(String::new, |value| format!("{value:.5}"));
            let mark = match (self.0.played == Some(direction), self.0.best() == Some(direction)) {
                (true, true) => "played, best",
                (true, false) => "played",
                (false, true) => "best",
                (false, false) => "",
            };
            let name = direction.name();
            let _ = write!(rows, "<tr><th>{name}</th><td>{value}</td><td>{mark}</td></tr>");
        }
        let what = self.0.step.map_or_else(|| "final board".to_owned(), |step| format!("step {step}"));
        let score = self.0.score.map_or_else(String::new, |score| format!(", score {score}"));
        format!(
            "<div style=\"display: flex; gap: 1em; align-items: center\">{board}<table><caption>{what}{score}</caption>\
             <tr><th>move</th><th>value</th><th></th></tr>{rows}</table></div>"
        )
    }
}

/// A page that replays a run.
///
/// >>> a2store.read_run("runs/run-00000.a2run2").replay()
/// Replay(647 positions)
#[pyclass(frozen, name = "Replay", module = "a2store")]
pub(super) struct PyReplay {
    pub(super) page: String,
    pub(super) num_positions: usize,
}

#[pymethods]
impl PyReplay {
    /// Return the page: HTML that needs no other file and no network.
    ///
    /// >>> a2store.read_run("runs/run-00000.a2run2").replay().to_html()[:15]
    /// '<!doctype html>'
    fn to_html(&self) -> &str {
        &self.page
    }

    /// Write the page to a file. An existing file is replaced.
    ///
    /// - ``path``: the file.
    ///
    /// Raises ``OSError`` if the file cannot be written.
    ///
    /// >>> a2store.read_run("runs/run-00000.a2run2").replay().save("replay.html")
    #[allow(clippy::needless_pass_by_value)] // The shape that pyo3 asks for.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        Ok(std::fs::write(&path, &self.page).map_err(|source| Error::io(&path, source))?)
    }

    fn __repr__(&self) -> String {
        format!("Replay({} positions)", self.num_positions)
    }

    /// Return the page in a frame, which separates its styles and scripts from those of the notebook.
    fn _repr_html_(&self) -> String {
        frame(&self.page, "46rem")
    }
}

/// Returns a page in a frame, which separates its styles and scripts from those of the notebook.
pub(super) fn frame(page: &str, height: &str) -> String {
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<iframe srcdoc=\"{page}\" sandbox=\"allow-scripts\" style=\"width: 100%; height: {height}; border: 0\"></iframe>"
    )
}
