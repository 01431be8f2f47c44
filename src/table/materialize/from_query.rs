//! Running a query into a table.
//!
//! One thread per core reads the ordered partitions of a plan. If the number of rows of each partition is known
//! in advance, each thread writes rows to their final place. After a filter it is not known. Then a thread
//! buffers a partition (one row group) and appends it after all earlier partitions. Any other plan is read as
//! one stream, and its rows are sorted at the end unless it has an ORDER BY.
//!
//! A result that is larger than memory goes to a file in the same way and is mapped from there.

use crate::archive::{TableName, table_schema};
use crate::error::{Error, Result};
use crate::query::{Execution, Partition, Query, QueryLimits, QueryStream, Rows, no_params, query_error};
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::system::process::lock;
use crate::system::progress::{Progress, Unit};
use crate::system::runtime::{PERIOD, block_for, runtime};
use crate::table::files::file::absolute;
use crate::table::materialize::chosen_columns::ChosenColumns;
use crate::table::materialize::materialize_options::MaterializeOptions;
use crate::table::materialize::pieces::{Piece, PieceRows};
use crate::table::rows::categories::{MAX_CATEGORIES, is_categorical};
use crate::table::rows::element::ElementType;
use crate::table::rows::memory::memory_limit;
use crate::table::rows::row_order::sort_rows;
use crate::table::rows::row_output::{FinalChange, RowFile, RowMemory, RowOutput};
use crate::table::rows::row_writer::{RowWriter, at_row};
use crate::table::rows::runs::Runs;
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK};
use crate::table::rows::threads::{Sequencer, StopOnError, on_cores};
use crate::table::rows::wide::{Attempt, WideColumns};
use crate::table::step_table::StepTable;
use arrow::array::RecordBatch;
use datafusion::execution::TaskContext;
use futures::StreamExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
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
    /// from the user's tables, and that the rows leave out, unless the options choose the columns of a row.
    ///
    /// If a query only filters and selects rows of one table, they have that table's order: `steps` is in the order of
    /// `(run_id, step_index)`. With an ORDER BY, rows have its order. Any other table is sorted by run, step and the
    /// bytes of the rows. So a query that determines its rows, and the order of rows that its ORDER BY leaves equal,
    /// always gives the same table, on any number of threads.
    ///
    /// # Errors
    /// [`ErrorKind::Column`](crate::ErrorKind::Column) if a column is missing, or its type or a value does not fit;
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for contradictory columns, and for a file in the archive;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit), before any allocation if the number of rows is known
    /// in advance; [`ErrorKind::Query`](crate::ErrorKind::Query);
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
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
        let all = RowWriter::new(&result.schema(), extra, options.chosen_ev, &Attempt::default())?.columns();
        // A rank reads its own row groups.
        let here = if options.shard.is_some() { result.here() } else { result.clone() };
        let needed = here.select(&all)?;
        let shard = options.shard.map(|shard| shard.of_query(&needed, progress, cancel)).transpose()?;
        let (categories, wide) = match shard {
            Some(_) => (categories_of(&needed, extra, cancel)?, wide_columns_of(&needed, extra, cancel)?),
            None => (Vec::new(), WideColumns::default()),
        };
        let mut table = wide.or_more(|attempt| {
            let writer = RowWriter::new(&needed.schema(), extra, options.chosen_ev, attempt)?;
            writer.preset_categories(&categories)?;
            let shard = shard.as_ref().map(|(_, pieces)| pieces.as_slice());
            let materializer =
                Materializer { query: &needed, writer: &writer, limits: needed.limits(), shard, progress, cancel };
            materializer.run(options).map_err(|error| self.archive().blame(error))
        })?;
        table.shard = shard.map(|(shard, _)| shard);
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
        let has_tiles = runs.and_then(|runs| runs.count(CancellationToken::never())).is_ok_and(|num_runs| num_runs > 0);
        has_tiles && (0..table.num_rows()).any(|row| table.step(row).is_some_and(|step| step.board.max_exp() == 15))
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
        Ok(is_chosen && query.archive().sql(&sql, no_params())?.count(cancel)? > 0)
    };
    Ok(WideColumns {
        masks: any(TILE_MASK, "highest_tile >= 65536")?,
        step_indices: any(STEP_INDEX, "greatest(num_steps, coalesce(game_steps, 0)) > 65536")?,
    })
}

/// A query run that fills a table.
struct Materializer<'a> {
    query: &'a Query,
    writer: &'a RowWriter<'a>,
    limits: Arc<QueryLimits>,
    /// The rows to copy; `None` = all.
    shard: Option<&'a [Piece]>,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
}

impl Materializer<'_> {
    fn stride(&self) -> usize {
        self.writer.layout.stride()
    }

    fn run(&self, options: &MaterializeOptions) -> Result<StepTable> {
        let execution = self.query.execution(&self.limits, self.cancel)?;
        let limit = memory_limit(options.memory_limit);
        let has_run_ids = self.writer.run_id.is_some();
        let runs = Runs::of_archive(self.query.archive(), self.query.text_hash(), has_run_ids);
        let create = |path| RowFile::create(&absolute(path)?, &self.writer.layout, &runs);
        let file = options.path.as_deref().map(create).transpose()?;
        let is_in_memory = file.is_none();
        let output = |num_rows: u64| match file {
            Some(file) => Ok(RowOutput::File(file, blake3::Hasher::new())),
            None => RowMemory::up_to(num_rows.saturating_mul(self.stride() as u64), limit).map(RowOutput::Memory),
        };
        let is_sorted = execution.rows.has_order();
        let output = match &execution.rows {
            Rows::InOrder { skip: 0, fetch: None, max_rows, is_exact } => {
                let pieces = self.shard.map_or_else(|| Piece::all(max_rows), <[Piece]>::to_vec);
                let num_rows: u64 = pieces.iter().map(Piece::num_rows).sum();
                // The number of rows of a shard's pieces is known in advance, too.
                if is_in_memory && (*is_exact || self.shard.is_some()) {
                    let mut memory = RowMemory::exact(num_rows.saturating_mul(self.stride() as u64), limit)?;
                    let written = self.write_in_place(&execution, &pieces, &mut memory);
                    written.map(|()| RowOutput::Memory(memory))
                } else {
                    self.append_in_order(&execution, &pieces, output(num_rows)?)
                }
            }
            _ => self.append_stream(self.query.stream_of(execution, Arc::clone(&self.limits)), output(u64::MAX)?),
        };
        self.progress.end();
        let (layout, recoding) = self.writer.recoding();
        let change = |rows: &mut [u8]| {
            if recoding.is_needed() {
                recoding.apply(rows)?;
            }
            if !is_sorted {
                sort_rows(rows, &layout)?;
            }
            Ok(())
        };
        let is_changed = recoding.is_needed() || !is_sorted;
        let change: Option<FinalChange<'_>> = if is_changed { Some(&change) } else { None };
        output?.into_table(layout.clone(), runs, change, self.cancel)
    }

    /// Writes each partition's rows directly to their final place.
    fn write_in_place(&self, execution: &Execution, pieces: &[Piece], memory: &mut RowMemory) -> Result<()> {
        let num_rows: u64 = pieces.iter().map(Piece::num_rows).sum();
        self.progress.begin("materialize", Unit::Rows, num_rows);
        let mut rest = memory.extend(num_rows as usize * self.stride())?;
        let mut first_row = 0;
        let mut parts = Vec::new();
        for piece in pieces {
            let (part, after) = rest.split_at_mut(piece.num_rows() as usize * self.stride());
            parts.push((piece, first_row, part));
            rest = after;
            first_row += piece.num_rows();
        }
        let parts = Mutex::new(parts.into_iter().enumerate());
        let next = || lock(&parts).next();
        let write = |piece: &Piece, first_row: u64, part: &mut [u8], stop: &StopOnError| {
            let mut at = 0;
            self.read(execution, piece, stop, |batch| {
                let len = batch.num_rows() * self.stride();
                let Some(rows) = part.get_mut(at..at + len) else {
                    return Err(Error::query("a data file has more rows than its footer lists"));
                };
                let base = first_row + (at / self.stride()) as u64;
                self.writer.write(&batch, rows).map_err(|error| at_row(error, base))?;
                at += len;
                Ok(())
            })?;
            match at == part.len() {
                true => Ok(()),
                false => Err(Error::query("a data file has fewer rows than its footer lists")),
            }
        };
        // After an error, the other threads finish their pieces. So the returned error is always the error of the first
        // bad row.
        let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
        self.on_all_cores(&execution.context, |stop| {
            while lock(&failed).is_none()
                && let Some((place, (piece, first_row, part))) = next()
            {
                if let Err(error) = write(piece, first_row, part, stop) {
                    let mut failed = lock(&failed);
                    if failed.as_ref().is_none_or(|&(other, _)| place < other) {
                        *failed = Some((place, error));
                    }
                }
            }
            Ok(())
        })?;
        lock(&failed).take().map_or(Ok(()), |(_, error)| Err(self.limits.explain(error)))
    }

    /// Reads partitions on all cores. Each thread buffers a partition's rows and appends them in partition
    /// order.
    fn append_in_order(&self, execution: &Execution, pieces: &[Piece], output: RowOutput) -> Result<RowOutput> {
        let max: u64 = pieces.iter().map(Piece::num_rows).sum();
        self.progress.begin("materialize", Unit::Rows, max);
        let output = Sequencer::new(output);
        let next = AtomicUsize::new(0);
        self.on_all_cores(&execution.context, |stop| {
            let mut buffer: Vec<u8> = Vec::new();
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(piece) = pieces.get(place) else { return Ok(()) };
                buffer.clear();
                let mut read_rows = 0;
                let read = self.read_ahead(execution, piece, stop, |batch| {
                    let start = buffer.len();
                    reserve(&mut buffer, batch.num_rows() * self.stride())?;
                    buffer.resize(start + batch.num_rows() * self.stride(), 0);
                    read_rows += batch.num_rows();
                    let base = (start / self.stride()) as u64;
                    self.writer.write(&batch, &mut buffer[start..]).map_err(|error| at_row(error, base))
                });
                output.in_turn(place, stop, self.cancel, |output| {
                    read.map_err(|error| at_row(error, output.len() / self.stride() as u64))?;
                    output.append(&buffer)
                })?;
                self.progress.advance(piece.num_rows().saturating_sub(read_rows as u64));
            }
        })?;
        Ok(output.into_inner())
    }

    /// Appends the rows of one stream in its order.
    fn append_stream(&self, mut stream: QueryStream, mut output: RowOutput) -> Result<RowOutput> {
        self.progress.begin("materialize", Unit::Rows, 0);
        let mut buffer = Vec::new();
        let mut num_rows = 0;
        while let Some(batch) = stream.next_batch(self.cancel)? {
            buffer.clear();
            reserve(&mut buffer, batch.num_rows() * self.stride())?;
            buffer.resize(batch.num_rows() * self.stride(), 0);
            self.writer.write(&batch, &mut buffer).map_err(|error| at_row(error, num_rows))?;
            output.append(&buffer)?;
            num_rows += batch.num_rows() as u64;
            self.progress.advance(batch.num_rows() as u64);
        }
        Ok(output)
    }

    /// Passes a piece's batches to `take`. This thread computes them, which is the fastest way if batches
    /// come steadily. There must be no filter that could drop all rows for long, because limits are checked
    /// only between batches.
    fn read(
        &self,
        execution: &Execution,
        piece: &Piece,
        stop: &StopOnError,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        // The reader accesses files through the runtime's threads.
        let threads = runtime()?;
        let _in_runtime = threads.handle().enter();
        let mut stream =
            execution.plan.execute(piece.partition, Arc::clone(&execution.context)).map_err(query_error)?;
        let mut rows = PieceRows::of(piece);
        while !rows.is_complete() {
            self.check(stop)?;
            match block_for(PERIOD, stream.next()) {
                None => {}
                Some(None) => break,
                Some(Some(batch)) => {
                    let batch = batch.map_err(query_error)?;
                    rows.of_batch(&batch).try_for_each(|batch| self.take(batch, &mut take))?;
                }
            }
        }
        Ok(())
    }

    /// Passes a piece's batches to `take`. The runtime's threads compute them, so limits hold even while no
    /// batch comes.
    fn read_ahead(
        &self,
        execution: &Execution,
        piece: &Piece,
        stop: &StopOnError,
        mut take: impl FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let mut partition =
            Partition::start(&execution.plan, &execution.context, Some(piece.partition), Partition::AHEAD)?;
        let mut rows = PieceRows::of(piece);
        while !rows.is_complete()
            && let Some(batch) = partition.next(|| self.check(stop))?
        {
            rows.of_batch(&batch).try_for_each(|batch| self.take(batch, &mut take))?;
        }
        Ok(())
    }

    fn check(&self, stop: &StopOnError) -> Result<()> {
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
    fn on_all_cores(&self, context: &TaskContext, work: impl Fn(&StopOnError) -> Result<()> + Sync) -> Result<()> {
        let num_threads = context.session_config().target_partitions();
        on_cores(num_threads, work).map_err(|error| self.limits.explain(error))
    }
}
