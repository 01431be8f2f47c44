//! Games that are played with a Python policy, or stepped by Python.

use super::interrupt::interruptible;
use super::memory::{array, copied_array};
use super::selfplay::PyRecorder;
use crate::board::Board;
use crate::error::Error;
use crate::progress::{Progress, ProgressBar};
use crate::selfplay::{
    Choices, IllegalMoves, PlayOptions, PlayReport, Player, Positions, VectorEnv, play as play_with, play_games,
    to_moves, write_legal, write_tokens,
};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyAnyMethods, PyByteArray, PyType};

pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyPlayer>()?;
    module.add_class::<PyPlayResult>()?;
    module.add_class::<PyVectorEnv>()?;
    module.add_function(wrap_pyfunction!(play, module)?)
}

/// The built-in player.
#[pyclass(frozen, name = "Player", module = "a2store.selfplay")]
pub(super) struct PyPlayer {
    #[pyo3(get)]
    depth: u8,
    #[pyo3(get)]
    workers: Option<usize>,
}

#[pymethods]
impl PyPlayer {
    #[new]
    #[pyo3(signature = (depth=1, *, workers=None))]
    fn new(depth: u8, workers: Option<usize>) -> PyResult<PyPlayer> {
        if depth > 3 {
            return Err(Error::argument("depth", "0..=3", depth).into());
        }
        Ok(PyPlayer { depth, workers })
    }

    /// Returns the player's moves on boards, as a policy does; 0 where no move is legal.
    #[pyo3(signature = (tokens, legal=None))]
    #[allow(clippy::needless_pass_by_value)] // The signature of policies.
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        legal: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = legal;
        let tokens = &array_of(tokens)?;
        let (dtype, shape) = type_and_shape(tokens)?;
        if !matches!((dtype.as_str(), shape.as_slice()), ("i" | "u", [_, 16])) {
            return Err(PyTypeError::new_err("tokens: expected integers of shape (B, 16)"));
        }
        let exps: Vec<i64> = values(tokens, "int64")?;
        let player = Player::new(self.depth);
        let moves = py.detach(|| {
            let of = |exps: &[i64]| {
                let exps = std::array::from_fn(|cell| u8::try_from(exps[cell]).unwrap_or(u8::MAX));
                let chosen = player.choose(Board::from_exps(exps)?);
                Ok(chosen.map_or(0, |(chosen, _)| chosen as u8))
            };
            exps.chunks_exact(16).map(of).collect::<Result<Vec<u8>, Error>>()
        })?;
        copied_array(py, &moves, "|u1", None)
    }

    fn __repr__(&self) -> String {
        format!("Player(depth={})", self.depth)
    }
}

/// The result of playing games.
#[pyclass(frozen, name = "PlayResult", module = "a2store.selfplay")]
pub(super) struct PyPlayResult {
    report: PlayReport,
}

impl PyPlayResult {
    fn column<'py, T: bytemuck::NoUninit>(
        &self,
        py: Python<'py>,
        dtype: &str,
        of: impl FnMut(&crate::selfplay::PlayedGame) -> T,
    ) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.report.games.iter().map(of).collect::<Vec<T>>(), dtype, None)
    }
}

#[pymethods]
impl PyPlayResult {
    fn __len__(&self) -> usize {
        self.report.games.len()
    }

    #[getter]
    fn games<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "=u8", |game| game.number)
    }

    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "=i8", |game| i64::from(game.score))
    }

    #[getter]
    fn highest_tiles<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "=i8", |game| i64::from(game.final_board.highest_tile()))
    }

    #[getter]
    fn num_steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "=i8", |game| i64::from(game.num_steps))
    }

    #[getter]
    fn final_boards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "=u8", |game| game.final_board.0)
    }

    #[getter]
    fn terminated<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, "|b1", |game| u8::from(game.final_board.is_terminal()))
    }

    #[getter]
    fn total_steps(&self) -> u64 {
        self.report.num_steps
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.report.elapsed.as_secs_f64()
    }

    #[getter]
    fn steps_per_second(&self) -> f64 {
        // The maximum avoids a division by zero.
        self.report.num_steps as f64 / self.seconds().max(1e-9)
    }

    #[getter]
    fn stopped(&self) -> Option<&str> {
        self.report.stopped.as_deref()
    }

    fn __repr__(&self) -> String {
        let games = &self.report.games;
        let sum: f64 = games.iter().map(|game| f64::from(game.score)).sum();
        let mean = if games.is_empty() { f64::NAN } else { sum / games.len() as f64 };
        let steps = self.report.num_steps;
        format!("PlayResult({} games, {steps} steps, mean score {mean:.1})", games.len())
    }
}

/// Plays games, for `a2store.selfplay.play`. `tokens` is the type of the policy's boards.
#[pyfunction]
#[pyo3(name = "_play")]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // The signature is Python's.
pub(super) fn play(
    py: Python<'_>,
    policy: &Bound<'_, PyAny>,
    num_games: u64,
    batch_size: usize,
    seed: u64,
    recorder: Option<Bound<'_, PyRecorder>>,
    tokens: &str,
    max_steps: Option<u32>,
    temperature: f32,
    progress: Option<bool>,
) -> PyResult<PyPlayResult> {
    let wide = match tokens {
        "uint8" => false,
        "int64" => true,
        _ => return Err(Error::argument("tokens", "\"uint8\" or \"int64\"", format!("{tokens:?}")).into()),
    };
    let recorder = recorder.as_ref().map(|recorder| recorder.get().recorder());
    let mut options = PlayOptions { num_games, batch_size, seed, max_steps, temperature, workers: None };
    let report = if let Ok(player) = policy.cast::<PyPlayer>() {
        let player = player.get();
        options.workers = player.workers;
        let player = Player::new(player.depth);
        interruptible(py, progress, |progress| play_games(player, &options, recorder, progress))?
    } else {
        if !policy.is_callable() {
            return Err(PyTypeError::new_err("policy: expected a callable, a torch.nn.Module or a Player"));
        }
        let policy = policy.clone().unbind();
        let bar = if progress == Some(false) { ProgressBar::hidden() } else { ProgressBar::for_terminal() };
        let bar: &dyn Progress = &bar;
        // The interpreter is detached while games are stepped.
        py.detach(|| {
            play_with(|positions| Python::attach(|py| ask(policy.bind(py), wide, positions)), &options, recorder, bar)
        })?
    };
    Ok(PyPlayResult { report })
}

/// Calls a policy with boards, in new arrays that it may keep.
fn ask(policy: &Bound<'_, PyAny>, wide: bool, positions: Positions<'_>) -> PyResult<Choices> {
    let py = policy.py();
    // A policy that is not written in Python never checks for signals.
    py.check_signals()?;
    let tokens = tokens_of(py, positions.boards, wide)?;
    let legal = legal_of(py, positions.legal)?;
    let answer = array_of(&policy.call1((tokens, legal))?)?;
    let (kind, shape) = type_and_shape(&answer)?;
    match (kind.as_str(), shape.as_slice()) {
        ("i" | "u", [_]) => Ok(Choices::Moves(values(&answer, "int64")?)),
        ("f", [_, 4]) => Ok(Choices::Logits(bytemuck::cast_slice(&values::<f32>(&answer, "float32")?).to_vec())),
        _ => {
            let rows = positions.boards.len();
            let found = format!("{} of shape {}", answer.getattr("dtype")?, answer.getattr("shape")?);
            let expected = format!("moves, integers of shape ({rows},), or logits, floats of shape ({rows}, 4)");
            Err(PyTypeError::new_err(format!("policy: expected {expected}, found {found}")))
        }
    }
}

/// Returns a policy's answer as a NumPy array. It may be an array, a PyTorch tensor on any device, or any array-like.
fn array_of<'py>(answer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = answer.py();
    if answer.is_exact_instance(NDARRAY.import(py, "numpy", "ndarray")?) {
        return Ok(answer.clone());
    }
    if answer.hasattr("detach")? && answer.hasattr("is_floating_point")? {
        let tensor = answer.call_method0("detach")?.call_method0("cpu")?;
        // NumPy does not support all floating-point types of PyTorch.
        let is_float = tensor.call_method0("is_floating_point")?.is_truthy()?;
        let tensor = if is_float { tensor.call_method0("float")? } else { tensor };
        return tensor.call_method0("numpy");
    }
    py.import("numpy")?.call_method1("asarray", (answer,))
}

fn type_and_shape(array: &Bound<'_, PyAny>) -> PyResult<(String, Vec<usize>)> {
    Ok((array.getattr("dtype")?.getattr("kind")?.extract()?, array.getattr("shape")?.extract()?))
}

/// Returns the values of an array, converted to a type that NumPy and Rust share.
fn values<T: Element>(array: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Vec<T>> {
    static CONTIGUOUS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = array.py();
    let array = CONTIGUOUS.import(py, "numpy", "ascontiguousarray")?.call1((array, dtype))?;
    PyBuffer::<T>::get(&array)?.to_vec(py)
}

fn tokens_of<'py>(py: Python<'py>, boards: &[Board], wide: bool) -> PyResult<Bound<'py, PyAny>> {
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

fn legal_of<'py>(py: Python<'py>, masks: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = PyByteArray::new_with(py, 4 * masks.len(), |bytes| {
        write_legal(masks, bytemuck::cast_slice_mut(bytes));
        Ok(())
    })?;
    array(bytes.as_any(), "|b1", 0, (masks.len(), Some(4)))
}

/// A vector of games.
#[pyclass(name = "VectorEnv", module = "a2store.selfplay")]
pub(super) struct PyVectorEnv {
    env: VectorEnv,
}

#[pymethods]
impl PyVectorEnv {
    #[new]
    #[pyo3(signature = (num_envs, seed=0))]
    fn new(py: Python<'_>, num_envs: usize, seed: u64) -> PyResult<PyVectorEnv> {
        Ok(PyVectorEnv { env: py.detach(|| VectorEnv::new(num_envs, seed))? })
    }

    fn __len__(&self) -> usize {
        self.env.len()
    }

    #[getter]
    fn num_envs(&self) -> usize {
        self.env.len()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.env.seed()
    }

    #[pyo3(signature = (dtype="uint8"))]
    fn tokens<'py>(&self, py: Python<'py>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        match dtype {
            "uint8" => tokens_of(py, self.env.boards(), false),
            "int64" => tokens_of(py, self.env.boards(), true),
            _ => Err(Error::argument("dtype", "\"uint8\" or \"int64\"", format!("{dtype:?}")).into()),
        }
    }

    fn legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        legal_of(py, self.env.legal_moves())
    }

    #[getter]
    fn boards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, u64>(self.env.boards()), "=u8", None)
    }

    #[getter]
    fn over<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.over_bytes(), "|b1", None)
    }

    #[getter]
    fn games<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.env.numbers().collect::<Vec<_>>(), "=u8", None)
    }

    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.env.scores().map(i64::from).collect::<Vec<_>>(), "=i8", None)
    }

    #[getter]
    fn num_steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.env.num_steps().map(i64::from).collect::<Vec<_>>(), "=i8", None)
    }

    /// Makes a move in each game that is not over.
    #[pyo3(signature = (moves, *, illegal="raise"))]
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        moves: &Bound<'py, PyAny>,
        illegal: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let illegal = match illegal {
            "raise" => IllegalMoves::Refused,
            "ignore" => IllegalMoves::Ignored,
            _ => return Err(Error::argument("illegal", "\"raise\" or \"ignore\"", format!("{illegal:?}")).into()),
        };
        let moves = array_of(moves)?;
        let (kind, shape) = type_and_shape(&moves)?;
        if !matches!((kind.as_str(), shape.as_slice()), ("i" | "u", [_])) {
            let found = format!("{} of shape {}", moves.getattr("dtype")?, moves.getattr("shape")?);
            return Err(PyTypeError::new_err(format!("moves: expected integers of one dimension, found {found}")));
        }
        let numbers = values(&moves, "int64")?;
        let env = &mut self.env;
        let rewards = py.detach(|| {
            let (mut moves, mut rewards) = (Vec::with_capacity(numbers.len()), vec![0; env.len()]);
            to_moves(&numbers, &mut moves)?;
            env.step(&moves, illegal, &mut rewards).map(|()| rewards)
        })?;
        Ok((copied_array(py, &rewards, "=u4", None)?, copied_array(py, &self.over_bytes(), "|b1", None)?))
    }

    /// Begins the next games in the slots that a mask selects, or whose game is over.
    #[pyo3(signature = (mask=None))]
    fn restart(&mut self, mask: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let mask = match mask {
            None => self.over_bytes(),
            Some(mask) => {
                let (kind, shape) = type_and_shape(mask)?;
                if kind != "b" || shape != [self.env.len()] {
                    let expected = format!("bools of shape ({},)", self.env.len());
                    return Err(PyValueError::new_err(format!("mask: expected {expected}, found shape {shape:?}")));
                }
                values::<u8>(mask, "uint8")?
            }
        };
        let slots = mask.iter().enumerate().filter(|&(_, &is_set)| is_set != 0);
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        slots.iter().for_each(|&slot| self.env.restart(slot));
        Ok(slots.len())
    }

    /// Begins the first games of a seed again.
    #[pyo3(signature = (seed=None))]
    fn reset(&mut self, seed: Option<u64>) {
        self.env.reset(seed.unwrap_or(self.env.seed()));
    }

    fn __repr__(&self) -> String {
        format!("VectorEnv(num_envs={}, seed={})", self.env.len(), self.env.seed())
    }
}

impl PyVectorEnv {
    fn over_bytes(&self) -> Vec<u8> {
        self.env.legal_moves().iter().map(|&legal| u8::from(legal == 0)).collect()
    }
}
