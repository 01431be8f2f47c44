//! Running a query into a table.
//!
//! One thread per core reads the ordered partitions of a plan. If the number of rows of each partition is known
//! in advance, each thread writes rows to their final place. After a filter it is not known. Then a thread
//! buffers a partition (one row group) and appends it after all earlier partitions. Any other plan is read as
//! one stream.
//!
//! A result that is larger than memory goes to a file in the same way and is mapped from there.

use super::categories::{MAX_CATEGORIES, is_categorical};
use super::chosen_columns::ChosenColumns;
use super::element::ElementType;
use super::fingerprint::Fingerprint;
use super::footer::footer_of_file;
use super::layout::RowLayout;
use super::materialize_options::MaterializeOptions;
use super::memory::{Region, memory_limit};
use super::npy;
use super::row_output::RowOutput;
use super::row_writer::{RowWriter, at_row};
use super::runs::Runs;
use super::shard::{Piece, PieceRows, Share, ShareRows, TableShard, exact_rows, rows_within};
use super::step_column::{STEP_INDEX, TILE_MASK};
use super::step_table::StepTable;
use super::threads::{FirstError, Sequencer, on_cores};
use super::wide::{MissingColumns, WideColumns};
use crate::archive::{TableName, table_schema};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::reserve;
use crate::progress::{Progress, Unit};
use crate::publish::{Staged, parent};
use crate::query::{Execution, Partition, Query, QueryLimits, QueryStream, no_params, query_error};
use crate::runtime::runtime;
use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use futures::StreamExt;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tracing::info;

impl Query {
    /// Runs the query into a table in memory.
    ///
    /// The result must have a column `board`. The columns `move`, `ev_up`, `ev_down`, `ev_left`, `ev_right`,
    /// `ev_legal`, `run_id` and `step_index` are optional. Without them, `move` is 255, the values are NaN,
    /// `ev_legal` is the rules' mask, and the ids are 0. A column `tile_65536_mask` becomes an extra column of the
    /// table if a row has a tile of 65,536; without that column, such a tile counts as 32,768, and `progress` gets a
    /// warning if a row may have one. `progress` also gets a warning for columns that the query computes, or that come
    /// from the user's tables, and that the rows leave out, unless the options choose the columns of a row. Rows have
    /// the order of the query's ORDER BY, or else of `(run_id, step_index)`. The number of threads does not affect the
    /// order.
    ///
    /// # Errors
    /// [`ErrorKind::Column`] if a column is missing, or its type or a value does not fit;
    /// [`ErrorKind::Argument`] for columns of a row that contradict each other;
    /// [`ErrorKind::MemoryLimit`], before any allocation if the number of rows is known in advance;
    /// [`ErrorKind::Query`]; [`ErrorKind::Cancelled`].
    pub fn materialize(
        &self,
        options: &MaterializeOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let started = Instant::now();
        let chosen = ChosenColumns::new(&self.schema(), options)?;
        let result = chosen.places.as_ref().map_or_else(|| Ok(self.clone()), |places| self.select(places))?;
        let extra = &chosen.extra;
        let narrow = WideColumns::default();
        let all =
            RowWriter::new(&result.schema(), extra, options.chosen_ev, narrow, &MissingColumns::default())?.columns();
        let needed = result.select(&all)?;
        let share = options.shard.map(|shard| Share::of(&needed, shard, progress, cancel)).transpose()?;
        let (categories, wide) = match share {
            Some(_) => (categories_of(&needed, extra, cancel)?, wide_columns_of(&needed, extra, cancel)?),
            None => (Vec::new(), WideColumns::default()),
        };
        let table = wide.or_more(|columns, missing| {
            let writer = RowWriter::new(&needed.schema(), extra, options.chosen_ev, columns, missing)?;
            writer.preset_categories(&categories)?;
            self.materialize_with(&needed, &writer, options, &chosen, share.as_ref(), progress, cancel)
        })?;
        info!(
            target: "a2store::table",
            rows = table.num_rows(),
            bytes_per_row = table.layout().stride(),
            seconds = started.elapsed().as_secs_f64(),
            "materialized a query"
        );
        let unused = if options.columns.is_none() { result.unused_columns(&all) } else { Vec::new() };
        if !unused.is_empty() {
            progress.warn(&format!(
                "the table leaves out these columns of the query: {}; to keep a column, name it in `extra`, or choose \
                 all columns of a row with `columns`",
                unused.join(", ")
            ));
        }
        if self.may_lose_tiles(&table) {
            progress.warn(
                "the query has boards but no column tile_65536_mask, and the archive has tiles of 65536: they count as \
                 32768 in the table; select tile_65536_mask too",
            );
        }
        Ok(table)
    }

    /// Returns the columns of the result that the query computes, or that come from the user's tables, and that the
    /// rows could hold but do not `use`. The archive's own columns do not count: `SELECT *` has all of them.
    fn unused_columns(&self, used: &[usize]) -> Vec<String> {
        let own = |name: &str| TableName::ALL.into_iter().any(|table| table_schema(table).index_of(name).is_ok());
        let schema = self.schema();
        let fields = schema.fields().iter().enumerate().filter(|(i, _)| !used.contains(i));
        let unused = fields.filter(|(_, field)| {
            let dtype = field.data_type();
            !own(field.name()) && (is_categorical(dtype) || ElementType::of_arrow(field.name(), dtype).is_ok())
        });
        unused.map(|(_, field)| field.name().clone()).collect()
    }

    /// Returns whether a row of the table may have a tile of 65,536 that the result does not show.
    fn may_lose_tiles(&self, table: &StepTable) -> bool {
        if self.schema().index_of(TILE_MASK).is_ok() {
            return false;
        }
        let runs = self.archive().sql("SELECT 1 FROM runs WHERE highest_tile >= 65536 LIMIT 1", no_params());
        let has_tiles = runs.and_then(|runs| runs.count()).is_ok_and(|num_runs| num_runs > 0);
        has_tiles && (0..table.num_rows()).any(|row| table.step(row).is_some_and(|step| step.board.max_exp() == 15))
    }

    #[allow(clippy::too_many_arguments)] // The parts of one run of a query.
    fn materialize_with(
        &self,
        needed: &Query,
        writer: &RowWriter<'_>,
        options: &MaterializeOptions,
        chosen: &ChosenColumns,
        share: Option<&Share>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let runs = Runs::of_archive(self.archive());
        let limits = needed.limits();
        let execution = needed.execution(true, &limits, cancel)?;
        let of_share = |table: StepTable| match share {
            Some(share) => table.with_shard(TableShard { shard: share.shard, total_rows: share.total_rows }),
            None => table,
        };
        if let Some(path) = &options.path {
            let path = std::path::absolute(path).map_err(|error| Error::io(path, error))?;
            let materializer = Materializer { writer, limits, memory: u64::MAX, share, progress, cancel };
            let fingerprint = |layout: &RowLayout, output: &RowOutput<'_>| {
                Fingerprint::of_result(self, options, chosen, layout, || output.hash_file(cancel))
            };
            let table = materializer.write_file(needed, execution, &path, fingerprint, &runs);
            return table.map(of_share).map_err(|error| self.archive().blame(error));
        }
        let memory = memory_limit(options.memory_limit);
        let materializer = Materializer { writer, limits, memory, share, progress, cancel };
        let rows = materializer.fill_memory(needed, execution).map_err(|error| self.archive().blame(error));
        progress.end();
        let (mut region, len) = rows?;
        materializer.check_share(len as u64)?;
        let (layout, recoding) = writer.recoding();
        if recoding.is_needed() {
            recoding.apply_to_all(&mut region.bytes_mut()[..len]);
        }
        let rows = region.freeze(len)?;
        let fingerprint = Fingerprint::of_result(self, options, chosen, &layout, || Ok(blake3::hash(rows.bytes())))?;
        StepTable::new(rows, layout, fingerprint, runs).map(of_share)
    }
}

/// Returns all strings of each extra column of strings, ascending, so that codes are the same in all shares.
fn categories_of(query: &Query, extra: &[String], cancel: &CancellationToken) -> Result<Vec<(String, Vec<String>)>> {
    let schema = query.schema();
    let of_column = |name: &String| {
        let column = schema.index_of(name).ok().filter(|&column| is_categorical(schema.field(column).data_type()))?;
        Some(query.distinct_texts(column, MAX_CATEGORIES, cancel).map(|texts| (name.clone(), texts)))
    };
    extra.iter().filter_map(of_column).collect()
}

/// Returns the wide columns that a row of any share may need, so that all shares have the same columns.
fn wide_columns_of(query: &Query, extra: &[String], cancel: &CancellationToken) -> Result<WideColumns> {
    let schema = query.schema();
    let any = |name: &str, condition: &str| -> Result<bool> {
        let is_chosen = schema.index_of(name).is_ok() && !extra.iter().any(|extra| extra == name);
        let sql = format!("SELECT 1 FROM runs WHERE {condition} LIMIT 1");
        Ok(is_chosen && query.archive().sql(&sql, no_params())?.count_unless_cancelled(cancel)? > 0)
    };
    Ok(WideColumns {
        masks: any(TILE_MASK, "highest_tile >= 65536")?,
        step_indices: any(STEP_INDEX, "greatest(num_steps, coalesce(game_steps, 0)) > 65536")?,
    })
}

/// A query run that fills a table.
struct Materializer<'a> {
    writer: &'a RowWriter<'a>,
    limits: Arc<QueryLimits>,
    /// The memory limit of the table in bytes.
    memory: u64,
    /// The rows to copy; `None` = all.
    share: Option<&'a Share>,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
}

type Filled = Result<(Region, usize)>;

impl Materializer<'_> {
    fn stride(&self) -> usize {
        self.writer.layout().stride()
    }

    fn check_limit(&self, num_rows: u64) -> Result<u64> {
        let needed = num_rows.saturating_mul(self.stride() as u64);
        if needed > self.memory {
            return Err(ErrorKind::MemoryLimit { needed, limit: self.memory }.into());
        }
        Ok(needed)
    }

    fn fill_memory(&self, query: &Query, execution: Execution) -> Filled {
        match execution {
            Execution::InOrder { plan, context, skip: 0, fetch: None, max_rows } => {
                if let Some(pieces) = self.exact_pieces(&plan, &max_rows) {
                    return self.write_in_place(&plan, &context, &pieces);
                }
                let pieces = Piece::all(&max_rows);
                let max: u64 = pieces.iter().map(Piece::num_rows).sum();
                let reserved = max.saturating_mul(self.stride() as u64).min(self.memory);
                let (mut region, reserved) = Region::reserve_up_to(reserved)?;
                let bytes = &mut region.bytes_mut()[..reserved as usize];
                let output = RowOutput::Memory { bytes, len: 0, limit: self.memory.min(reserved) };
                let len = self.append_in_order(&plan, &context, &pieces, output)?.len();
                Ok((region, len))
            }
            other => {
                let (mut region, reserved) = match self.share {
                    Some(share) => {
                        let needed = self.check_limit(share.num_rows())?;
                        (Region::reserve(needed)?, needed)
                    }
                    None => Region::reserve_most(self.memory)?,
                };
                let bytes = &mut region.bytes_mut()[..reserved as usize];
                let output = RowOutput::Memory { bytes, len: 0, limit: self.memory.min(reserved) };
                let len = self.append_stream(query.stream_of(other, Arc::clone(&self.limits)), output)?.len();
                Ok((region, len))
            }
        }
    }

    /// Checks that a share has all its rows.
    fn check_share(&self, num_bytes: u64) -> Result<()> {
        let found = num_bytes / self.stride() as u64;
        match self.share.map(Share::num_rows).filter(|&expected| expected != found) {
            None => Ok(()),
            Some(expected) => Err(Error::query(format!("a share has {found} rows instead of {expected}"))),
        }
    }

    /// Returns the rows to read if their number is known in advance.
    fn exact_pieces(&self, plan: &Arc<dyn ExecutionPlan>, max_rows: &[usize]) -> Option<Vec<Piece>> {
        match self.share.map(|share| &share.rows) {
            Some(ShareRows::Partitions(pieces)) => Some(pieces.clone()),
            _ => exact_rows(plan, max_rows.len()).as_deref().map(Piece::all),
        }
    }

    /// Writes the rows to a file and maps it.
    fn write_file(
        &self,
        query: &Query,
        execution: Execution,
        path: &Path,
        fingerprint: impl FnOnce(&RowLayout, &RowOutput<'_>) -> Result<Fingerprint>,
        runs: &Runs,
    ) -> Result<StepTable> {
        let staged = Staged::new(parent(path))?;
        let start = npy::header(self.writer.layout(), u64::MAX, 0)?.len();
        let output = RowOutput::File { file: staged.file(), path, start: start as u64, len: 0, crc: 0 };
        let output = match execution {
            Execution::InOrder { plan, context, skip: 0, fetch: None, max_rows } => {
                let pieces = self.exact_pieces(&plan, &max_rows).unwrap_or_else(|| Piece::all(&max_rows));
                self.append_in_order(&plan, &context, &pieces, output)
            }
            other => self.append_stream(query.stream_of(other, Arc::clone(&self.limits)), output),
        };
        self.progress.end();
        let mut output = output?;
        let (layout, recoding) = self.writer.recoding();
        output.recode(&recoding, self.cancel)?;
        let fingerprint = fingerprint(&layout, &output)?;
        let RowOutput::File { len, crc, .. } = output else {
            return Err(Error::query("the table's rows are not in a file"));
        };
        self.check_share(len)?;
        let num_rows = len / layout.stride() as u64;
        let header = npy::header(&layout, num_rows, start)?;
        let facts = runs.facts()?;
        let footer = footer_of_file(num_rows, start as u64, &layout, &fingerprint, runs.phases, facts.as_deref(), crc)?;
        let io = |error| Error::io(path, error);
        staged.file().write_all_at(&header, 0).map_err(io)?;
        staged.file().write_all_at(&footer, start as u64 + len).map_err(io)?;
        staged.replace(path)?;
        StepTable::map(path, None)
    }

    /// Writes each partition's rows directly to their final place.
    fn write_in_place(&self, plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>, pieces: &[Piece]) -> Filled {
        let num_rows: u64 = pieces.iter().map(Piece::num_rows).sum();
        let num_bytes = self.check_limit(num_rows)?;
        self.progress.begin("materialize", Unit::Rows, num_rows);
        let mut region = Region::reserve(num_bytes)?;
        let mut rest = &mut region.bytes_mut()[..num_bytes as usize];
        let mut first_row = 0;
        let mut parts = Vec::new();
        for piece in pieces {
            let (part, after) = rest.split_at_mut(piece.num_rows() as usize * self.stride());
            parts.push((piece, first_row, part));
            rest = after;
            first_row += piece.num_rows();
        }
        let parts = Mutex::new(parts.into_iter());
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.on_all_cores(context, |stop| {
            while let Some((piece, first_row, part)) = next() {
                let mut at = 0;
                self.read(plan, context, piece, stop, |batch| {
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

    /// Reads partitions on all cores. Each thread buffers a partition's rows and appends them in partition
    /// order.
    fn append_in_order<'o>(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        pieces: &[Piece],
        output: RowOutput<'o>,
    ) -> Result<RowOutput<'o>> {
        let max: u64 = pieces.iter().map(Piece::num_rows).sum();
        self.progress.begin("materialize", Unit::Rows, max);
        let output = Sequencer::new(output);
        let next = AtomicUsize::new(0);
        self.on_all_cores(context, |stop| {
            let mut buffer: Vec<u8> = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(piece) = pieces.get(place) else {
                    return Ok(());
                };
                buffer.clear();
                let mut read_rows = 0;
                let read = self.read_ahead(plan, context, piece, stop, |batch| {
                    let start = buffer.len();
                    reserve(&mut buffer, batch.num_rows() * self.stride())?;
                    buffer.resize(start + batch.num_rows() * self.stride(), 0);
                    read_rows += batch.num_rows();
                    let base = (start / self.stride()) as u64;
                    self.writer.write(&batch, &mut buffer[start..]).map_err(|error| at_row(error, base))
                });
                let mut output = output.wait(place, stop, self.cancel)?;
                let first_row = (output.len() / self.stride()) as u64;
                read.map_err(|error| at_row(error, first_row))?;
                output.append(&buffer)?;
                output.next(place + 1);
                self.progress.advance(piece.num_rows().saturating_sub(read_rows as u64));
            }
        })?;
        Ok(output.into_inner())
    }

    /// Appends the rows of one stream in its order.
    fn append_stream<'o>(&self, mut stream: QueryStream, mut output: RowOutput<'o>) -> Result<RowOutput<'o>> {
        self.progress.begin("materialize", Unit::Rows, 0);
        let mut buffer = Vec::new();
        let all = std::slice::from_ref(&(0..u64::MAX));
        let chosen: &[Range<u64>] = match self.share.map(|share| &share.rows) {
            Some(ShareRows::Result(ranges)) => ranges,
            _ => all,
        };
        let (end, mut start) = (chosen.last().map_or(0, |range| range.end), 0);
        while start < end {
            let Some(batch) = stream.next_unless_cancelled(self.cancel)? else { break };
            for rows in rows_within(&batch, start, chosen) {
                let base = (output.len() / self.stride()) as u64;
                buffer.clear();
                reserve(&mut buffer, rows.num_rows() * self.stride())?;
                buffer.resize(rows.num_rows() * self.stride(), 0);
                self.writer.write(&rows, &mut buffer).map_err(|error| at_row(error, base))?;
                output.append(&buffer)?;
            }
            start += batch.num_rows() as u64;
            self.progress.advance(batch.num_rows() as u64);
        }
        Ok(output)
    }

    /// Passes a piece's batches to `take`. This thread computes them, which is the fastest way if batches
    /// come steadily. There must be no filter that could drop all rows for long, because limits are checked
    /// only between batches.
    fn read(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        piece: &Piece,
        stop: &FirstError,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        // The reader accesses files through the runtime's threads.
        let threads = runtime()?;
        let _in_runtime = threads.handle().enter();
        let mut stream = plan.execute(piece.partition, Arc::clone(context)).map_err(query_error)?;
        let mut rows = PieceRows::of(piece);
        while !rows.is_complete()
            && let Some(batch) = futures::executor::block_on(stream.next())
        {
            self.check(stop)?;
            let batch = batch.map_err(query_error)?;
            rows.of_batch(&batch).try_for_each(|batch| self.take(batch, &mut take))?;
        }
        Ok(())
    }

    /// Passes a piece's batches to `take`. The runtime's threads compute them, so limits hold even while no
    /// batch comes.
    fn read_ahead(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
        piece: &Piece,
        stop: &FirstError,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut partition = Partition::start(plan, context, piece.partition)?;
        let mut rows = PieceRows::of(piece);
        while !rows.is_complete()
            && let Some(batch) = partition.next(|| self.check(stop))?
        {
            rows.of_batch(&batch).try_for_each(|batch| self.take(batch, &mut take))?;
        }
        Ok(())
    }

    fn check(&self, stop: &FirstError) -> Result<()> {
        stop.check(self.cancel)?;
        self.limits.check(self.cancel)
    }

    fn take(&self, batch: RecordBatch, take: &mut impl FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.limits.count(&batch)?;
        let num_rows = batch.num_rows() as u64;
        take(batch)?;
        self.progress.advance(num_rows);
        Ok(())
    }

    /// Runs `work` on one thread per core. The first error stops all threads and is returned.
    fn on_all_cores(&self, context: &TaskContext, work: impl Fn(&FirstError) -> Result<()> + Sync) -> Result<()> {
        let num_threads = context.session_config().target_partitions();
        on_cores(num_threads, work).map_err(|error| self.limits.explain(error))
    }
}
