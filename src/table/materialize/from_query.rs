//! Running a query into a table.
//!
//! If the number of rows of each partition is known in advance, one thread per core reads the partitions and writes
//! rows to their final place. Any other result is read as one stream. Its rows are sorted at the end unless the query
//! determines their order.
//!
//! A result that is larger than memory goes to a file in the same way and is mapped from there.

use crate::archive::{TableName, table_schema};
use crate::error::{Error, Result};
use crate::query::{Execution, Query, QueryLimits, Rows, no_params, query_error};
use crate::system::cancellation::CancellationToken;
use crate::system::process::lock;
use crate::system::progress::{Progress, Unit};
use crate::system::runtime::runtime;
use crate::table::files::file::absolute;
use crate::table::materialize::chosen_columns::ChosenColumns;
use crate::table::materialize::materialize_options::MaterializeOptions;
use crate::table::materialize::pieces::{Piece, PieceRows, exact_rows};
use crate::table::rows::categories::{MAX_CATEGORIES, is_categorical};
use crate::table::rows::element::ElementType;
use crate::table::rows::memory::memory_limit;
use crate::table::rows::row_order::sort_rows;
use crate::table::rows::row_output::{FinalChange, RowFile, RowMemory, RowOutput};
use crate::table::rows::row_writer::{RowWriter, at_row};
use crate::table::rows::runs::Runs;
use crate::table::rows::step_column::{STEP_INDEX, TILE_MASK};
use crate::table::rows::threads::in_parts;
use crate::table::rows::wide::WideColumns;
use crate::table::step_table::StepTable;
use futures::StreamExt;
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
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for columns of a row that contradict each other;
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
        let narrow = WideColumns::default();
        let all = RowWriter::new(&result.schema(), extra, options.chosen_ev, narrow)?.columns();
        // A rank reads its own row groups.
        let here = if options.shard.is_some() { result.here() } else { result.clone() };
        let needed = here.select(&all)?;
        let shard = options.shard.map(|shard| shard.of_query(&needed, progress, cancel)).transpose()?;
        let (categories, wide) = match shard {
            Some(_) => (categories_of(&needed, extra, cancel)?, wide_columns_of(&needed, extra, cancel)?),
            None => (Vec::new(), WideColumns::default()),
        };
        let mut table = wide.or_more(|columns| {
            let writer = RowWriter::new(&needed.schema(), extra, options.chosen_ev, columns)?;
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
    writer: &'a RowWriter,
    limits: Arc<QueryLimits>,
    /// The rows to copy; `None` = all.
    shard: Option<&'a [Piece]>,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
}

impl Materializer<'_> {
    fn stride(&self) -> usize {
        self.writer.layout().stride()
    }

    /// Returns the size of rows; `u64::MAX` for an overflow.
    fn num_bytes(&self, num_rows: u64) -> u64 {
        num_rows.saturating_mul(self.stride() as u64)
    }

    fn run(&self, options: &MaterializeOptions) -> Result<StepTable> {
        let execution = self.query.execution(&self.limits, self.cancel)?;
        let limit = memory_limit(options.memory_limit);
        let create = |path| RowFile::create(&absolute(path)?, self.writer.layout());
        let file = options.path.as_deref().map(create).transpose()?;
        let is_sorted = execution.rows.has_order();
        let max_rows = match &execution.rows {
            Rows::InOrder { skip: 0, fetch: None, max_rows } => Some(max_rows.as_slice()),
            _ => None,
        };
        // The rows to read if their number is known in advance.
        let pieces = match (self.shard, max_rows) {
            (Some(pieces), _) => Some(pieces.to_vec()),
            (None, Some(max_rows)) if file.is_none() => {
                exact_rows(&execution.plan, max_rows.len()).as_deref().map(Piece::all)
            }
            _ => None,
        };
        let mut output = match (file, &pieces) {
            (Some(file), _) => RowOutput::File(file, blake3::Hasher::new()),
            (None, Some(pieces)) => RowOutput::Memory(RowMemory::exact(self.num_bytes(total(pieces)), limit)?),
            (None, None) => {
                let most = max_rows.map_or(u64::MAX, |max_rows| max_rows.iter().map(|&rows| rows as u64).sum());
                RowOutput::Memory(RowMemory::up_to(self.num_bytes(most), limit)?)
            }
        };
        let written = match &pieces {
            Some(pieces) => self.append_pieces(&execution, pieces, &mut output),
            None => self.append_stream(execution, &mut output),
        };
        self.progress.end();
        written?;
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
        output.into_table(layout.clone(), Runs::of_archive(self.query.archive()), change, self.cancel)
    }

    /// Appends the rows of pieces. All cores write them, each piece to its place.
    fn append_pieces(&self, execution: &Execution, pieces: &[Piece], output: &mut RowOutput) -> Result<()> {
        self.progress.begin("materialize", Unit::Rows, total(pieces));
        let num_threads = execution.context.session_config().target_partitions();
        // Rows of a file are in memory until they are written, so there is one piece per thread at a time.
        let at_once = match output {
            RowOutput::Memory(_) => pieces.len().max(1),
            RowOutput::File(..) => num_threads,
        };
        let mut first_row = 0;
        for pieces in pieces.chunks(at_once) {
            output.append(self.num_bytes(total(pieces)) as usize, |mut rest| {
                let mut parts = Vec::new();
                for piece in pieces {
                    let (part, after) = rest.split_at_mut(piece.num_rows() as usize * self.stride());
                    parts.push(Mutex::new((first_row, part)));
                    rest = after;
                    first_row += piece.num_rows();
                }
                let write = |number: usize| {
                    // Each part is taken once, so its lock is free.
                    let mut part = lock(&parts[number]);
                    let (first_row, out) = &mut *part;
                    self.write_piece(execution, &pieces[number], *first_row, out)
                };
                let written = in_parts(num_threads, pieces.len(), self.cancel, write);
                written.map(drop).map_err(|error| self.limits.explain(error))
            })?;
        }
        Ok(())
    }

    /// Writes the rows of a piece. This thread computes them, which is the fastest way if batches come steadily. There
    /// must be no filter that could drop all rows for long, because limits are checked only between batches.
    fn write_piece(&self, execution: &Execution, piece: &Piece, first_row: u64, out: &mut [u8]) -> Result<()> {
        // The reader accesses files through the runtime's threads.
        let threads = runtime()?;
        let _in_runtime = threads.handle().enter();
        let mut stream =
            execution.plan.execute(piece.partition, Arc::clone(&execution.context)).map_err(query_error)?;
        let mut rows = PieceRows::of(piece);
        let mut at = 0;
        while !rows.is_complete()
            && let Some(batch) = futures::executor::block_on(stream.next())
        {
            self.limits.check(self.cancel)?;
            let batch = batch.map_err(query_error)?;
            for batch in rows.of_batch(&batch) {
                self.limits.count(&batch)?;
                let len = batch.num_rows() * self.stride();
                let Some(out) = out.get_mut(at..at + len) else {
                    return Err(Error::query("a file has more rows than its footer says"));
                };
                let base = first_row + (at / self.stride()) as u64;
                self.writer.write(&batch, out).map_err(|error| at_row(error, base))?;
                at += len;
                self.progress.advance(batch.num_rows() as u64);
            }
        }
        if at != out.len() {
            return Err(Error::query("a file has fewer rows than its footer says"));
        }
        Ok(())
    }

    /// Appends the rows of one stream in its order.
    fn append_stream(&self, execution: Execution, output: &mut RowOutput) -> Result<()> {
        self.progress.begin("materialize", Unit::Rows, 0);
        let mut stream = self.query.stream_of(execution, Arc::clone(&self.limits));
        let mut num_rows = 0;
        while let Some(batch) = stream.next_unless_cancelled(self.cancel)? {
            output.append(batch.num_rows() * self.stride(), |rows| {
                self.writer.write(&batch, rows).map_err(|error| at_row(error, num_rows))
            })?;
            num_rows += batch.num_rows() as u64;
            self.progress.advance(batch.num_rows() as u64);
        }
        Ok(())
    }
}

/// Returns the number of rows of pieces.
fn total(pieces: &[Piece]) -> u64 {
    pieces.iter().map(Piece::num_rows).sum()
}
