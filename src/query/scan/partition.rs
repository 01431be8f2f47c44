//! Execution of one partition of a plan, on the runtime's threads.

use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::system::process::catch_panic;
use crate::system::runtime::{PERIOD, Threads, block_for, runtime};
use arrow::array::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::common::spawn_buffered;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt, TryFutureExt};
use std::sync::Arc;

/// The batches of one partition, made on the runtime's threads. Dropping it stops the work.
pub(crate) struct Partition {
    batches: SendableRecordBatchStream,
    threads: Arc<Threads>,
}

impl Partition {
    /// The usual number of buffered batches.
    pub(crate) const AHEAD: usize = 8;

    /// Starts a partition of a plan, or all partitions merged into one. `ahead` is the maximum number of buffered
    /// batches.
    pub(crate) fn start(
        plan: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        partition: Option<usize>,
        ahead: usize,
    ) -> Result<Partition> {
        let (plan, context, schema) = (Arc::clone(plan), Arc::clone(context), plan.schema());
        // The plan starts in the task, because the runtime's threads have larger stacks than the caller's.
        let stream = async move {
            match partition {
                Some(partition) => plan.execute(partition, context),
                None => execute_stream(plan, context),
            }
        };
        let stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream.try_flatten_stream()));
        let threads = runtime()?;
        let entered = threads.handle().enter();
        let batches = spawn_buffered(stream, ahead);
        drop(entered);
        Ok(Partition { batches, threads })
    }

    /// Returns whether another process, from which this process was forked, started the partition.
    pub(in crate::query) fn is_foreign(&self) -> bool {
        !self.threads.are_here()
    }

    /// Returns the next batch. Stops with the error of `check`, which it calls while it waits.
    pub(crate) fn next(&mut self, check: impl Fn() -> Result<()>) -> Result<Option<RecordBatch>> {
        loop {
            check().inspect_err(|_| self.threads.retire())?;
            // If the task panicked, the stream panics too.
            match catch_panic(|| block_for(PERIOD, self.batches.next())) {
                None => return Err(Error::query("the query engine failed: a worker ended early")),
                Some(None) => {}
                Some(Some(batch)) => return batch.transpose().map_err(query_error),
            }
        }
    }
}
