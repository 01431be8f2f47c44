//! Reading two sorted inputs together.

use super::joined_rows::JoinedRows;
use super::keys::keys_of;
use arrow::array::RecordBatch;
use datafusion::common::Result as DataFusionResult;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;
use futures::stream::Fuse;
use std::sync::Arc;

/// The state of a join of two partitions.
pub(super) struct JoinState {
    pub(super) probe: SortedInput,
    pub(super) build: SortedInput,
    pub(super) rows: Arc<JoinedRows>,
    pub(super) metrics: BaselineMetrics,
}

impl JoinState {
    /// Returns the next rows of the result.
    pub(super) async fn next(&mut self) -> DataFusionResult<Option<RecordBatch>> {
        while self.probe.fill().await? {
            let has_build = self.build.fill().await?;
            let timer = self.metrics.elapsed_compute().timer();
            let joined = if has_build {
                // All pairs of keys up to `last` are in the two batches.
                let last = self.probe.last().min(self.build.last());
                let (probe, probe_keys) = self.probe.take_to(last);
                let (build, build_keys) = self.build.take_to(last);
                self.rows.join((&probe, &self.probe.keys[probe_keys]), (&build, &self.build.keys[build_keys]))?
            } else if self.rows.returns_pairs_only() {
                return Ok(None);
            } else {
                let (probe, _) = self.probe.take_to(u64::MAX);
                self.rows.join((&probe, &[]), (&self.build.batch.slice(0, 0), &[]))?
            };
            timer.done();
            if joined.num_rows() > 0 {
                self.metrics.output_rows().add(joined.num_rows());
                return Ok(Some(joined));
            }
        }
        Ok(None)
    }
}

/// One input of a join, with the rest of its current batch.
pub(super) struct SortedInput {
    stream: Fuse<SendableRecordBatchStream>,
    key_columns: [usize; 2],
    batch: RecordBatch,
    /// The keys of the whole batch.
    keys: Vec<u64>,
    /// The number of rows of the batch that were taken.
    taken: usize,
}

impl SortedInput {
    pub(super) fn new(stream: SendableRecordBatchStream, key_columns: [usize; 2]) -> SortedInput {
        let batch = RecordBatch::new_empty(stream.schema());
        SortedInput { stream: stream.fuse(), key_columns, batch, keys: Vec::new(), taken: 0 }
    }

    /// Reads the next batch if the current one is used up. Returns whether there are rows.
    async fn fill(&mut self) -> DataFusionResult<bool> {
        while self.taken == self.keys.len() {
            let Some(batch) = self.stream.next().await.transpose()? else { return Ok(false) };
            if batch.num_rows() == 0 {
                continue;
            }
            self.keys = keys_of(&batch, self.key_columns, self.keys.last().copied())?;
            self.batch = batch;
            self.taken = 0;
        }
        Ok(true)
    }

    /// Returns the last key of the current batch.
    fn last(&self) -> u64 {
        self.keys.last().copied().unwrap_or(u64::MAX)
    }

    /// Takes the rows with keys up to `last`. Returns them and the positions of their keys.
    fn take_to(&mut self, last: u64) -> (RecordBatch, std::ops::Range<usize>) {
        let start = self.taken;
        let count = self.keys[start..].partition_point(|&key| key <= last);
        self.taken += count;
        (self.batch.slice(start, count), start..self.taken)
    }
}
