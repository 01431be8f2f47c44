//! A whole table as Arrow data: rows without a copy, columns chunk by chunk.

use crate::error::Result;
use crate::system::cancellation::CancellationToken;
use crate::table::columns::attached::AttachedColumn;
use crate::table::gather::arena::Arena;
use crate::table::gather::batch::Batch;
use crate::table::gather::batch_schema::BatchSchema;
use crate::table::rows::memory::FrozenRegion;
use crate::table::rows::zeroed::Zeroed;
use crate::table::step_table::StepTable;
use arrow::array::{FixedSizeBinaryArray, RecordBatch, RecordBatchReader};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// The maximum and minimum number of rows of a chunk. A full chunk of usual rows is a megabyte or two of
/// columns.
const CHUNK: u64 = 1 << 16;
const MIN_CHUNK: u64 = 1 << 12;
/// The size of a chunk's columns in bytes, above which a chunk has fewer rows.
const CHUNK_BYTES: u64 = 16 << 20;

struct SharedRows(Arc<FrozenRegion>);

impl AsRef<[u8]> for SharedRows {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl StepTable {
    /// Returns the rows as Arrow's `FixedSizeBinary(stride)`. The array shares the table's memory; a view's
    /// rows are copied.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the copy cannot be allocated.
    pub fn rows_array(&self) -> Result<FixedSizeBinaryArray> {
        let buffer = match self.rows() {
            Some(_) => Buffer::from(Bytes::from_owner(SharedRows(Arc::clone(&self.rows)))),
            None => {
                let mut rows = Zeroed::new(self.num_bytes() as usize)?;
                self.copy_all_rows(rows.bytes_mut(), CancellationToken::never())?;
                Buffer::from(Bytes::from_owner(rows))
            }
        };
        Ok(FixedSizeBinaryArray::try_new(self.layout.stride() as i32, buffer, None).map_err(std::io::Error::other)?)
    }

    /// Returns the columns of [`column_reader`](StepTable::column_reader).
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.table_schema(|_| true).arrow)
    }

    /// Returns one of the columns of [`column_reader`](StepTable::column_reader), of all rows; `None` if there is no
    /// column of this name.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn column(&self, name: &str, cancel: &CancellationToken) -> Result<Option<Batch>> {
        let schema = self.table_schema(|column| column == name);
        if schema.arrow.fields().is_empty() {
            return Ok(None);
        }
        self.columns_of(0..self.num_rows(), &schema, cancel).map(Some)
    }

    /// Returns a reader of the columns of all rows. It transposes them lazily, in chunks of 65,536 rows, or
    /// fewer if rows are wide.
    ///
    /// The columns are `board` uint64, `ev_values` fixed-size list of four float32, `run_id` uint32,
    /// `step_index` uint16, `move` and `ev_legal` (a mask) uint8. Then come the extra columns, and each
    /// attached column as a fixed-size list.
    #[must_use]
    pub fn column_reader(&self) -> ColumnReader {
        let schema = self.table_schema(|_| true);
        let chunk = (CHUNK_BYTES / schema.width() as u64).clamp(MIN_CHUNK, CHUNK);
        ColumnReader { table: self.clone(), schema, chunk, next_row: 0 }
    }

    /// Returns the schema of those columns of the table whose name `keep` accepts.
    fn table_schema(&self, keep: impl Fn(&str) -> bool) -> Arc<BatchSchema> {
        Arc::new(BatchSchema::of_table(&self.layout, AttachedColumn::specs(&self.attached), keep))
    }

    /// Returns the columns of a range of rows in new memory.
    fn columns_of(&self, range: Range<u64>, schema: &Arc<BatchSchema>, cancel: &CancellationToken) -> Result<Batch> {
        let num_rows = (range.end - range.start) as usize;
        let mut arena = Arena::new(schema, num_rows)?;
        let mut columns = arena.columns_mut(schema, num_rows);
        let (mut positions, mut rows) = (Vec::new(), Vec::new());
        for start in range.clone().step_by(schema.rows_at_once()) {
            cancel.check()?;
            positions.clear();
            positions.extend(start..range.end.min(start + schema.rows_at_once() as u64));
            let columns = schema.split_front(&mut columns, positions.len());
            self.gather(&positions, &mut rows, schema, columns, None)?;
        }
        drop(columns);
        Ok(Batch::new(Arc::new(arena), Arc::clone(schema), num_rows))
    }
}

/// The columns of a table, chunk by chunk; see [`StepTable::column_reader`].
#[derive(Debug)]
pub struct ColumnReader {
    table: StepTable,
    schema: Arc<BatchSchema>,
    /// The number of rows of a chunk.
    chunk: u64,
    next_row: u64,
}

impl Iterator for ColumnReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let end = self.table.num_rows().min(self.next_row + self.chunk);
        let start = std::mem::replace(&mut self.next_row, end);
        let columns = || self.table.columns_of(start..end, &self.schema, CancellationToken::never())?.to_record_batch();
        (start < end).then(|| columns().map_err(|error| ArrowError::ExternalError(error.into())))
    }
}

impl RecordBatchReader for ColumnReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema.arrow)
    }
}
