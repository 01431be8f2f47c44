//! The vector of games that Python steps, `a2store.selfplay.VectorEnv`.

use crate::error::OrRaise;
use crate::support::integers::{Bounded, NumEnvs, U64, exact_integer};
use crate::support::interpreter::detached;
use crate::support::numpy::{as_array, copied_array, type_and_shape, values};
use crate::support::results::is_first;
use crate::support::steps::{legal_array, tokens_array};
use a2store::selfplay::{IllegalMoves, VectorEnv, push_moves};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// A vector of games, one per slot, in which the caller chooses the moves.
///
/// A game depends on the seed, its number and the moves made in it. A slot whose game is over ignores moves until
/// ``restart`` begins the next game in it. All returned arrays are copies.
///
/// - ``num_envs``: the number of slots, in ``1..=2**24``.
/// - ``seed``: the seed of all games, in ``0..2**64``.
///
/// Raises ``ValueError`` if ``num_envs`` is out of range.
///
/// >>> from a2store import selfplay
/// >>> env = selfplay.VectorEnv(1024, seed=1)
/// >>> for _ in range(100):
/// ...     rewards, over = env.step(env.legal().argmax(axis=1))
/// ...     finished = env.restart()
/// >>> rewards.dtype, env.tokens().shape
/// (dtype('uint32'), (1024, 16))
#[pyclass(name = "VectorEnv", module = "a2store.selfplay")]
pub(crate) struct PyVectorEnv {
    env: VectorEnv,
}

#[pymethods]
impl PyVectorEnv {
    #[new]
    #[pyo3(signature = (num_envs, seed=0))]
    fn new(py: Python<'_>, num_envs: NumEnvs, #[pyo3(from_py_with = U64::int)] seed: u64) -> PyResult<PyVectorEnv> {
        Ok(PyVectorEnv { env: detached(py, || VectorEnv::new(num_envs.get(), seed)).or_raise()? })
    }

    fn __len__(&self) -> usize {
        self.env.len()
    }

    /// The number of slots.
    #[getter]
    fn num_envs(&self) -> usize {
        self.env.len()
    }

    /// The seed of all games.
    #[getter]
    fn seed(&self) -> u64 {
        self.env.seed()
    }

    /// Return the exponents of the boards, row by row: shape (n, 16).
    ///
    /// - ``dtype``: ``"uint8"`` or ``"int64"``.
    ///
    /// Raises ``ValueError`` for another type.
    ///
    /// >>> from a2store import selfplay
    /// >>> selfplay.VectorEnv(4, seed=1).tokens("int64").shape
    /// (4, 16)
    #[pyo3(signature = (dtype="uint8"))]
    fn tokens<'py>(&self, py: Python<'py>, dtype: &str) -> PyResult<Bound<'py, PyAny>> {
        let wide = is_first("dtype", dtype, ["int64", "uint8"]).or_raise()?;
        tokens_array(py, self.env.boards(), wide)
    }

    /// Return whether up, down, left and right are legal: shape (n, 4), bool; all false if the game is over.
    ///
    /// Raises ``MemoryError`` if an allocation fails.
    ///
    /// >>> from a2store import selfplay
    /// >>> selfplay.VectorEnv(2, seed=1).legal()
    /// array([[ True,  True,  True,  True],
    ///        [ True,  True,  True,  True]])
    fn legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        legal_array(py, self.env.legal_moves())
    }

    /// The boards: shape (n,), uint64.
    #[getter]
    fn boards<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, bytemuck::cast_slice::<_, u64>(self.env.boards()), "=u8", None)
    }

    /// Whether the game in each slot is over: shape (n,), bool.
    #[getter]
    fn over<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.over_bytes(), "|b1", None)
    }

    /// The number of the game in each slot: shape (n,), uint64. Games are numbered in the order of their start.
    #[getter]
    fn games<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.env.games().iter().map(|game| game.number).collect::<Vec<_>>(), "=u8", None)
    }

    /// The score of each game so far, the sum over its merges: shape (n,), int64.
    #[getter]
    fn scores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        copied_array(py, &self.env.games().iter().map(|game| i64::from(game.score)).collect::<Vec<_>>(), "=i8", None)
    }

    /// The number of steps of each game so far: shape (n,), int64.
    #[getter]
    fn num_steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let counts: Vec<i64> = self.env.games().iter().map(|game| game.num_steps.into()).collect();
        copied_array(py, &counts, "=i8", None)
    }

    /// Make a move in each game that is not over; return (rewards, over).
    ///
    /// ``rewards`` has the scores of the moves, and ``over`` says which games are now over. Both have shape (n,).
    ///
    /// - ``moves``: shape (n,), integers, 0 to 3.
    /// - ``illegal``: the effect of a move that does not change its board. ``"raise"`` raises before any game is
    ///   stepped; ``"ignore"`` ignores the move.
    ///
    /// Raises ``ValueError`` for an illegal move, with its row and board, and for a wrong number of moves. Raises
    /// ``TypeError`` unless the moves are one-dimensional integers.
    ///
    /// >>> from a2store import selfplay
    /// >>> env = selfplay.VectorEnv(2, seed=1)
    /// >>> rewards, over = env.step(env.legal().argmax(axis=1))
    /// >>> rewards, over
    /// (array([0, 0], dtype=uint32), array([False, False]))
    #[pyo3(signature = (moves, *, illegal="raise"))]
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        moves: &Bound<'py, PyAny>,
        illegal: &str,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let raises = is_first("illegal", illegal, ["raise", "ignore"]).or_raise()?;
        let illegal = if raises { IllegalMoves::Refused } else { IllegalMoves::Ignored };
        let moves = as_array(moves)?;
        let (kind, shape) = type_and_shape(&moves)?;
        if matches!(kind.as_str(), "u" | "O") && shape.len() == 1 {
            // These may not fit int64.
            moves.try_iter()?.try_for_each(|number| match number? {
                number if exact_integer(&number).is_none() => Ok(()),
                number => Bounded::<u8, 0, 3>::part("moves", &number).map(drop),
            })?;
        }
        if !matches!((kind.as_str(), shape.as_slice()), ("i" | "u", [_])) {
            let found = format!("{} of shape {}", moves.getattr("dtype")?, moves.getattr("shape")?);
            return Err(PyTypeError::new_err(format!("moves: expected integers of one dimension, found {found}")));
        }
        let numbers = values(&moves, "int64")?;
        let env = &mut self.env;
        let rewards = detached(py, || {
            let mut moves = Vec::with_capacity(numbers.len());
            push_moves(&numbers, &mut moves)?;
            env.step(&moves, illegal)
        })
        .or_raise()?;
        Ok((copied_array(py, &rewards, "=u4", None)?, copied_array(py, &self.over_bytes(), "|b1", None)?))
    }

    /// Begin the next games in some slots and return their number.
    ///
    /// - ``mask``: shape (n,), bool: true for the slots to restart, even if their game is not over. ``None`` = the
    ///   slots whose game is over.
    ///
    /// Raises ``ValueError`` for a mask of another shape or type.
    ///
    /// >>> from a2store import selfplay
    /// >>> env = selfplay.VectorEnv(4, seed=1)
    /// >>> env.restart(np.array([True, False, False, True]))
    /// 2
    /// >>> env.games
    /// array([4, 1, 2, 5], dtype=uint64)
    #[pyo3(signature = (mask=None))]
    fn restart(&mut self, mask: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
        let mask = match mask {
            None => self.over_bytes(),
            Some(mask) => {
                let mask = as_array(mask)?;
                let (kind, shape) = type_and_shape(&mask)?;
                if kind != "b" || shape != [self.env.len()] {
                    let expected = format!("bools of shape ({},)", self.env.len());
                    return Err(PyValueError::new_err(format!("mask: expected {expected}, found shape {shape:?}")));
                }
                values::<u8>(&mask, "uint8")?
            }
        };
        let slots = mask.iter().enumerate().filter(|&(_, &is_set)| is_set != 0);
        let slots: Vec<usize> = slots.map(|(slot, _)| slot).collect();
        slots.iter().for_each(|&slot| self.env.restart(slot));
        Ok(slots.len())
    }

    /// Begin the first games of a seed again.
    ///
    /// - ``seed``: the seed of all games, in ``0..2**64``; ``None`` = the current seed.
    ///
    /// Raises ``ValueError`` for a seed out of range.
    ///
    /// >>> from a2store import selfplay
    /// >>> env = selfplay.VectorEnv(4, seed=1)
    /// >>> env.reset(seed=2)
    /// >>> env.seed
    /// 2
    #[pyo3(signature = (seed=None))]
    fn reset(&mut self, seed: Option<U64>) -> PyResult<()> {
        self.env = VectorEnv::new(self.env.len(), seed.map_or(self.env.seed(), Bounded::get)).or_raise()?;
        Ok(())
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
