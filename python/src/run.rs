//! Runs and their metadata, `a2store.Run`.

use super::display::position;
use super::view::CallablePolicy;
use crate::error::{OrRaise, raised};
use crate::support::indices::place;
use crate::support::integers::AnyInt;
use crate::support::interpreter::detached;
use crate::support::interrupt::cancellable;
use crate::support::numpy::copied_array;
use crate::support::results::IntoInstance;
use crate::support::steps::legal_array;
use a2store::archive::Archive;
use a2store::board::{Palette, WideBoard};
use a2store::error::Error;
use a2store::format::{RunFormat, decode_run, encode_run, read_run as read_run_file};
use a2store::run::Run;
use a2store_explore::{LivePolicy, Replay, replay_page};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A run as a list, for errors.
const POSITIONS: (&str, &str) = ("run", "positions");

/// One decoded game, as columns with one entry per step.
///
/// The arrays are writable copies: changing them does not change the run. ``len(run)`` is the number of steps.
///
/// >>> run = a2store.read_run("runs/run-00000.a2run2")
/// >>> run
/// Run(646 steps, max_score=11308, engine="a2store-expectimax-1", a2run2)
/// >>> run.boards.shape, run.ev_values.shape
/// ((646,), (646, 4))
/// >>> hex(run.boards[0]), run.moves[:4]
/// ('0x1020000', array([3, 0, 2, 3], dtype=uint8))
#[pyclass(frozen, name = "Run", module = "a2store")]
pub(crate) struct PyRun {
    run: Run,
    format: RunFormat,
    /// Where models may have predicted for the run; `None` for a run of a file.
    stored: Option<(Archive, u32)>,
    /// The positions, with the predictions of models.
    game: OnceLock<Replay>,
}

/// Decode one run from a file or from the bytes of a run file.
///
/// The content determines the format, A2T1 or a2run2; the file's name does not.
///
/// - ``path_or_bytes``: the path of a run file (str or ``PathLike``), or its content (bytes).
///
/// Raises ``DecodeError`` for an invalid run, with the byte offset and, inside the steps, the step. Raises ``OSError``
/// if the file cannot be read.
///
/// >>> run = a2store.read_run("runs/run-00000.a2run2")
/// >>> len(run), run.meta.max_score, run.meta.engine
/// (646, 11308, 'a2store-expectimax-1')
#[pyfunction]
pub(crate) fn read_run(py: Python<'_>, path_or_bytes: &Bound<'_, PyAny>) -> PyResult<PyRun> {
    let (run, format) = if let Ok(bytes) = path_or_bytes.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        detached(py, || decode_run(bytes)).or_raise()?
    } else {
        let path: PathBuf = path_or_bytes.extract()?;
        detached(py, || read_run_file(path)).or_raise()?
    };
    Ok(PyRun::new(run, format, None))
}

impl PyRun {
    pub(crate) fn new(run: Run, format: RunFormat, stored: Option<(Archive, u32)>) -> PyRun {
        PyRun { run, format, stored, game: OnceLock::new() }
    }

    /// Returns the positions with the predictions, which are read at the first call.
    fn game(&self, py: Python<'_>) -> PyResult<&Replay> {
        if let Some(game) = self.game.get() {
            return Ok(game);
        }
        let game = match &self.stored {
            None => Replay::of_run(None, &self.run),
            Some((archive, run_id)) => {
                cancellable(py, |cancel| Replay::of_stored(archive, *run_id, &self.run, cancel))?
            }
        };
        Ok(self.game.get_or_init(|| game))
    }

    /// Returns the exponents of the boards of an animated picture.
    fn boards_of(&self, steps: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<[u8; 16]>> {
        const MAX: usize = 1_000;
        let boards = (0..self.run.num_steps()).filter_map(|step| self.run.step(step)).map(|step| step.board);
        let boards: Vec<[u8; 16]> = boards.chain(self.run.final_board()).map(WideBoard::exps).collect();
        let board_at = |step: &Bound<'_, PyAny>| {
            place(AnyInt::part("steps", step)?, boards.len(), POSITIONS).map(|place| boards[place])
        };
        let boards = match steps {
            None => boards,
            // One more than allowed shows that there are too many.
            Some(steps) => steps.try_iter()?.take(MAX + 1).map(|step| board_at(&step?)).collect::<PyResult<_>>()?,
        };
        if !(1..=MAX).contains(&boards.len()) {
            return Err(raised(Error::argument("steps", format!("1 to {MAX} positions"), boards.len())));
        }
        Ok(boards)
    }

    fn encode(&self, format: Option<&str>) -> PyResult<Vec<u8>> {
        let format = format.map_or(Ok(self.format), str::parse).or_raise()?;
        encode_run(&self.run, format).or_raise()
    }
}

#[pymethods]
impl PyRun {
    /// The metadata of the run file.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        (&self.run, self.format).into_instance(py)
    }

    /// The board before each move: shape (steps,), uint64.
    #[getter]
    fn boards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, u64>(self.run.boards()), "<u8", None)
    }

    /// The move chosen at each step: shape (steps,), uint8, 0 to 3 in the order UDLR, 255 = unknown.
    #[getter]
    fn moves<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut moves: Vec<u8> = self.run.moves().iter().map(|&direction| direction as u8).collect();
        self.run.unknown_moves().iter().for_each(|&step| moves[step as usize] = u8::MAX);
        copied_array(py, &moves, "|u1", None)
    }

    /// The engine's expected value of each move: shape (steps, 4), float32, in the order UDLR.
    ///
    /// An illegal move has 0.0. A step without values has four NaNs.
    #[getter]
    fn ev_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, f32>(self.run.ev_values()), "<f4", Some(4))
    }

    /// The legal moves: shape (steps, 4), bool, in the order UDLR.
    ///
    /// The engine reports them; for a step without values, a2store derives them from the rules of the game.
    #[getter]
    fn ev_legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        legal_array(py, self.run.ev_legal())
    }

    /// Whether each step has values: shape (steps,), bool.
    #[getter]
    fn has_evs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, self.run.has_evs(), "|b1", None)
    }

    /// The board after the last move; ``None`` = unknown. Every run file stores it.
    #[getter]
    fn final_board(&self) -> Option<u64> {
        self.run.final_board().map(|board| board.board().0)
    }

    fn __len__(&self) -> usize {
        self.run.num_steps()
    }

    /// Encode the run as the bytes of a run file.
    ///
    /// - ``format``: ``"a2t1"`` or ``"a2run2"``; ``None`` = the format of the source. ``"a2t1"`` omits the values of
    ///   moves.
    ///
    /// Raises ``ValueError`` for an unknown format, and in A2T1 for an engine name of more than 65,535 bytes.
    ///
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> len(run.to_bytes()), len(run.to_bytes("a2t1"))
    /// (19072, 5882)
    #[pyo3(signature = (format=None))]
    fn to_bytes<'py>(&self, py: Python<'py>, format: Option<&str>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.encode(format)?))
    }

    /// Write the run to a file; replace an existing file.
    ///
    /// - ``path``: the file.
    /// - ``format``: as in ``to_bytes``; the file's name does not matter.
    ///
    /// Raises ``ValueError`` as ``to_bytes`` does, and ``OSError``.
    ///
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> run.save("run.bin", "a2t1")
    /// >>> a2store.read_run("run.bin").meta.format
    /// 'a2t1'
    #[pyo3(signature = (path, format=None))]
    fn save(&self, path: PathBuf, format: Option<&str>) -> PyResult<()> {
        let bytes = self.encode(format)?;
        std::fs::write(&path, bytes).map_err(|source| Error::io(&path, source)).or_raise()
    }

    /// Check the run against the rules of the game.
    ///
    /// Every move must be legal. Every board must follow from the previous board, its move, and one spawned 2 or 4.
    /// Every legality mask must match the rules.
    ///
    /// Returns a description of the first violation, with its step, or ``None`` for a valid run.
    ///
    /// >>> a2store.read_run("runs/run-00000.a2run2").verify() is None
    /// True
    fn verify(&self, py: Python<'_>) -> Option<String> {
        detached(py, || self.run.verify().err().map(|violation| violation.to_string()))
    }

    /// Return one position of the run: its board, the values of the moves and the move that was played.
    ///
    /// - ``index``: the index in ``boards``; ``len(run)`` is the final board. Negative indices count from the end.
    ///
    /// Raises ``IndexError`` if the run has no such position.
    ///
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> position = run.position(0)
    /// >>> position.step, position.played, position.score
    /// (0, 3, 0)
    /// >>> run.position(-1).step is None
    /// True
    fn position<'py>(&self, py: Python<'py>, index: AnyInt) -> PyResult<Bound<'py, PyAny>> {
        let game = self.game(py)?;
        let place = place(index.get(), game.positions.len(), POSITIONS)?;
        position(py, &game.positions[place])
    }

    /// Return a page that replays the run: the explorer's replay in one file.
    ///
    /// A notebook shows the page below the cell. The page needs no other package and no network.
    ///
    /// - ``index``: the index of the first position to show, as in ``position``.
    /// - ``min_loss``: the smallest ``Position.loss`` that counts as a blunder.
    /// - ``policy``: a function whose values are shown too, as in ``Archive.view``.
    ///
    /// For a run from ``Archive.run``, the page also shows the annotations of models.
    ///
    /// Raises ``IndexError`` if the run has no such position, and ``ValueError`` unless ``min_loss`` is above 0.
    /// Exceptions of ``policy`` are raised unchanged.
    ///
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> run.replay(100).save("replay.html")
    #[pyo3(signature = (index=0, *, min_loss=0.1, policy=None))]
    fn replay<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = AnyInt::int)] index: i128,
        min_loss: f32,
        policy: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let game = self.game(py)?;
        let at = place(index, game.positions.len(), POSITIONS)?;
        if !(min_loss > 0.0 && min_loss.is_finite()) {
            return Err(raised(Error::argument("min_loss", "a number above 0", min_loss)));
        }
        let policy = policy.map(|policy| CallablePolicy::new(py, policy)).transpose()?;
        let values = policy.as_ref().map(|policy| policy.values_of(py, game)).transpose()?;
        let policy = policy.as_ref().map(LivePolicy::name).zip(values);
        let archive = self.stored.as_ref().map(|(archive, _)| archive);
        let page = cancellable(py, |cancel| replay_page(archive, game, at, min_loss, policy, cancel))?;
        py.import("a2store._pages")?.call_method1("Replay", (page, game.positions.len()))
    }

    /// Write the run as an animated GIF; replace an existing file. Needs ``pillow``.
    ///
    /// - ``path``: the file.
    /// - ``steps``: the indices of the positions, as in ``position``, such as ``range(0, 100)``; at most
    ///   1,000; ``None`` = all.
    /// - ``seconds``: the duration of each frame, 0.02 to 655. Browsers slow down shorter frames.
    ///
    /// Raises ``IndexError`` for an index without a position. Raises ``ValueError`` for no positions or more than
    /// 1,000, and for ``seconds`` out of range. Raises ``OSError`` if the file cannot be written, and
    /// ``ImportError`` without ``pillow``.
    ///
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> run.to_gif("game.gif", steps=range(0, 20))
    #[pyo3(signature = (path, steps=None, *, seconds=0.2))]
    fn to_gif(&self, py: Python<'_>, path: PathBuf, steps: Option<&Bound<'_, PyAny>>, seconds: f64) -> PyResult<()> {
        let boards = self.boards_of(steps)?;
        let colors = |exp| (Palette::Classic.background(exp), Palette::text(exp));
        let colors: Vec<_> = (0..=16).map(colors).collect();
        py.import("a2store._pictures")?.call_method1("write_gif", (boards, path, seconds, colors)).map(drop)
    }

    fn __repr__(&self) -> String {
        let meta = self.run.meta();
        let engine = meta.engine.as_ref().map_or_else(|| "None".to_owned(), |engine| format!("{engine:?}"));
        format!("Run({} steps, max_score={}, engine={engine}, {})", self.run.num_steps(), meta.max_score, self.format)
    }
}
