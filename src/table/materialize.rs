//! Running a query into a table.
//!
//! Partitions that follow each other are read by as many threads as there are cores. Where the number of rows of each is
//! known beforehand, each is written where it belongs; where a filter leaves that open, a thread fills a buffer of one
//! row group and appends it when the partitions before it are done. A plan of any other kind is one stream.

use super::StepTable;
use super::convert::RowWriter;
use super::memory::{Region, available_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, Unit, check};
use crate::query::{Execution, Query, QueryStream, query_error, runtime};
use arrow::array::RecordBatch;
use datafusion::common::stats::Precision;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use futures::StreamExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How to materialize a query.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MaterializeOptions {
    /// Columns of the query to append to each row, beside those that a row always has.
    pub extra: Vec<String>,
    /// What stands as the value of the chosen branch.
    pub chosen_ev: ChosenEv,
    /// The most bytes that the rows may take; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
}

/// What stands as the value of the chosen branch, for steps that have values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChosenEv {
    /// What the source says, 1 - 2^-23 as a rule.
    #[default]
    Stored,
    /// Exactly 1.0, as the field's trainers expect.
    One,
}

impl MaterializeOptions {
    /// With these extra columns.
    #[must_use]
    pub fn with_extra<S: Into<String>>(mut self, extra: impl IntoIterator<Item = S>) -> Self {
        self.extra = extra.into_iter().map(Into::into).collect();
        self
    }

    /// With this as the value of the chosen branch.
    #[must_use]
    pub fn with_chosen_ev(mut self, chosen_ev: ChosenEv) -> Self {
        self.chosen_ev = chosen_ev;
        self
    }

    /// With this limit on the bytes that the rows take.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit: u64) -> Self {
        self.memory_limit = Some(memory_limit);
        self
    }
}

impl Query {
    /// Runs the query into a table in memory.
    ///
    /// The result must have a column `board`; `move`, `ev_up`, `ev_down`, `ev_left`, `ev_right`, `ev_legal`, `run_id` and
    /// `step_index` are taken by name where it has them. Where it does not, `move` is 255, the values are NaN, `ev_legal`
    /// is the rules' mask, and the ids are 0. Rows are in the order of the query's ORDER BY, or else of
    /// `(run_id, step_index)`, whatever the number of threads.
    ///
    /// # Errors
    /// [`ErrorKind::Column`] for a column that is missing, of a type that does not fit, or with a value that does not
    /// fit, a `step_index` above 65,535 for one; [`ErrorKind::MemoryLimit`], before anything is allocated where the
    /// number of rows is known beforehand; [`ErrorKind::Query`]; [`ErrorKind::Cancelled`].
    pub fn materialize(&self, options: &MaterializeOptions, progress: &dyn Progress) -> Result<StepTable> {
        let all = RowWriter::new(&self.schema(), &options.extra, options.chosen_ev)?;
        let needed = self.select(&all.columns())?;
        let writer = RowWriter::new(&needed.schema(), &options.extra, options.chosen_ev)?;
        let limit = options.memory_limit.or_else(available_bytes).unwrap_or(u64::MAX);
        let execution = needed.execution(true)?;
        let job = Job { writer: &writer, limit, progress };
        let rows = match execution {
            Execution::InOrder { plan, context, skip: 0, fetch: None, max_rows } => {
                match exact_rows(&plan, max_rows.len()) {
                    Some(exact) => job.write_in_place(&plan, &context, &exact),
                    None => job.append_in_order(&plan, &context, &max_rows),
                }
            }
            other => job.append_stream(needed.stream_of(other)),
        };
        progress.end();
        let (region, len) = rows?;
        StepTable::new(region.freeze(len)?, writer.layout().clone(), fingerprint(self, options)?)
    }
}

fn fingerprint(query: &Query, options: &MaterializeOptions) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(query.fingerprint()?.as_bytes());
    hasher.update(&[options.chosen_ev as u8]);
    for name in &options.extra {
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// The number of rows of each partition, if the plan knows them all exactly.
fn exact_rows(plan: &Arc<dyn ExecutionPlan>, num_partitions: usize) -> Option<Vec<usize>> {
    let statistics = StatisticsContext::new();
    (0..num_partitions)
        .map(|partition| {
            let of_partition = StatisticsArgs::new().with_partition(Some(partition));
            match statistics.compute(plan.as_ref(), &of_partition).ok()?.num_rows {
                Precision::Exact(num_rows) => Some(num_rows),
                _ => None,
            }
        })
        .collect()
}

struct Job<'a> {
    writer: &'a RowWriter,
    limit: u64,
    progress: &'a dyn Progress,
}

type Filled = Result<(Region, usize)>;

impl Job<'_> {
    fn stride(&self) -> usize {
        self.writer.layout().stride()
    }

    fn check_limit(&self, num_rows: u64) -> Result<u64> {
        let needed = num_rows.saturating_mul(self.stride() as u64);
        if needed > self.limit {
            return Err(ErrorKind::MemoryLimit { needed, limit: self.limit }.into());
        }
        Ok(needed)
    }

    /// Every partition's rows go straight to where they belong.
    fn write_in_place(&self, plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>, exact: &[usize]) -> Filled {
        let num_rows: u64 = exact.iter().map(|&rows| rows as u64).sum();
        let num_bytes = self.check_limit(num_rows)?;
        self.progress.begin("materialize", Unit::Rows, num_rows);
        let mut region = Region::reserve(num_bytes)?;
        let mut rest = &mut region.bytes_mut()[..num_bytes as usize];
        let mut first_row = 0;
        let mut parts = Vec::new();
        for (partition, &rows) in exact.iter().enumerate() {
            let (part, after) = rest.split_at_mut(rows * self.stride());
            parts.push((partition, first_row, part));
            rest = after;
            first_row += rows as u64;
        }
        let parts = Mutex::new(parts.into_iter());
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.on_all_cores(context, |stop| {
            while let Some((partition, first_row, part)) = next() {
                let mut at = 0;
                self.read(plan, context, partition, stop, |batch| {
                    let len = batch.num_rows() * self.stride();
                    let Some(rows) = part.get_mut(at..at + len) else {
                        return Err(Error::query("a file has more rows than its footer says"));
                    };
                    let base = first_row + (at / self.stride()) as u64;
                    self.writer.write(&batch, rows).map_err(|error| at_row(error, base))?;
                    at += len;
                    Ok(())
                })?;
                if at != part.len() {
                    return Err(Error::query("a file has fewer rows than its footer says"));
                }
            }
            Ok(())
        })?;
        Ok((region, num_bytes as usize))
    }

    /// Each thread fills a buffer with a partition's rows and appends it when its turn comes.
    fn append_in_order(&self, plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>, max_rows: &[usize]) -> Filled {
        let max: u64 = max_rows.iter().map(|&rows| rows as u64).sum();
        self.progress.begin("materialize", Unit::Rows, max);
        let reserved = max.saturating_mul(self.stride() as u64).min(self.limit);
        let mut region = Region::reserve(reserved)?;
        let output = Turns::new(Output { bytes: &mut region.bytes_mut()[..reserved as usize], len: 0 });
        let next = AtomicUsize::new(0);
        self.on_all_cores(context, |stop| {
            let mut buffer: Vec<u8> = Vec::new();
            loop {
                let partition = next.fetch_add(1, Ordering::Relaxed);
                if partition >= max_rows.len() {
                    return Ok(());
                }
                buffer.clear();
                let mut read_rows = 0;
                let read = self.read(plan, context, partition, stop, |batch| {
                    let start = buffer.len();
                    buffer.resize(start + batch.num_rows() * self.stride(), 0);
                    read_rows += batch.num_rows();
                    let base = (start / self.stride()) as u64;
                    self.writer.write(&batch, &mut buffer[start..]).map_err(|error| at_row(error, base))
                });
                let mut output = output.wait(partition, stop, self.progress)?;
                let first_row = (output.value.len / self.stride()) as u64;
                read.map_err(|error| at_row(error, first_row))?;
                output.value.append(&buffer, self.limit)?;
                output.next(partition + 1);
                self.progress.advance((max_rows[partition] - read_rows.min(max_rows[partition])) as u64);
            }
        })?;
        let len = output.into_inner().len;
        Ok((region, len))
    }

    /// One stream, in its own order.
    fn append_stream(&self, mut stream: QueryStream) -> Filled {
        self.progress.begin("materialize", Unit::Rows, 0);
        // How many rows will come is not known, so all that could be had is reserved; it takes no memory.
        let address_space = self.limit.min(available_bytes().unwrap_or(1 << 40).max(1 << 30));
        let mut region = Region::reserve(address_space)?;
        let mut output = Output { bytes: &mut region.bytes_mut()[..address_space as usize], len: 0 };
        while let Some(batch) = stream.next_unless_cancelled(self.progress)? {
            let base = (output.len / self.stride()) as u64;
            let rows = output.grow(batch.num_rows() * self.stride(), self.limit)?;
            self.writer.write(&batch, rows).map_err(|error| at_row(error, base))?;
            self.progress.advance(batch.num_rows() as u64);
        }
        let len = output.len;
        Ok((region, len))
    }

    /// Feeds a partition's batches to `take`, on this thread.
    fn read(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        partition: usize,
        stop: &Stop,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        // The reader's file accesses go through the runtime's threads.
        let _in_runtime = runtime().enter();
        let mut stream = plan.execute(partition, Arc::clone(context)).map_err(query_error)?;
        while let Some(batch) = futures::executor::block_on(stream.next()) {
            stop.check(self.progress)?;
            let batch = batch.map_err(query_error)?;
            let num_rows = batch.num_rows() as u64;
            take(batch)?;
            self.progress.advance(num_rows);
        }
        Ok(())
    }

    /// Runs `work` on a thread per core; the first error stops them all and is returned.
    fn on_all_cores(&self, context: &TaskContext, work: impl Fn(&Stop) -> Result<()> + Sync) -> Result<()> {
        let num_threads = context.session_config().target_partitions().max(1);
        let stop = Stop::default();
        std::thread::scope(|scope| {
            let run = || {
                // A reader may panic on damaged data, and the other threads must not wait for its turn.
                let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| work(&stop)));
                let failed = |_| Err(Error::query("the query engine panicked, on damaged data perhaps"));
                if let Err(error) = outcome.unwrap_or_else(failed) {
                    stop.raise(error);
                }
            };
            for _ in 1..num_threads {
                scope.spawn(run);
            }
            run();
        });
        stop.into_result()
    }
}

/// The first error of several threads, which makes the others stop.
#[derive(Default)]
struct Stop {
    error: Mutex<Option<Error>>,
    raised: std::sync::atomic::AtomicBool,
}

impl Stop {
    fn check(&self, progress: &dyn Progress) -> Result<()> {
        if self.raised.load(Ordering::Relaxed) {
            return Err(ErrorKind::Cancelled.into());
        }
        check(progress)
    }

    fn raise(&self, error: Error) {
        let mut slot = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        slot.get_or_insert(error);
        self.raised.store(true, Ordering::Relaxed);
    }

    fn into_result(self) -> Result<()> {
        self.error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Rows that grow from the front of reserved memory.
struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    fn grow(&mut self, num_bytes: usize, limit: u64) -> Result<&mut [u8]> {
        let start = self.len;
        let end = start + num_bytes;
        let Some(rows) = self.bytes.get_mut(start..end) else {
            return Err(ErrorKind::MemoryLimit { needed: end as u64, limit }.into());
        };
        self.len = end;
        Ok(rows)
    }

    fn append(&mut self, rows: &[u8], limit: u64) -> Result<()> {
        self.grow(rows.len(), limit)?.copy_from_slice(rows);
        Ok(())
    }
}

/// A value that threads get hold of in the order of their partitions.
struct Turns<T> {
    state: Mutex<Turn<T>>,
    changed: Condvar,
}

struct Turn<T> {
    value: T,
    partition: usize,
}

struct TurnGuard<'a, T> {
    state: MutexGuard<'a, Turn<T>>,
    changed: &'a Condvar,
}

impl<T> Turns<T> {
    fn new(value: T) -> Self {
        Self { state: Mutex::new(Turn { value, partition: 0 }), changed: Condvar::new() }
    }

    fn wait(&self, partition: usize, stop: &Stop, progress: &dyn Progress) -> Result<TurnGuard<'_, T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.partition != partition {
            stop.check(progress)?;
            // A thread that fails does not take its turn, so waiting is checked now and then.
            let pause = std::time::Duration::from_millis(20);
            state = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(TurnGuard { state, changed: &self.changed })
    }

    fn into_inner(self) -> T {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).value
    }
}

impl<T> TurnGuard<'_, T> {
    fn next(mut self, partition: usize) {
        self.state.partition = partition;
        self.changed.notify_all();
    }
}

impl<T> std::ops::Deref for TurnGuard<'_, T> {
    type Target = Turn<T>;
    fn deref(&self) -> &Turn<T> {
        &self.state
    }
}

impl<T> std::ops::DerefMut for TurnGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut Turn<T> {
        &mut self.state
    }
}

/// Makes an error about a row of a part one about a row of the whole.
fn at_row(error: Error, first_row: u64) -> Error {
    match error.into_kind() {
        ErrorKind::Column { column, row: Some(row), expected, found } => {
            ErrorKind::Column { column, row: Some(row + first_row), expected, found }.into()
        }
        other => other.into(),
    }
}
