//! Engines of tasks that Python brings: anything with `submit`, as in `concurrent.futures`.

use crate::support::interpreter::attached;
use a2store::error::{Error, ErrorKind, Result};
use a2store::query::{Cluster, Engine, Query, TaskCancel, TaskDone};
use a2store::system::process::lock;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex};

/// An engine whose tasks are futures of Python.
#[derive(Debug)]
struct PyEngine {
    name: String,
    num_workers: usize,
    /// Starts a task, given its message, and returns its future.
    submit: Py<PyAny>,
}

impl Engine for PyEngine {
    fn name(&self) -> &str {
        &self.name
    }

    fn num_workers(&self) -> usize {
        self.num_workers
    }

    fn start(&self, index: usize, task: Vec<u8>, done: TaskDone) -> Result<TaskCancel> {
        attached(|py| {
            let start = || {
                let future = self.submit.bind(py).call1((PyBytes::new(py, &task),))?;
                let done = FutureDone { index, done: Mutex::new(Some(done)) };
                future.call_method1("add_done_callback", (done,))?;
                let future = future.unbind();
                // A future that cannot be cancelled runs to its end, and its result is dropped.
                let cancel = move || attached(|py| _ = future.bind(py).call_method0("cancel"));
                Ok(Box::new(cancel) as TaskCancel)
            };
            start().map_err(|error: PyErr| failed(index, error.to_string(), Arc::new(EngineError(error))))
        })
    }
}

/// The callback of a future that has ended.
#[pyclass(frozen)]
struct FutureDone {
    index: usize,
    done: Mutex<Option<TaskDone>>,
}

#[pymethods]
impl FutureDone {
    fn __call__(&self, future: &Bound<'_, PyAny>) {
        let Some(done) = lock(&self.done).take() else { return };
        match future.call_method0("result") {
            Err(error) => done(Err(failed(self.index, error.to_string(), Arc::new(EngineError(error))))),
            // A worker returns an exception of its own, so that it differs from those of the engine.
            Ok(found) if found.is_instance_of::<PyException>() => {
                let error = PyErr::from_value(found);
                done(Err(failed(self.index, error.to_string(), Arc::new(error))));
            }
            Ok(found) => {
                let bytes = found.extract::<&[u8]>();
                done(bytes.map_err(|error| failed(self.index, error.to_string(), Arc::new(EngineError(error.into())))));
            }
        }
    }
}

/// An exception that an engine raised.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EngineError(pub(super) PyErr);

fn failed(index: usize, message: String, source: Arc<dyn std::error::Error + Send + Sync>) -> Error {
    ErrorKind::Task { index, message, source }.into()
}

/// Returns a query on an engine of `a2store.cluster`.
pub(crate) fn on(query: &Query, engine: &Bound<'_, PyAny>, num_tasks: Option<usize>) -> PyResult<Query> {
    let own = PyEngine {
        name: engine.getattr("name")?.extract()?,
        num_workers: engine.getattr("workers")?.extract()?,
        submit: engine.getattr("submit")?.unbind(),
    };
    Ok(query.on(Cluster::new(Arc::new(own), num_tasks, engine.getattr("threads")?.extract()?)))
}
