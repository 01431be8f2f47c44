//! The explorer of an archive in a browser.

use crate::error::OrRaise;
use crate::support::interpreter::{Inside, attached, detached};
use crate::support::numpy::{as_array, copied_array, type_and_shape, values};
use crate::support::steps::legal_array;
use a2store::archive::Archive;
use a2store::board::WideBoard;
use a2store::error::{Error, Result};
use a2store::system::process::lock;
use a2store_explore::{LivePolicy, Replay, View, ViewOptions};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};

/// A running explorer of an archive, from ``Archive.view``.
///
/// The server runs on background threads until ``close``, the end of a ``with`` block, or the end of the
/// process. It accepts connections from this machine only, and each request needs the token in ``url``.
///
/// >>> with archive.view(open_browser=False) as view:
/// ...     print(view.url.partition("?")[0].rpartition(":")[0])
/// http://127.0.0.1
#[pyclass(frozen, name = "View", module = "a2store")]
pub(crate) struct PyView {
    url: String,
    /// `None` once it is closed. An open view runs even if Python no longer refers to it, so it is never dropped.
    view: Mutex<Option<ManuallyDrop<View>>>,
}

/// Starts the server.
pub(crate) fn view(
    py: Python<'_>,
    archive: Archive,
    mut options: ViewOptions,
    policy: Option<Py<PyAny>>,
    open_browser: bool,
) -> PyResult<PyView> {
    if let Some(policy) = policy {
        options.policy = Some(Arc::new(CallablePolicy::new(py, policy)?));
    }
    let view = detached(py, || View::start(archive, options)).or_raise()?;
    let url = view.url();
    if open_browser {
        let _inside = Inside::new(py);
        py.import("webbrowser")?.call_method1("open", (&url,))?;
    }
    Ok(PyView { url, view: Mutex::new(Some(ManuallyDrop::new(view))) })
}

#[pymethods]
impl PyView {
    /// The address to open in a browser on this machine, with the token. It stays the same after ``close``.
    ///
    /// >>> archive.view(open_browser=False).url.startswith("http://127.0.0.1:")
    /// True
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server has ended.
    ///
    /// >>> view = archive.view(open_browser=False)
    /// >>> view.closed
    /// False
    #[getter]
    fn closed(&self) -> bool {
        lock(&self.view).is_none()
    }

    /// End the server and its open requests. If the server has ended, the call has no effect.
    ///
    /// >>> archive.view(open_browser=False).close()
    fn close(&self, py: Python<'_>) {
        // A request that calls the policy may be waiting for the interpreter's lock.
        detached(py, || drop(lock(&self.view).take().map(ManuallyDrop::into_inner)));
    }

    /// Return the view itself.
    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    /// Close the view.
    #[pyo3(signature = (*_args))]
    fn __exit__(&self, py: Python<'_>, _args: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { "closed" } else { "open" };
        format!("View({}, {state})", self.url.split('?').next().unwrap_or_default())
    }

    /// Return a link to the explorer.
    fn _repr_html_(&self) -> String {
        if self.closed() {
            return "<p>This view is closed.</p>".to_owned();
        }
        format!("<p><a href=\"{0}\" target=\"_blank\" rel=\"noopener\">Explore the archive</a></p>", self.url)
    }
}

/// A Python function as a policy.
pub(crate) struct CallablePolicy {
    name: String,
    function: Py<PyAny>,
    /// A lock that is held during a call, because a model may not support concurrent calls.
    turn: Mutex<()>,
}

impl CallablePolicy {
    pub(crate) fn new(py: Python<'_>, function: Py<PyAny>) -> PyResult<CallablePolicy> {
        let bound = function.bind(py);
        if !bound.is_callable() {
            let found = bound.get_type().name()?;
            return Err(PyTypeError::new_err(format!("policy: expected a function, found {found}")));
        }
        let of_type = || bound.get_type().name().map(|name| name.to_string());
        let name = bound.getattr("__name__").and_then(|name| name.extract()).or_else(|_| of_type())?;
        Ok(CallablePolicy { name, function, turn: Mutex::default() })
    }

    /// Returns the values for all positions of a game.
    pub(crate) fn values_of(&self, py: Python<'_>, game: &Replay) -> PyResult<Vec<[Option<f32>; 4]>> {
        let boards: Vec<WideBoard> = game.positions.iter().map(|position| position.board).collect();
        let values = boards.chunks(512).map(|boards| self.call(py, boards));
        Ok(values.collect::<PyResult<Vec<_>>>()?.concat())
    }

    fn call(&self, py: Python<'_>, boards: &[WideBoard]) -> PyResult<Vec<[Option<f32>; 4]>> {
        let tokens: Vec<u8> = boards.iter().flat_map(|board| board.exps()).collect();
        let masks: Vec<u8> = boards.iter().map(|board| board.legal_moves()).collect();
        let (tokens, legal) = (copied_array(py, &tokens, "|u1", Some(16))?, legal_array(py, &masks)?);
        let result = as_array(&self.function.bind(py).call1((tokens, legal))?)?;
        let (kind, shape) = type_and_shape(&result)?;
        match (kind.as_str(), shape.as_slice()) {
            ("i" | "u", [rows]) if *rows == boards.len() => {
                let moves: Vec<i64> = values(&result, "int64")?;
                if let Some(wrong) = moves.iter().find(|&&chosen| !(0..=3).contains(&chosen)) {
                    return Err(PyValueError::new_err(format!("policy: expected moves from 0 to 3, found {wrong}")));
                }
                let one = |chosen: i64| std::array::from_fn(|at| (at as i64 == chosen).then_some(1.0));
                Ok(moves.into_iter().map(one).collect())
            }
            ("f" | "i" | "u", [rows, 4]) if *rows == boards.len() => {
                let numbers: Vec<f32> = values(&result, "float32")?;
                let is_legal = |row: usize, at: usize| masks[row] & (1 << at) != 0;
                let row = |(row, four): (usize, &[f32])| {
                    std::array::from_fn(|at| Some(four[at]).filter(|value| value.is_finite() && is_legal(row, at)))
                };
                Ok(numbers.chunks_exact(4).enumerate().map(row).collect())
            }
            _ => {
                let rows = boards.len();
                let message = format!(
                    "policy: expected floats of shape ({rows}, 4) or moves of shape ({rows},), found kind {kind:?} of shape {shape:?}"
                );
                Err(PyValueError::new_err(message))
            }
        }
    }
}

impl LivePolicy for CallablePolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn values(&self, boards: &[WideBoard]) -> Result<Vec<[Option<f32>; 4]>> {
        let _turn = lock(&self.turn);
        attached(|py| {
            self.call(py, boards).map_err(|error| Error::argument("policy", "values of the moves", error.to_string()))
        })
    }
}
