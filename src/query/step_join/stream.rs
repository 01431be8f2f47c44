//! Reading two sorted inputs together.

use super::joined_rows::JoinedRows;
use super::keys::{KeyColumns, keys_of};
use arrow::array::RecordBatch;
use datafusion::common::Result as DataFusionResult;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::StreamExt;
use futures::stream::Fuse;
use std::ops::Range;
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
            let has_build = self.build.skip_to(self.probe.first()).await?;
            let timer = self.metrics.elapsed_compute().timer();
            let joined = if has_build {
                // All pairs of keys up to `last` are in the two batches.
                let last = self.probe.last().min(self.build.last());
                let (probe, probe_keys) = self.probe.take_to(last);
                let (build, build_keys) = self.build.rows_to(last);
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
    key_columns: KeyColumns,
    batch: RecordBatch,
    /// The keys of the whole batch.
    keys: Vec<u64>,
    /// The number of rows of the batch that were taken.
    taken: usize,
}

impl SortedInput {
    pub(super) fn new(stream: SendableRecordBatchStream, key_columns: KeyColumns) -> SortedInput {
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

    /// Takes the rows with keys below `first`, and reads the next batch if no row is left. Returns whether there are
    /// rows.
    async fn skip_to(&mut self, first: u64) -> DataFusionResult<bool> {
        while self.fill().await? {
            if self.last() >= first {
                self.taken += self.keys[self.taken..].partition_point(|&key| key < first);
                return Ok(true);
            }
            self.taken = self.keys.len();
        }
        Ok(false)
    }

    /// Returns the first key that was not taken.
    fn first(&self) -> u64 {
        self.keys.get(self.taken).copied().unwrap_or(u64::MAX)
    }

    /// Returns the last key of the current batch.
    fn last(&self) -> u64 {
        self.keys.last().copied().unwrap_or(u64::MAX)
    }

    /// Returns the rows with keys up to `last` that were not taken, and the positions of their keys.
    fn rows_to(&self, last: u64) -> (RecordBatch, Range<usize>) {
        let count = self.keys[self.taken..].partition_point(|&key| key <= last);
        (self.batch.slice(self.taken, count), self.taken..self.taken + count)
    }

    /// Takes the rows with keys up to `last`. Returns them and the positions of their keys.
    fn take_to(&mut self, last: u64) -> (RecordBatch, Range<usize>) {
        let (rows, keys) = self.rows_to(last);
        self.taken = keys.end;
        (rows, keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{AsArray, UInt32Array};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
    use datafusion::common::{JoinSide, JoinType};
    use datafusion::physical_plan::joins::utils::ColumnIndex;
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::executor::block_on;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    type Key = (u32, u32);

    /// Returns batches of keys that are cut at some positions, which may repeat.
    fn batches(keys: &[Key], cuts: &[usize]) -> SendableRecordBatchStream {
        let fields = ["run_id", "step_index"].map(|name| Field::new(name, DataType::UInt32, false));
        let schema: SchemaRef = Arc::new(Schema::new(fields.to_vec()));
        let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut % (keys.len() + 1)).chain([0, keys.len()]).collect();
        bounds.sort_unstable();
        let batch = |range: &[usize]| {
            let (runs, steps): (Vec<u32>, Vec<u32>) = keys[range[0]..range[1]].iter().copied().unzip();
            let columns: Vec<arrow::array::ArrayRef> =
                vec![Arc::new(UInt32Array::from(runs)), Arc::new(UInt32Array::from(steps))];
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        };
        let batches: Vec<_> = bounds.windows(2).map(batch).collect();
        Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::iter(batches)))
    }

    /// Returns the probe side's keys in the result of a join, with the build side's last column of pairs.
    fn joined(
        kind: JoinType,
        by_run: bool,
        probe: (&[Key], &[usize]),
        build: (&[Key], &[usize]),
    ) -> Vec<(Key, Option<u32>)> {
        let step = (!by_run).then_some(1);
        let keys = |are_unique| KeyColumns { run: 0, step, are_unique };
        let of_build = ColumnIndex { index: 1, side: JoinSide::Right };
        let of_probe = [0, 1].map(|index| ColumnIndex { index, side: JoinSide::Left });
        let columns = match kind {
            JoinType::Inner | JoinType::Left => of_probe.into_iter().chain([of_build]).collect(),
            _ => of_probe.to_vec(),
        };
        let fields = ["run_id", "step_index", "of_build"].map(|name| Field::new(name, DataType::UInt32, true));
        let schema = Arc::new(Schema::new(fields[..columns.len()].to_vec()));
        let rows = JoinedRows { kind, probe_side: JoinSide::Left, conditions: Vec::new(), columns, schema };
        let mut state = JoinState {
            probe: SortedInput::new(batches(probe.0, probe.1), keys(!by_run)),
            build: SortedInput::new(batches(build.0, build.1), keys(true)),
            rows: Arc::new(rows),
            metrics: BaselineMetrics::new(&ExecutionPlanMetricsSet::new(), 0),
        };
        let mut found = Vec::new();
        while let Some(rows) = block_on(state.next()).unwrap() {
            let columns: Vec<&UInt32Array> =
                rows.columns().iter().map(|column| column.as_primitive::<UInt32Type>()).collect();
            let last = |row| columns.get(2).and_then(|column| column.iter().nth(row).flatten());
            found.extend((0..rows.num_rows()).map(|row| ((columns[0].value(row), columns[1].value(row)), last(row))));
        }
        found
    }

    proptest! {
        #[test]
        fn joins_are_those_of_two_loops(
            by_run in any::<bool>(),
            probe in btree_set((0_u32..9, 0_u32..9), 0..60),
            build in btree_set((0_u32..9, 0_u32..9), 0..60),
            probe_cuts in vec(any::<usize>(), 0..8),
            build_cuts in vec(any::<usize>(), 0..8),
        ) {
            let probe: Vec<Key> = probe.into_iter().collect();
            let mut build: Vec<Key> = build.into_iter().collect();
            if by_run {
                build.dedup_by_key(|key| key.0);
            }
            let pair_of = |key: &Key| build.iter().find(|other| if by_run { other.0 == key.0 } else { *other == key });
            for kind in [JoinType::Inner, JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti] {
                let expected: Vec<_> = probe
                    .iter()
                    .filter(|key| match kind {
                        JoinType::Left => true,
                        JoinType::LeftAnti => pair_of(key).is_none(),
                        _ => pair_of(key).is_some(),
                    })
                    .map(|key| {
                        let has_build = matches!(kind, JoinType::Inner | JoinType::Left);
                        (*key, pair_of(key).filter(|_| has_build).map(|pair| pair.1))
                    })
                    .collect();
                let found = joined(kind, by_run, (&probe, &probe_cuts), (&build, &build_cuts));
                prop_assert_eq!(found, expected, "{}", kind);
            }
        }
    }
}
