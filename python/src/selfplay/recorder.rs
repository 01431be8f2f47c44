//! The recorder of games, `a2store.selfplay.Recorder`.

use crate::archive::PyArchive;
use crate::error::{OrRaise, raised};
use crate::support::integers::{AnyInt, Bounded, Positive, U64};
use crate::support::interpreter::detached;
use crate::support::logging::{deliver_all, logged};
use crate::support::results::IntoInstance;
use crate::support::steps::{board_from, boards_from, branches, move_from, moves_from, values_from};
use crate::support::values::seconds;
use a2store::error::Error;
use a2store::selfplay::{GameRecording, Recorder, RecorderOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyDict, PyInt, PyList, PyTuple};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A recorder of games in progress, many at once and from any number of threads.
///
/// Each game stays in memory until a *rotation* writes all ended games at once: as a complete session
/// ``<time>_model=<tag>`` in a folder, or as a commit of an archive. A push waits for a rotation only if the memory is
/// used up. A crash loses only games that no rotation has written.
///
/// - ``target``: a folder of sessions, created if it is missing, or an ``Archive``. An archive also stores values and
///   final boards; call its ``refresh`` to see the games. Every ended game becomes a run, even if it equals another
///   game; the columns ``session`` and ``source_id`` identify it. A rotation needs the memory of an ingest in addition
///   to ``max_ram_mb``.
/// - ``tag``: the model's name: letters, digits and ``._+-``, without a leading dot.
/// - ``engine``, ``model_hash``, ``meta``: further metadata of each session, together at most 131,072 bytes. ``meta``
///   maps keys to JSON values. In an archive, ``engine`` is the engine of the runs; ``None`` = the tag.
/// - ``max_games``, ``max_steps``, ``max_wall_ms``: limits on the number of games, on the kept steps of ended games,
///   and on the milliseconds since the start; ``None`` = no limit. Once a limit is reached, no game can begin. Running
///   games continue, so a session holds only whole games.
/// - ``max_ram_mb``: memory for unwritten steps in millions of bytes, at least 16. Pushes wait if the memory is used
///   up. ``None`` = half of the available memory.
/// - ``max_disk_mb``: disk space in millions of bytes, at least 1; ``None`` = no limit. The recorder rejects a game at
///   its end if it would exceed the limit.
/// - ``sample_rate``: keep one of every ``sample_rate`` steps, starting with the first; at least 1.
/// - ``rotate_steps``, ``rotate_secs``: rotate once this many steps of ended games are unwritten, at least 1, or once
///   an ended game has waited this many seconds, above 0; ``None`` = no time limit. A rotation also starts when
///   unwritten steps fill two fifths of the memory.
/// - ``moves``: whether a session keeps the moves. If so, every step needs a move. With ``False``, an existing Rust
///   reader can read the session, but ``ingest`` must derive the moves from the boards, and some stay unknown.
///
/// Raises ``ValueError`` for an option out of range, ``TypeError`` for a target of another type, and ``OSError`` if the
/// folder is not writable.
///
/// >>> from a2store import selfplay
/// >>> run = a2store.read_run("runs/run-00000.a2run2")
/// >>> with selfplay.Recorder("selfplay", tag="v1") as recorder:
/// ...     game = recorder.begin(seed=7)
/// ...     for board, move in zip(run.boards, run.moves):
/// ...         game.push(int(board), int(move))
/// ...     game_id = game.end(run.final_board)
/// >>> archive.ingest(recorder.sessions).accepted
/// 1
#[pyclass(frozen, name = "Recorder", module = "a2store.selfplay")]
pub(crate) struct PyRecorder(pub(super) Recorder);

/// A game that is being recorded. One thread at a time may use it.
///
/// Deleting a game before its end abandons it.
///
/// >>> from a2store import selfplay
/// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
/// >>> game = recorder.begin()
/// >>> game.push(0x1000_0000_0000_0001, 0)
/// >>> len(game)
/// 1
/// >>> game.end()
/// 0
#[pyclass(frozen, name = "Game", module = "a2store.selfplay")]
pub(crate) struct PyGame(Mutex<Option<GameRecording>>);

#[pymethods]
impl PyRecorder {
    #[new]
    #[pyo3(signature = (
        target, *, tag, engine=None, model_hash=None, meta=None, max_games=None, max_steps=None, max_ram_mb=None,
        max_wall_ms=None, max_disk_mb=None, sample_rate=1, rotate_steps=10_000_000, rotate_secs=600.0, moves=true
    ))]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        tag: String,
        engine: Option<String>,
        model_hash: Option<String>,
        meta: Option<&Bound<'_, PyDict>>,
        max_games: Option<U64>,
        max_steps: Option<U64>,
        max_ram_mb: Option<Bounded<u64, 16, { u64::MAX as i128 }>>,
        max_wall_ms: Option<U64>,
        max_disk_mb: Option<Positive>,
        #[pyo3(from_py_with = Bounded::<u32, 1, { u32::MAX as i128 }>::int)] sample_rate: u32,
        #[pyo3(from_py_with = Positive::int)] rotate_steps: u64,
        rotate_secs: Option<f64>,
        moves: bool,
    ) -> PyResult<PyRecorder> {
        let mut options = RecorderOptions::new(tag);
        (options.engine, options.model_hash, options.with_action) = (engine, model_hash, moves);
        options.entries = meta.map_or_else(|| Ok(Vec::new()), entries)?;
        options.max_games = max_games.map(Bounded::get);
        options.max_steps = max_steps.map(Bounded::get);
        options.max_ram_mb = max_ram_mb.map(Bounded::get);
        options.max_wall_ms = max_wall_ms.map(Bounded::get);
        options.max_disk_mb = max_disk_mb.map(Bounded::get);
        (options.sample_rate, options.rotate_steps) = (sample_rate, rotate_steps);
        options.rotate_every = rotate_secs.map(|secs| seconds("rotate_secs", secs)).transpose().or_raise()?;
        let recorder = if let Ok(archive) = target.cast::<PyArchive>() {
            let archive = archive.get().archive();
            logged(py, || Recorder::into_archive(&archive, options))
        } else if let Ok(folder) = target.extract::<PathBuf>() {
            logged(py, || Recorder::create(folder, options))
        } else {
            let found = target.get_type().name()?;
            return Err(PyTypeError::new_err(format!("target: expected a folder or an Archive, found {found}")));
        };
        Ok(PyRecorder(recorder.or_raise()?))
    }

    /// Begin a game.
    ///
    /// - ``seed``: the seed to store with the game, in ``0..2**64 - 1``; ``None`` = unknown.
    ///
    /// Raises ``RecorderLimitError`` if a limit is reached (see ``is_full``). Raises ``ValueError`` if the recorder is
    /// closed, and for the seed 2^64 - 1, which stands for an unknown seed in sessions. Raises ``OSError`` once after a
    /// failed rotation; the recorder loses no games and retries the rotation.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> game = recorder.begin(seed=7)
    /// >>> game.push(0x1000_0000_0000_0001, 0)
    /// >>> game.end()
    /// 0
    #[pyo3(signature = (seed=None))]
    fn begin(&self, py: Python<'_>, seed: Option<Bounded<u64, 0, { u64::MAX as i128 - 1 }>>) -> PyResult<PyGame> {
        let seed = seed.map(Bounded::get);
        deliver_all(py);
        Ok(PyGame(Mutex::new(Some(detached(py, || self.0.begin(seed)).or_raise()?))))
    }

    /// Write all ended games, wait until they are durable, and return the number of durable games.
    ///
    /// All games with an id below this number are durable.
    ///
    /// Raises ``OSError`` if the games cannot be written; they stay in memory. Raises ``ValueError`` if the recorder is
    /// closed, or if a forked process inherited it.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> game = recorder.begin()
    /// >>> game.push(0x1000_0000_0000_0001, 0)
    /// >>> game_id = game.end()
    /// >>> recorder.rotate()
    /// 1
    fn rotate(&self, py: Python<'_>) -> PyResult<u64> {
        logged(py, || self.0.rotate()).or_raise()
    }

    /// Write the remaining ended games, end the recording, and return the final statistics.
    ///
    /// Running games are lost. ``close`` may be called again.
    ///
    /// Raises ``OSError`` if the games cannot be written; the recorder then stays open. Raises ``ValueError`` if a
    /// forked process inherited the recorder.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> recorder.close().ended
    /// 0
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        logged(py, || self.0.close()).or_raise()?.into_instance(py)
    }

    /// The limit that was reached: ``"games"``, ``"steps"``, ``"wall"`` or ``"disk"``; else ``None``.
    #[getter]
    fn is_full(&self) -> Option<&'static str> {
        self.0.is_full()
    }

    /// The folders of the sessions that were written, in order; empty if the games go to an archive.
    #[getter]
    fn sessions(&self) -> Vec<PathBuf> {
        self.0.sessions()
    }

    /// Return the current statistics.
    ///
    /// Raises ``MemoryError`` if an allocation fails.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> game = recorder.begin()
    /// >>> recorder.stats().live
    /// 1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.stats().into_instance(py)
    }

    /// Return the recorder itself.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Close the recorder.
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self) -> String {
        let stats = self.0.stats();
        format!("Recorder({} games, {} steps)", stats.ended, stats.steps)
    }
}

impl Drop for PyRecorder {
    fn drop(&mut self) {
        // Closing writes the remaining games, with the interpreter detached.
        Python::attach(|py| detached(py, || drop(self.0.close())));
    }
}

#[pymethods]
impl PyGame {
    /// Add a step.
    ///
    /// - ``board``: the board before the move: a packed board, an int in ``0..2**64``, or its sixteen exponents.
    /// - ``move``: 0 to 3 in the order UDLR; ``None`` = unknown.
    /// - ``ev_values``: the values of the four moves in the order UDLR; ``None`` or four NaNs = no values. The recorder
    ///   ignores values of illegal moves. An archive keeps the values; a session does not. If a value is outside 0..1,
    ///   the run's column ``raw_evs`` is true.
    ///
    /// Raises ``ValueError`` for an invalid board or move, and for a missing move if the recorder keeps moves. Raises
    /// ``RecorderLimitError`` if running games alone use all memory.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder(archive, tag="v1")
    /// >>> game = recorder.begin()
    /// >>> game.push(0x1000_0000_0000_0001, 0, ev_values=[0.5, 0.0, 0.0, 0.25])
    /// >>> len(game)
    /// 1
    #[pyo3(signature = (board, r#move=None, ev_values=None))]
    fn push(
        &self,
        py: Python<'_>,
        board: &Bound<'_, PyAny>,
        r#move: Option<AnyInt>,
        ev_values: Option<[f32; 4]>,
    ) -> PyResult<()> {
        let board = board_from("board", board)?;
        let action = r#move.map(|index| move_from(index.get())).transpose()?.flatten();
        let ev = ev_values.and_then(|values| branches(board, values));
        let mut guard = self.lock(py);
        let game = open(&mut guard)?;
        if !game.has_room(1) {
            detached(py, || game.make_room(1)).or_raise()?;
        }
        game.push(board, action, ev).or_raise()
    }

    /// Add several steps, or none if any is invalid.
    ///
    /// - ``boards``: packed boards, shape (n,), uint64; or exponents, shape (n, 16).
    /// - ``moves``: shape (n,), integers, 0 to 3 in the order UDLR; ``None`` = unknown.
    /// - ``ev_values``: shape (n, 4), float32, in the order UDLR; ``None`` = no values.
    ///
    /// Raises as ``push`` does.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> run = a2store.read_run("runs/run-00000.a2run2")
    /// >>> game = recorder.begin()
    /// >>> game.push_batch(run.boards, run.moves, run.ev_values)
    /// >>> len(game)
    /// 646
    #[pyo3(signature = (boards, moves=None, ev_values=None))]
    fn push_batch(
        &self,
        py: Python<'_>,
        boards: &Bound<'_, PyAny>,
        moves: Option<&Bound<'_, PyAny>>,
        ev_values: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let boards = boards_from(boards)?;
        let len = boards.len();
        let moves = moves.map(|moves| moves_from(moves, len)).transpose()?;
        let evs = ev_values.map(|values| values_from(values, len)).transpose()?;
        let mut guard = self.lock(py);
        let game = open(&mut guard)?;
        if !game.has_room(len) {
            detached(py, || game.make_room(len)).or_raise()?;
        }
        let step = |place: usize| {
            let board = boards[place];
            let ev = evs.as_ref().and_then(|evs| branches(board, evs[place]));
            (board, moves.as_ref().and_then(|moves| moves[place]), ev)
        };
        game.push_all((0..len).map(step)).or_raise()
    }

    /// End the game and return its id in the session.
    ///
    /// - ``final_board``: the board after the last move, as for ``push``; ``None`` = unknown.
    ///
    /// The next rotation writes the game. Raises ``RecorderLimitError`` if the game would exceed ``max_disk_mb``, and
    /// ``ValueError`` if the recorder is closed; the game is then lost.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> game = recorder.begin()
    /// >>> game.push(0x1000_0000_0000_0001, 1)
    /// >>> game.end(0x0100_0000_0000_1001)
    /// 0
    #[pyo3(signature = (final_board=None))]
    fn end(&self, py: Python<'_>, final_board: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        let final_board = final_board.map(|board| board_from("final_board", board)).transpose()?;
        let mut guard = self.lock(py);
        open(&mut guard)?;
        let game = guard.take();
        drop(guard);
        detached(py, || game.map_or(Ok(0), |game| game.end(final_board))).or_raise()
    }

    /// Abandon the game and discard its steps.
    ///
    /// >>> from a2store import selfplay
    /// >>> recorder = selfplay.Recorder("selfplay", tag="v1")
    /// >>> game = recorder.begin()
    /// >>> game.abandon()
    /// >>> recorder.stats().abandoned
    /// 1
    fn abandon(&self, py: Python<'_>) {
        drop(self.lock(py).take());
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.lock(py).as_ref().map_or(0, |game| game.num_steps() as usize)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        match self.lock(py).as_ref() {
            Some(game) => format!("Game({} steps)", game.num_steps()),
            None => "Game(ended)".to_owned(),
        }
    }
}

impl PyGame {
    /// Locks the game. A thread that waits is detached, because the thread with the lock may need the interpreter.
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Option<GameRecording>> {
        self.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

fn open<'a>(game: &'a mut MutexGuard<'_, Option<GameRecording>>) -> PyResult<&'a mut GameRecording> {
    game.as_mut().ok_or_else(|| PyValueError::new_err("game: expected a running game, found one that has ended"))
}

/// Rejects integers outside 64 bits, which JSON would convert to floats.
fn check_integers(value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(dict) = value.cast::<PyDict>() {
        return dict.values().iter().try_for_each(|value| check_integers(&value));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        return value.try_iter()?.try_for_each(|value| check_integers(&value?));
    }
    if value.is_instance_of::<PyInt>() && value.extract::<i64>().is_err() && value.extract::<u64>().is_err() {
        return Err(raised(Error::argument("meta", format!("integers of {} to {}", i64::MIN, u64::MAX), value)));
    }
    Ok(())
}

/// Converts the metadata of a session to JSON values by key.
fn entries(meta: &Bound<'_, PyDict>) -> PyResult<Vec<(String, serde_json::Value)>> {
    // `json.dumps` rejects cyclic values.
    let text: String = meta.py().import("json")?.call_method1("dumps", (meta,))?.extract()?;
    check_integers(meta.as_any())?;
    let value: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).map_err(|error| PyValueError::new_err(format!("meta: expected JSON, {error}")))?;
    Ok(value.into_iter().collect())
}
