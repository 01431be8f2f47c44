//! Games that are played with a Python policy.

use super::recorder::PyRecorder;
use crate::error::{Exception, OrRaise};
use crate::support::integers::{Bounded, Depth, NumEnvs, U64, Workers};
use crate::support::interpreter::{attached, detached};
use crate::support::interrupt::interruptible;
use crate::support::logging::{deliver, deliver_all, listen};
use crate::support::numpy::{as_array, copied_array, type_and_shape, values};
use crate::support::progress::{ProgressOption, Reporter};
use crate::support::results::{IntoInstance, is_first};
use crate::support::steps::{legal_array, tokens_array};
use a2store::board::Board;
use a2store::error::Error;
use a2store::selfplay::{Choices, PlayOptions, Player, Positions, play as play_with};
use a2store::system::cancellation::CancellationToken;
use a2store::system::workers::pool;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use rayon::prelude::*;

/// The built-in player, a policy for ``a2store.selfplay.play``.
///
/// A call takes tokens, integers of shape (B, 16), and returns moves of shape (B,), uint8. A move is 0 if no move is
/// legal. The call ignores the second argument of policies, ``legal``.
///
/// - ``depth``: the search depth in spawns, 0 to 3. Each level multiplies the time by about fifty.
/// - ``workers``: threads to play with, 1 to 1,024; ``None`` = one per core.
///
/// Raises ``ValueError`` for a depth out of range. A call raises ``TypeError`` for tokens of another type or shape, and
/// ``ValueError`` for exponents above 15.
///
/// >>> from a2store import selfplay
/// >>> player = selfplay.Player(depth=0)
/// >>> env = selfplay.VectorEnv(4, seed=1)
/// >>> player(env.tokens())
/// array([0, 0, 2, 0], dtype=uint8)
/// >>> selfplay.play(player, 10, seed=1).highest_tiles
/// array([256, 256, 256, 256, 512, 256, 256, 256, 512, 256])
#[pyclass(frozen, name = "Player", module = "a2store.selfplay")]
pub(crate) struct PyPlayer {
    /// The search depth in spawns.
    #[pyo3(get)]
    depth: u8,
    /// The number of threads, or ``None`` for one per core.
    #[pyo3(get)]
    workers: Option<usize>,
}

#[pymethods]
impl PyPlayer {
    #[new]
    #[pyo3(signature = (depth=1, *, workers=None))]
    fn new(#[pyo3(from_py_with = Depth::int)] depth: u8, workers: Option<Workers>) -> PyPlayer {
        PyPlayer { depth, workers: workers.map(Bounded::get) }
    }

    /// Returns the player's moves on boards, as a policy does; 0 where no move is legal.
    #[pyo3(signature = (tokens, legal=None))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        tokens: &Bound<'py, PyAny>,
        legal: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = legal;
        let tokens = &as_array(tokens)?;
        let (dtype, shape) = type_and_shape(tokens)?;
        if !matches!((dtype.as_str(), shape.as_slice()), ("i" | "u", [_, 16])) {
            return Err(PyTypeError::new_err("tokens: expected integers of shape (B, 16)"));
        }
        let exps: Vec<i64> = values(tokens, "int64")?;
        let player = Player::new(self.depth);
        let moves = detached(py, || {
            let of = |exps: &[i64]| {
                let exps = std::array::from_fn(|cell| u8::try_from(exps[cell]).unwrap_or(u8::MAX));
                let chosen = player.choose(Board::from_exps(exps)?);
                Ok(chosen.map_or(0, |(chosen, _)| chosen as u8))
            };
            exps.chunks_exact(16).map(of).collect::<Result<Vec<u8>, Error>>()
        })
        .or_raise()?;
        copied_array(py, &moves, "|u1", None)
    }

    fn __repr__(&self) -> String {
        format!("Player(depth={})", self.depth)
    }
}

/// Play games; the implementation of ``a2store.selfplay.play``.
#[pyfunction]
#[pyo3(name = "_play")]
pub(crate) fn play<'py>(
    py: Python<'py>,
    policy: &Bound<'_, PyAny>,
    num_games: U64,
    batch_size: NumEnvs,
    seed: U64,
    recorder: Option<Bound<'_, PyRecorder>>,
    tokens: &str,
    max_steps: Option<Bounded<u32, 1, { u32::MAX as i128 }>>,
    progress: Option<ProgressOption>,
) -> PyResult<Bound<'py, PyAny>> {
    let wide = is_first("tokens", tokens, ["int64", "uint8"]).or_raise()?;
    let recorder = recorder.as_ref().map(|recorder| &recorder.get().0);
    let mut options = PlayOptions::default();
    options.num_games = num_games.get();
    options.batch_size = batch_size.get();
    options.seed = seed.get();
    options.max_steps = max_steps.map(Bounded::get);
    let report = if let Ok(player) = policy.cast::<PyPlayer>() {
        let PyPlayer { depth, workers } = *player.get();
        let (player, pool) = (Player::new(depth), pool("play", workers).or_raise()?);
        interruptible(py, progress, |progress, cancel| {
            let choose = |&board: &Board| {
                cancel.check()?;
                Ok(player.choose(board).map_or(0, |(chosen, _)| chosen as i64))
            };
            let policy = |positions: Positions<'_>| {
                let moves = pool.install(|| positions.boards.par_iter().map(choose).collect::<Result<_, Error>>());
                moves.map(Choices::Moves)
            };
            play_with(policy, &options, recorder, progress, cancel)
        })?
    } else {
        if !policy.is_callable() {
            return Err(PyTypeError::new_err("policy: expected a callable, a torch.nn.Module or a Player"));
        }
        let policy = policy.clone().unbind();
        listen(py);
        let reporter = &Reporter::new(py, progress);
        // The interpreter is detached while games are stepped.
        let outcome = detached(py, || {
            play_with(
                |positions| {
                    attached(|py| {
                        deliver(py)?;
                        reporter.call(py)?;
                        Ok::<_, Exception>(ask(policy.bind(py), wide, positions)?)
                    })
                },
                &options,
                recorder,
                reporter,
                CancellationToken::never(),
            )
        });
        deliver_all(py);
        reporter.end(py, outcome.map_err(|error| error.0))?
    };
    report.into_instance(py)
}

/// Passes boards to a policy, in new arrays that the policy may keep.
fn ask(policy: &Bound<'_, PyAny>, wide: bool, positions: Positions<'_>) -> PyResult<Choices> {
    let py = policy.py();
    // A policy that is not written in Python never checks for signals.
    py.check_signals()?;
    let tokens = tokens_array(py, positions.boards, wide)?;
    let legal = legal_array(py, positions.legal)?;
    let answer = as_array(&policy.call1((tokens, legal))?)?;
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
