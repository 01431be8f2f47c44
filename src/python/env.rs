//! The vector of games that Python steps, `a2store.selfplay.VectorEnv`.

use super::numpy::{as_array, copied_array, type_and_shape, values};
use super::steps::{legal_array, tokens_array};
use crate::error::Error;
use crate::selfplay::{IllegalMoves, VectorEnv, to_moves};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

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
            "uint8" => tokens_array(py, self.env.boards(), false),
            "int64" => tokens_array(py, self.env.boards(), true),
            _ => Err(Error::argument("dtype", "\"uint8\" or \"int64\"", format!("{dtype:?}")).into()),
        }
    }

    fn legal<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        legal_array(py, self.env.legal_moves())
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
        let moves = as_array(moves)?;
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
