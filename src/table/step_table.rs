//! [`StepTable`]: its rows, and taking some of them as columns or as they are.

use crate::error::{ErrorKind, Result};
use crate::format::Rejected;
use crate::step::Step;
use crate::system::cancellation::CancellationToken;
use crate::system::machine::reserve;
use crate::table::columns::attached::AttachedColumn;
use crate::table::gather::arena::{Arena, ArenaPool};
use crate::table::gather::batch::Batch;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers};
use crate::table::gather::symmetry::SymmetryKey;
use crate::table::gather::take::{self, TableRows};
use crate::table::materialize::shard::Shard;
use crate::table::rows::element::ElementType;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::memory::FrozenRegion;
use crate::table::rows::runs::{Origin, Runs};
use crate::table::rows::selection::Selection;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The number of batches whose memory a table keeps for the next `take`.
const TAKES_KEPT: usize = 2;
/// The number of whole rows that are copied between two cancellation checks.
const ROWS_AT_ONCE: usize = 1 << 18;

/// The rows of a query result in one contiguous, read-only mapping. Clones share the mapping.
///
/// A row is a [`Step`] of 32 bytes, followed by any extra columns; see [`RowLayout`].
///
#[cfg_attr(feature = "sql", doc = "```")]
#[cfg_attr(not(feature = "sql"), doc = "```ignore")]
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// let cancel = a2store::CancellationToken::new();
/// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
/// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
/// let query = archive.sql("SELECT * FROM steps", a2store::query::no_params())?;
/// let table = query.materialize(&a2store::MaterializeOptions::default(), &(), &cancel)?;
/// assert_eq!(table.num_bytes(), 32 * table.num_rows());
///
/// let batch = table.take(&[5, 0, 5])?;
/// assert_eq!(batch.num_rows(), 3);
/// assert_eq!(table.step(5).unwrap().step_index, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StepTable {
    pub(in crate::table) rows: Arc<FrozenRegion>,
    pub(in crate::table) layout: Arc<RowLayout>,
    /// The fingerprint of all rows in the mapping.
    pub(in crate::table) whole_fingerprint: Fingerprint,
    /// Scores and engines of the runs that the rows belong to.
    pub(in crate::table) runs: Arc<Runs>,
    /// The rows of a view and its fingerprint; `None` if the table shows all rows.
    pub(in crate::table) selection: Option<Arc<Selection>>,
    view_fingerprint: Option<Fingerprint>,
    /// Columns whose values lie in other mappings.
    pub(in crate::table) attached: Arc<[AttachedColumn]>,
    pub(in crate::table) errors: Arc<[Rejected]>,
    /// The share that the rows are; `None` for other tables and for views.
    pub(in crate::table) shard: Option<Shard>,
    /// The schema of the batches that `take` returns, and memory for them.
    batch: Arc<BatchSchema>,
    pool: Arc<Mutex<ArenaPool>>,
}

impl StepTable {
    pub(in crate::table) fn new(
        rows: FrozenRegion,
        layout: RowLayout,
        fingerprint: Fingerprint,
        runs: Runs,
    ) -> Result<StepTable> {
        let batch = BatchSchema::new(&layout, Vec::new(), ElementType::UInt8, None)?;
        Ok(StepTable {
            rows: Arc::new(rows),
            layout: Arc::new(layout),
            whole_fingerprint: fingerprint,
            runs: Arc::new(runs),
            selection: None,
            view_fingerprint: None,
            attached: Arc::new([]),
            errors: Arc::new([]),
            shard: None,
            batch: Arc::new(batch),
            pool: Arc::new(Mutex::new(ArenaPool::new(TAKES_KEPT))),
        })
    }

    /// Returns the errors of the runs and files that were skipped, in order. Views have the same errors.
    ///
    /// Only tables loaded with [`FromRunsOptions::skip_errors`](super::FromRunsOptions::skip_errors) have any.
    #[must_use]
    pub fn errors(&self) -> &[Rejected] {
        &self.errors
    }

    /// Returns the number of rows. A view counts only its own rows.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.selection.as_ref().map_or_else(|| self.num_all_rows(), |selection| selection.len())
    }

    /// Returns the share that the rows are, if [`Query::materialize`](crate::Query::materialize) copied a share; `None`
    /// for views and for tables from files.
    #[must_use]
    pub fn shard(&self) -> Option<Shard> {
        self.shard
    }

    /// Returns the size of the rows in bytes.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.num_rows() * self.layout.stride() as u64
    }

    /// Returns the byte layout of a row.
    #[must_use]
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Returns the fingerprint of the rows and their order. Tables of equal fingerprint have equal rows.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        self.view_fingerprint.as_ref().unwrap_or(&self.whole_fingerprint)
    }

    /// Returns whether this is a view, as [`filter`](StepTable::filter) and [`split`](StepTable::split) return. A
    /// view shows some of a table's rows.
    #[must_use]
    pub fn is_view(&self) -> bool {
        self.selection.is_some()
    }

    /// Returns the file that the rows are mapped from, if any.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.rows.path()
    }

    /// Returns the rows, [`stride`](RowLayout::stride) bytes each; `None` for a view, whose rows are not contiguous.
    #[must_use]
    pub fn rows(&self) -> Option<&[u8]> {
        self.selection.is_none().then(|| self.rows.bytes())
    }

    /// Returns the attached columns, in the order of attachment.
    #[must_use]
    pub fn attached(&self) -> &[AttachedColumn] {
        &self.attached
    }

    /// Returns the step at `index`, without its extra columns, or `None` if `index` is out of bounds. Its step index is
    /// at most 65,535; the column `step_index` of a [`Batch`] has all of it.
    #[must_use]
    pub fn step(&self, index: u64) -> Option<Step> {
        if index >= self.num_rows() {
            return None;
        }
        let mut position = [index];
        self.map_positions(&mut position);
        Some(self.layout.step_of(self.all_rows().at(position[0])))
    }

    /// Returns the rows at `indices` as columns, in the order of `indices` and with repetitions.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`] with the first index that is out of bounds; [`ErrorKind::OutOfMemory`].
    pub fn take(&self, indices: &[u64]) -> Result<Batch> {
        self.take_with_cancel(indices, CancellationToken::never())
    }

    /// Does the same as [`take`](StepTable::take), and checks for cancellation every few milliseconds.
    ///
    /// # Errors
    /// The errors of [`take`](StepTable::take), and [`ErrorKind::Cancelled`].
    pub fn take_with_cancel(&self, indices: &[u64], cancel: &CancellationToken) -> Result<Batch> {
        let len = self.num_rows();
        if !take::are_below(indices, len) {
            let index = indices.iter().copied().find(|&index| index >= len).unwrap_or_default();
            return Err(ErrorKind::IndexOutOfBounds { index: index.into(), len }.into());
        }
        // In a forked process, a thread that no longer exists may hold the lock.
        let mut arena = match self.pool.try_lock() {
            Ok(mut pool) => pool.take(&self.batch, indices.len())?,
            Err(_) => Arc::new(Arena::new(&self.batch, indices.len())?),
        };
        if let Some(arena) = Arc::get_mut(&mut arena) {
            let mut columns = arena.columns_mut(&self.batch, indices.len());
            let mut rows = Vec::new();
            for (k, indices) in indices.chunks(self.batch.rows_at_once()).enumerate() {
                if k > 0 {
                    cancel.check()?;
                }
                let columns = self.batch.split_front(&mut columns, indices.len());
                self.gather(indices, &mut rows, &self.batch, columns, None)?;
            }
        }
        if let Ok(mut pool) = self.pool.try_lock() {
            pool.keep(&arena);
        }
        Ok(Batch::new(arena, Arc::clone(&self.batch), indices.len()))
    }

    /// Copies all rows, in order, to `out`, which has exactly their size.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn copy_all_rows(&self, out: &mut [u8], cancel: &CancellationToken) -> Result<()> {
        let (mut start, at_once) = (0, ROWS_AT_ONCE * self.layout.stride());
        for rows in self.row_chunks() {
            let end = start + rows.len();
            // A view may have many small ranges, and a check takes longer than the copy of a few rows.
            if start / at_once < end / at_once {
                cancel.check()?;
            }
            out[start..end].copy_from_slice(rows);
            start = end;
        }
        Ok(())
    }

    /// Iterates over all rows, in order, in slices of at most [`ROWS_AT_ONCE`] contiguous rows.
    pub(in crate::table) fn row_chunks(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, stride) = (self.rows.bytes(), self.layout.stride());
        self.ranges().into_iter().flat_map(move |range| {
            let rows = &bytes[range.start as usize * stride..range.end as usize * stride];
            rows.chunks(ROWS_AT_ONCE * stride)
        })
    }

    /// Fills columns with the rows at `positions`. `rows` is scratch memory for the row indices of a view.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`], unless `rows` has capacity for all positions.
    ///
    /// # Panics
    /// If a position is not below the number of rows.
    pub(crate) fn gather(
        &self,
        positions: &[u64],
        rows: &mut Vec<u64>,
        schema: &BatchSchema,
        columns: ColumnBuffers<'_>,
        symmetries: Option<SymmetryKey>,
    ) -> Result<()> {
        let symmetries = symmetries.map(|key| (key, positions));
        match &self.selection {
            None => take::gather(self.all_rows(), positions, schema, columns, symmetries),
            Some(selection) => {
                rows.clear();
                reserve(rows, positions.len())?;
                rows.extend_from_slice(positions);
                selection.map(rows);
                take::gather(self.all_rows(), rows, schema, columns, symmetries);
            }
        }
        Ok(())
    }

    /// Iterates over all values of an extra column, in row order. Each slice begins with the value.
    pub(crate) fn extra_bytes(&self, extra: &ExtraField) -> impl Iterator<Item = &[u8]> {
        let (stride, offset) = (self.layout.stride(), extra.offset);
        self.row_chunks().flat_map(move |rows| rows.chunks_exact(stride).map(move |row| &row[offset..]))
    }

    /// Advises the system that rows of a mapped file will be read soon, or not for long. Rows in memory are
    /// unaffected.
    pub(crate) fn advise(&self, positions: std::ops::Range<u64>, soon: bool) {
        let is_mapped = self.path().is_some() || !self.attached.is_empty();
        if !is_mapped || positions.is_empty() {
            return;
        }
        // A view's rows are in ascending order, and skipping the rows between them would save little.
        let mut ends = [positions.start, positions.end - 1];
        self.map_positions(&mut ends);
        let stride = self.layout.stride();
        self.rows.advise(ends[0] as usize * stride..(ends[1] + 1) as usize * stride, soon);
        self.attached.iter().for_each(|column| column.advise(ends[0]..ends[1] + 1, soon));
    }

    /// Returns the archive, the version and the query that the rows come from.
    pub(crate) fn origin(&self) -> &Origin {
        &self.runs.origin
    }

    /// Returns the schema of this table's batches: all columns, or the named ones.
    pub(crate) fn batch_schema(&self, tokens: ElementType, only: Option<&[String]>) -> Result<BatchSchema> {
        BatchSchema::new(&self.layout, AttachedColumn::specs(&self.attached), tokens, only)
    }

    /// Returns a view of these rows of the mapping.
    pub(in crate::table) fn of_selection(&self, selection: Selection) -> StepTable {
        let view_fingerprint = Some(self.whole_fingerprint.of_view(&selection));
        StepTable { selection: Some(Arc::new(selection)), view_fingerprint, shard: None, ..self.clone() }
    }

    /// Returns this table with one more column.
    pub(in crate::table) fn with_column(&self, column: AttachedColumn) -> Result<StepTable> {
        let attached: Arc<[AttachedColumn]> = self.attached.iter().cloned().chain([column]).collect();
        let batch = BatchSchema::new(&self.layout, AttachedColumn::specs(&attached), ElementType::UInt8, None)?;
        let pool = Arc::new(Mutex::new(ArenaPool::new(TAKES_KEPT)));
        Ok(StepTable { attached, batch: Arc::new(batch), pool, ..self.clone() })
    }

    /// Returns the ranges of the mapping's rows that this table or view shows.
    pub(in crate::table) fn ranges(&self) -> Vec<Range<u64>> {
        match &self.selection {
            None if self.num_rows() == 0 => Vec::new(),
            None => std::iter::once(0..self.num_all_rows()).collect(),
            Some(selection) => selection.ranges().collect(),
        }
    }

    pub(in crate::table) fn all_rows(&self) -> TableRows<'_> {
        TableRows { bytes: self.rows.bytes(), stride: self.layout.stride(), attached: &self.attached }
    }

    pub(in crate::table) fn num_all_rows(&self) -> u64 {
        (self.rows.bytes().len() / self.layout.stride()) as u64
    }

    /// Replaces positions by their row indices in the mapping. Every position must be below the number of rows.
    pub(in crate::table) fn map_positions(&self, positions: &mut [u64]) {
        if let Some(selection) = &self.selection {
            selection.map(positions);
        }
    }
}

/// Returns the parts of ascending ranges that lie in a chunk.
pub(in crate::table) fn within(ranges: &[Range<u64>], chunk: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let from = ranges.partition_point(|range| range.end <= chunk.start);
    let touched = ranges[from..].iter().take_while(move |range| range.start < chunk.end);
    touched.map(move |range| range.start.max(chunk.start)..range.end.min(chunk.end))
}

impl fmt::Debug for StepTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepTable")
            .field("num_rows", &self.num_rows())
            .field("stride", &self.layout.stride())
            .field("fingerprint", &self.fingerprint().to_string())
            .field("attached", &self.attached.iter().map(AttachedColumn::name).collect::<Vec<_>>())
            .finish()
    }
}
