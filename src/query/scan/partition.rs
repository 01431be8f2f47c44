//! Execution of one partition of a plan, on the runtime's threads.

use crate::error::{Error, Result};
use crate::query::engine::errors::query_error;
use crate::system::runtime::{PERIOD, Threads, block_for, runtime};
use arrow::array::RecordBatch;
use datafusion::common::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The batches of one partition, made on the runtime's threads. Dropping it stops the work.
pub(crate) struct Partition {
    receiver: mpsc::Receiver<PartitionMessage>,
    task: JoinHandle<()>,
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
        let (sender, receiver) = mpsc::channel(ahead);
        let threads = runtime()?;
        let task = threads.handle().spawn(send_batches(Arc::clone(plan), Arc::clone(context), partition, sender));
        Ok(Partition { receiver, task, threads })
    }

    /// Returns whether another process, from which this process was forked, started the partition.
    pub(in crate::query) fn is_foreign(&self) -> bool {
        !self.threads.are_here()
    }

    /// Returns the next batch. Stops with the error of `check`, which it calls while it waits.
    pub(crate) fn next(&mut self, check: impl Fn() -> Result<()>) -> Result<Option<RecordBatch>> {
        loop {
            check().inspect_err(|_| self.threads.retire())?;
            match block_for(PERIOD, self.receiver.recv()) {
                None => {}
                Some(Some(message)) => return message.map_err(query_error),
                Some(None) => return Err(Error::query("the query engine failed: a worker ended early")),
            }
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs a partition, or all partitions merged into one stream, and sends its batches.
async fn send_batches(
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    partition: Option<usize>,
    sender: mpsc::Sender<PartitionMessage>,
) {
    let stream = match partition {
        Some(partition) => plan.execute(partition, context),
        None => execute_stream(plan, context),
    };
    match stream {
        Ok(mut stream) => {
            while let Some(batch) = stream.next().await {
                if sender.send(batch.map(Some)).await.is_err() {
                    return;
                }
            }
            let _ = sender.send(Ok(None)).await;
        }
        Err(error) => {
            let _ = sender.send(Err(error)).await;
        }
    }
}

/// A message of a partition's task: batches, then `None`. A channel closed before means that the task died.
type PartitionMessage = DataFusionResult<Option<RecordBatch>>;
