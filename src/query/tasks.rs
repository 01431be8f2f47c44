//! Engines that run tasks of queries, and what a query and its tasks have in common.

use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// An engine that runs tasks of a query in other processes or on other machines, such as a cluster's scheduler.
///
/// A task is a message for [`Query::run_task`](crate::Query::run_task) of the same query, which its worker makes from the
/// same archive, text, parameters and options. A task only reads, so the engine may repeat it, or run it twice.
pub trait Engine: fmt::Debug + Send + Sync {
    /// Returns a name for people.
    fn name(&self) -> &str;

    /// Returns the number of tasks that run at once.
    fn num_workers(&self) -> usize;

    /// Starts a task, and returns a call that stops it. `done` is called once, from any thread, with the result of
    /// [`Query::run_task`](crate::Query::run_task).
    ///
    /// # Errors
    /// [`ErrorKind::Task`](crate::ErrorKind::Task) if the engine does not accept the task.
    fn start(&self, index: usize, task: Vec<u8>, done: TaskDone) -> Result<TaskCancel>;
}

/// A call with the result of a task.
pub type TaskDone = Box<dyn FnOnce(Result<&[u8]>) + Send>;

/// A call that stops a task if the engine can.
pub type TaskCancel = Box<dyn Fn() + Send + Sync>;

/// An engine for [`Query::on`](crate::Query::on), and how a query is divided there.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(in crate::query) engine: Arc<dyn Engine>,
    /// The number of tasks; `None` = as many as the number of rows justifies, at most 4 for each worker.
    pub(in crate::query) num_tasks: Option<usize>,
    pub(in crate::query) threads: usize,
    /// What changed the query since it was given to the engine.
    pub(in crate::query) changes: Vec<Change>,
}

impl Cluster {
    /// Makes tasks for an engine. `num_tasks` is their number; `None` = up to 4 for each worker, of at least 1,048,576
    /// rows each. Each task may use `threads` threads.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, num_tasks: Option<usize>, threads: usize) -> Cluster {
        Cluster { engine, num_tasks, threads, changes: Vec::new() }
    }
}

/// How scans are divided, which all processes must do in the same way. It is a session extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::query) struct Division {
    /// The number of partitions of scans of `steps` and `annotations`.
    pub(in crate::query) partitions: usize,
    /// The number of partitions of all other nodes.
    pub(in crate::query) others: usize,
}

/// What changed a query after it was made from its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::query) enum Change {
    Count,
    Columns(Vec<usize>),
    Limit(u64),
    Condition(String),
}
