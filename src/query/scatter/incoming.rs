//! The rows that tasks return, in place of a cut.

use super::cut::Plan;
use super::message::{self, Blocks, read_rows};
use super::task::{Divided, ResultHeader, TaskHeader, scalars_of};
use crate::error::{ErrorKind, Result};
use crate::query::engine::errors::{external, query_error};
use crate::query::tasks::TaskCancel;
use crate::system::cancellation::CancellationToken;
use crate::system::process::{ProcessId, lock};
use crate::system::runtime::runtime;
use arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as DataFusionResult, internal_datafusion_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::future::{BoxFuture, FutureExt, Shared};
use futures::{StreamExt, TryStreamExt};
use std::collections::HashMap;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tracing::warn;

/// The tasks of some cuts of one execution. Each starts when its rows are asked for, or shortly before.
struct Tasks {
    divided: Arc<Divided>,
    /// The header of the tasks, but for their index.
    header: TaskHeader,
    cancel: CancellationToken,
    state: Mutex<TasksState>,
    /// A task that runs here holds this lock.
    runs_here: Mutex<()>,
}

#[derive(Default)]
struct TasksState {
    /// The values of scalar subqueries as a row.
    scalars: Option<RecordBatch>,
    started: HashMap<usize, Outcome>,
    running: HashMap<usize, TaskCancel>,
}

type Outcome = Shared<BoxFuture<'static, Result<Arc<TaskRows>, Arc<DataFusionError>>>>;

/// The rows that a task returned.
struct TaskRows {
    num_written: u64,
    texts: Vec<Vec<String>>,
    /// The rows of each cut and partition, until they are read.
    parts: Mutex<HashMap<(usize, usize), Part>>,
}

/// The rows of one partition of a cut, and the memory that they count for.
struct Part {
    rows: Vec<u8>,
    memory: MemoryReservation,
}

impl Tasks {
    /// Returns the task that reads a partition of a cut.
    fn task_of(&self, cut: usize, partition: usize) -> usize {
        // It is the last one whose partitions begin there or before.
        ((partition + 1) * self.header.num_tasks - 1) / self.divided.cuts[cut].num_partitions()
    }

    /// Returns the rows of a task. Starts it and the next tasks, as many as the engine has workers.
    fn rows(self: &Arc<Tasks>, index: usize, context: &Arc<TaskContext>) -> DataFusionResult<Outcome> {
        let mut state = lock(&self.state);
        if state.scalars.is_none() {
            state.scalars = scalars_of(&self.divided.cuts, &self.header)?;
        }
        let end = (index + 1).saturating_add(self.divided.engine.num_workers()).min(self.header.num_tasks);
        for next in index..end {
            if !state.started.contains_key(&next) {
                let outcome = Arc::clone(self).start(next, state.scalars.clone(), Arc::clone(context));
                // The task runs even if nothing waits for its rows yet.
                let outcome = outcome.map(|outcome| outcome.map(Arc::new).map_err(Arc::new)).boxed().shared();
                tokio::spawn(outcome.clone().map(drop));
                state.started.insert(next, outcome);
            }
        }
        let outcome = state.started.get(&index).cloned();
        outcome.ok_or_else(|| internal_datafusion_err!("task {index} of {}", self.header.num_tasks))
    }

    async fn start(
        self: Arc<Tasks>,
        index: usize,
        scalars: Option<RecordBatch>,
        context: Arc<TaskContext>,
    ) -> DataFusionResult<TaskRows> {
        let header = TaskHeader { index, ..self.header.clone() };
        let mut blocks = Blocks::default();
        if let Some(scalars) = scalars {
            let mut row = blocks.begin(&scalars.schema())?;
            row.write(&scalars)?;
            blocks.end(row)?;
        }
        let task = blocks.with_header(&header).map_err(external)?;
        let (sender, receiver) = oneshot::channel();
        let pool = Arc::clone(context.memory_pool());
        // The memory is reserved before the bytes are copied.
        let done = move |outcome: Result<&[u8]>| {
            _ = sender.send(outcome.map_err(external).and_then(|bytes| TaskRows::of(bytes, &pool)));
        };
        // Starting a task may wait for the lock of an interpreter.
        let engine = Arc::clone(&self.divided.engine);
        let started = tokio::task::spawn_blocking(move || engine.start(index, task, Box::new(done)));
        let running = started.await.map_err(|error| DataFusionError::External(error.into()))?.map_err(external)?;
        lock(&self.state).running.insert(index, running);
        if self.cancel.is_cancelled() {
            // The query ended while the task started.
            let tasks = Arc::clone(&self);
            tokio::task::spawn_blocking(move || tasks.cancel());
        }
        let received = receiver.await.unwrap_or_else(|dropped| {
            let (message, source) = ("the engine dropped it".to_owned(), Arc::new(dropped));
            Err(external(ErrorKind::Task { index, message, source }.into()))
        });
        lock(&self.state).running.remove(&index);
        if let Some(rows) = received? {
            return Ok(rows);
        }
        warn!(target: "a2store::query", index, "a task runs here, because its worker planned the query differently");
        let tasks = Arc::clone(&self);
        let run = move || {
            let Divided { query, execution, cuts, limits, .. } = &*tasks.divided;
            let _alone = lock(&tasks.runs_here);
            query.run_cuts(execution, cuts, &header, true, limits, &tasks.cancel)
        };
        let ran = tokio::task::spawn_blocking(run).await.map_err(|error| DataFusionError::External(error.into()))?;
        let rows = TaskRows::of(&ran.map_err(external)?, context.memory_pool())?;
        rows.ok_or_else(|| internal_datafusion_err!("a task lacks its plan"))
    }

    /// Cancels all tasks that have not ended.
    pub(super) fn cancel(&self) {
        self.cancel.cancel();
        let running = std::mem::take(&mut lock(&self.state).running);
        running.into_values().for_each(|cancel| cancel());
    }
}

impl TaskRows {
    /// Copies the rows out of a message; returns `None` if the worker's plan was another.
    fn of(bytes: &[u8], pool: &Arc<dyn MemoryPool>) -> DataFusionResult<Option<TaskRows>> {
        let (result, blocks): (ResultHeader, _) = message::parse(bytes).map_err(external)?;
        let mut parts = HashMap::new();
        for (part, block) in result.parts.into_iter().zip(blocks) {
            let memory = MemoryConsumer::new("rows that tasks returned").register(pool);
            memory.try_grow(block.len())?;
            parts.insert(part, Part { rows: block.to_vec(), memory });
        }
        let rows = TaskRows { num_written: result.num_written, texts: result.texts, parts: Mutex::new(parts) };
        Ok((!result.is_other_plan).then_some(rows))
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Tasks that are cancelled when nothing needs their rows any more.
#[derive(Debug)]
pub(super) struct TasksOfQuery(ManuallyDrop<Arc<Tasks>>, ProcessId);

impl TasksOfQuery {
    /// Returns the tasks for some of the cuts.
    pub(super) fn new(divided: &Arc<Divided>, cuts: Vec<usize>) -> TasksOfQuery {
        let tasks = Tasks {
            divided: Arc::clone(divided),
            header: TaskHeader { cuts, ..divided.header.clone() },
            cancel: CancellationToken::new(),
            state: Mutex::default(),
            runs_here: Mutex::default(),
        };
        TasksOfQuery(ManuallyDrop::new(Arc::new(tasks)), ProcessId::current())
    }

    /// Runs tasks that write files, and returns the number of rows.
    pub(super) async fn written(self) -> Result<u64> {
        let (context, mut num_rows) = (Arc::clone(&self.0.divided.execution.context), 0);
        for index in 0..self.0.header.num_tasks {
            let outcome = self.0.rows(index, &context).map_err(query_error)?;
            num_rows += outcome.await.map_err(|error| query_error(DataFusionError::Shared(error)))?.num_written;
        }
        Ok(num_rows)
    }
}

impl Drop for TasksOfQuery {
    fn drop(&mut self) {
        // The engine may need an interpreter. A consumer of the result may have released it in this thread, which PyO3
        // does not notice, so another thread cancels the tasks and drops them.
        #[allow(unsafe_code)]
        // SAFETY: nothing uses the field after this.
        let tasks = unsafe { ManuallyDrop::take(&mut self.0) };
        // A forked process has inherited tasks of its parent.
        match runtime().map(|threads| self.1.is_current().then_some(threads)) {
            Ok(Some(threads)) => drop(threads.handle().spawn(async move { tasks.cancel() })),
            _ => std::mem::forget(tasks),
        }
    }
}

/// A leaf that returns the rows of a cut, which tasks make.
#[derive(Debug)]
pub(super) struct TasksExec {
    tasks: Arc<TasksOfQuery>,
    cut: usize,
    /// The subtree that the tasks run, which EXPLAIN shows.
    plan: Plan,
}

impl TasksExec {
    /// Returns a leaf for each cut that the tasks run, with its number. When the last one and the streams of all of them
    /// are dropped, tasks are cancelled.
    pub(super) fn of(tasks: TasksOfQuery) -> Vec<(usize, Plan)> {
        let tasks = Arc::new(tasks);
        let leaf = |&cut: &usize| {
            let plan = Arc::clone(&tasks.0.divided.cuts[cut].plan);
            (cut, Arc::new(TasksExec { tasks: Arc::clone(&tasks), cut, plan }) as Plan)
        };
        tasks.0.header.cuts.iter().map(leaf).collect()
    }
}

impl DisplayAs for TasksExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tasks { divided, header, .. } = &**self.tasks.0;
        write!(f, "TasksExec: tasks={}, engine={}", header.num_tasks, divided.engine.name())
    }
}

impl ExecutionPlan for TasksExec {
    fn name(&self) -> &'static str {
        "TasksExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Plan> {
        vec![&self.plan]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Plan>) -> DataFusionResult<Plan> {
        // The subtree is fixed: tasks have started to run it.
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let (guard, cut) = (Arc::clone(&self.tasks), self.cut);
        let index = guard.0.task_of(cut, partition);
        let batches = async move {
            let rows = guard.0.rows(index, &context)?.await.map_err(DataFusionError::Shared)?;
            let part = lock(&rows.parts).remove(&(cut, partition));
            let Part { rows: bytes, memory } =
                part.ok_or_else(|| internal_datafusion_err!("task {index} lacks partition {partition}"))?;
            let renumbered = move |batch: Result<_, _>| {
                // The memory is held until the last batch is decoded.
                let _ = &memory;
                let texts = rows.texts.get(cut).map_or(&[][..], Vec::as_slice);
                Ok(guard.0.divided.cuts[cut].texts.renumbered(&batch?, texts)?)
            };
            Ok::<_, DataFusionError>(futures::stream::iter(read_rows(bytes)?.map(renumbered)))
        };
        let batches = futures::stream::once(batches).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    #[test]
    fn results_count_for_the_memory_limit() {
        let mut blocks = Blocks::default();
        let rows = blocks.begin(&Schema::empty()).unwrap();
        blocks.end(rows).unwrap();
        let header = ResultHeader { parts: vec![(0, 0)], ..ResultHeader::default() };
        let result = blocks.with_header(&header).unwrap();
        let num_bytes = message::parse::<ResultHeader>(&result).unwrap().1[0].len();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(num_bytes * 2 - 1));
        let first = TaskRows::of(&result, &pool).unwrap();
        let second = TaskRows::of(&result, &pool).map(drop).unwrap_err();
        assert!(matches!(second, DataFusionError::ResourcesExhausted(_)), "{second}");
        drop(first);
        assert!(TaskRows::of(&result, &pool).is_ok());
    }
}
