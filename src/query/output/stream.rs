//! Execution of a plan: partitions run ahead in parallel with bounded buffers, and dropping the stream stops
//! them.

use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::query::engine::execution::{Execution, Rows};
use crate::query::engine::limits::QueryLimits;
use crate::query::output::conform::conform;
use crate::query::scan::partition::Partition;
use crate::system::cancellation::CancellationToken;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use tracing::debug;

/// The batches of a query's result, delivered as they are made.
///
/// The stream ends after an error.
pub struct QueryStream {
    archive: Archive,
    schema: SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    /// The partitions to start; `None` = all partitions, merged.
    waiting: std::vec::IntoIter<Option<usize>>,
    running: VecDeque<Partition>,
    /// The number of partitions that run at once: by default, as many as there are cores.
    pub(in crate::query) at_once: usize,
    skip: usize,
    fetch: usize,
    limits: Arc<QueryLimits>,
    started: Instant,
    num_rows: usize,
}

/// The maximum number of buffered batches of a partition. A whole row group fits, so that the next partitions stay
/// busy while one is read.
const AHEAD: usize = 64;

impl QueryStream {
    pub(in crate::query) fn new(
        archive: Archive,
        schema: SchemaRef,
        execution: Execution,
        limits: Arc<QueryLimits>,
    ) -> Self {
        let Execution { plan, context, rows } = execution;
        let (waiting, skip, fetch) = match rows {
            Rows::InOrder { skip, fetch, max_rows, .. } => {
                ((0..max_rows.len()).map(Some).collect(), skip, fetch.unwrap_or(usize::MAX))
            }
            Rows::Merged { .. } => (vec![None], 0, usize::MAX),
        };
        let (waiting, running, started) = (waiting.into_iter(), VecDeque::new(), Instant::now());
        let at_once = context.session_config().target_partitions();
        Self { archive, schema, plan, context, waiting, running, at_once, skip, fetch, limits, started, num_rows: 0 }
    }

    /// Returns the columns of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Returns the next batch.
    ///
    /// # Errors
    /// Those of the query, and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) soon after `cancel` is cancelled,
    /// even while no batch arrives.
    pub fn next_batch(&mut self, cancel: &CancellationToken) -> Result<Option<RecordBatch>> {
        let next = self.read_batch(cancel);
        let (rows, seconds) = (self.num_rows, self.started.elapsed().as_secs_f64());
        match &next {
            Ok(Some(batch)) => {
                self.num_rows += batch.num_rows();
                return next;
            }
            Ok(None) => debug!(target: "a2store::query", rows, seconds, "the result is complete"),
            Err(error) => debug!(target: "a2store::query", rows, seconds, %error, "the query failed"),
        }
        self.stop();
        next
    }

    fn read_batch(&mut self, cancel: &CancellationToken) -> Result<Option<RecordBatch>> {
        while self.fetch > 0 {
            if self.running.front().is_some_and(Partition::is_foreign) {
                return Err(Error::query(
                    "the stream was started by another process: run the query again in this process",
                ));
            }
            while self.running.len() < self.at_once
                && let Some(partition) = self.waiting.next()
            {
                self.running.push_back(Partition::start(&self.plan, &self.context, partition, AHEAD)?);
            }
            let Some(front) = self.running.front_mut() else { break };
            let next = front.next(|| self.limits.check(cancel));
            let Some(batch) = next.map_err(|error| self.limits.explain(self.archive.blame(error)))? else {
                self.running.pop_front();
                continue;
            };
            let skipped = self.skip.min(batch.num_rows());
            let taken = self.fetch.min(batch.num_rows() - skipped);
            self.skip -= skipped;
            self.fetch -= taken;
            if taken > 0 {
                let batch = conform(batch.slice(skipped, taken), &self.schema);
                let batch = batch.map_err(|error| query_error(error.into()))?;
                self.limits.count(&batch)?;
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn stop(&mut self) {
        self.fetch = 0;
        let running = std::mem::take(&mut self.running);
        if running.front().is_some_and(Partition::is_foreign) {
            // Threads that do not exist in this process may have held the locks of these channels and tasks.
            std::mem::forget(running);
        }
    }
}

impl Drop for QueryStream {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Iterator for QueryStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch(CancellationToken::never()).transpose()
    }
}

impl fmt::Debug for QueryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}
