//! Rows of a table as columns, and their Arrow form.

use crate::error::Result;
use crate::table::gather::arena::Arena;
use crate::table::gather::batch_schema::{BatchSchema, ColumnSpec};
use crate::table::rows::element::ElementType;
use arrow::array::{
    ArrayRef, AsArray, BooleanArray, DictionaryArray, FixedSizeListArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::Int16Type;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Rows of a [`StepTable`](crate::StepTable) as columns.
///
/// | column | shape | type | |
/// | --- | --- | --- | --- |
/// | `tokens` | (n, 16) | uint8, int32 or int64 | exponents, row-major, 0 to 15; 16 with `tile_65536_mask` |
/// | `move` | (n,) | uint8 | 0 to 3, UDLR; 255 = none |
/// | `ev_values` | (n, 4) | float32 | 0.0 where illegal, NaN where the step has none |
/// | `ev_legal` | (n, 4) | bool | |
/// | `run_id` | (n,) | uint32 | |
/// | `step_index` | (n,) | uint16 | uint32 if an index of the table exceeds 65,535 |
/// | `board` | (n,) | uint64 | |
/// | extras | (n,), or (n, D) for lists of D values | their own; int16 codes of a column of categories, -1 for null | |
/// | attached | (n, D) | their own | see [`StepTable::attach`](crate::StepTable::attach) |
///
/// Clones share the memory. A loader reuses it after every clone and everything made from a clone is dropped.
#[derive(Clone)]
pub struct Batch {
    arena: Arc<Arena>,
    schema: Arc<BatchSchema>,
    num_rows: usize,
}

/// A column of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct BatchColumn<'a> {
    /// The column's name.
    pub name: &'a str,
    /// The type of the values.
    pub dtype: ElementType,
    /// Values per row: 16, 4 or 1, and any number for an extra or attached column.
    pub values_per_row: usize,
    /// All values as bytes, row after row. A bool is one byte.
    pub bytes: &'a [u8],
    /// The strings behind the codes of a category column.
    pub categories: Option<&'a [String]>,
}

impl Batch {
    pub(crate) fn new(arena: Arc<Arena>, schema: Arc<BatchSchema>, num_rows: usize) -> Batch {
        Batch { arena, schema, num_rows }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Returns the columns.
    pub fn columns(&self) -> impl Iterator<Item = BatchColumn<'_>> {
        (0..self.schema.columns.len()).filter_map(|index| self.at(index))
    }

    /// Returns the column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<BatchColumn<'_>> {
        self.at(self.schema.columns.iter().position(|column| column.name == name)?)
    }

    fn at(&self, index: usize) -> Option<BatchColumn<'_>> {
        let &ColumnSpec { ref name, dtype, values_per_row, ref categories, .. } = self.schema.columns.get(index)?;
        let (bytes, categories) = (self.bytes().get(self.range(index)?)?, categories.as_deref());
        Some(BatchColumn { name, dtype, values_per_row, bytes, categories })
    }

    /// Returns the memory of all columns.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.arena.as_ref().as_ref()
    }

    /// Returns a pointer to the start of the memory of all columns. The pointer comes from the allocation and not
    /// from a reference, so a holder of the batch may write through it.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.arena.as_ptr()
    }

    /// Returns the range of a column in [`bytes`](Batch::bytes).
    #[must_use]
    pub fn range(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let start = *self.arena.offsets.get(index)?;
        Some(start..start + self.schema.columns.get(index)?.width() * self.num_rows)
    }

    /// Converts the columns to Arrow. Numbers share the batch's memory. Bools are copied, because Arrow packs
    /// them into bits.
    ///
    /// # Errors
    /// None that a batch of this crate can cause; errors of Arrow's own checks are returned.
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        let owner = Bytes::from_owner(SharedArena(Arc::clone(&self.arena)));
        let columns = self.schema.columns.iter().enumerate().map(|(index, spec)| {
            let range = self.range(index).unwrap_or_default();
            self.arrow_column(spec, &owner, range)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema.arrow), columns, &options)
            .map_err(io::Error::other)?)
    }

    fn arrow_column(&self, spec: &ColumnSpec, owner: &Bytes, range: std::ops::Range<usize>) -> Result<ArrayRef> {
        let bytes = owner.slice(range);
        let len = self.num_rows * spec.values_per_row;
        let values: ArrayRef = if spec.dtype == ElementType::Bool {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(len, |i| bytes[i] != 0), None))
        } else {
            let data = arrow::array::ArrayData::builder(spec.dtype.arrow()).len(len).add_buffer(Buffer::from(bytes));
            make_array(data.build().map_err(io::Error::other)?)
        };
        if let Some(categories) = &spec.categories {
            let codes = values.as_primitive::<Int16Type>();
            let valid = codes.values().iter().map(|&code| code >= 0).collect();
            let codes = PrimitiveArray::<Int16Type>::new(codes.values().clone(), Some(valid));
            let categories = StringArray::from_iter_values(categories.iter());
            return Ok(Arc::new(DictionaryArray::try_new(codes, Arc::new(categories)).map_err(io::Error::other)?));
        }
        match spec.values_per_row {
            1 => Ok(values),
            n => {
                let list = FixedSizeListArray::try_new(spec.item(), n as i32, values, None);
                Ok(Arc::new(list.map_err(io::Error::other)?))
            }
        }
    }
}

impl<'a> BatchColumn<'a> {
    /// Returns the values as a slice of this Rust type, if its size and alignment fit.
    #[must_use]
    pub fn values<T: bytemuck::AnyBitPattern>(&self) -> Option<&'a [T]> {
        (size_of::<T>() == self.dtype.width()).then(|| bytemuck::try_cast_slice(self.bytes).ok())?
    }
}

struct SharedArena(Arc<Arena>);

impl AsRef<[u8]> for SharedArena {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&str> = self.schema.columns.iter().map(|column| column.name.as_str()).collect();
        f.debug_struct("Batch").field("num_rows", &self.num_rows).field("columns", &columns).finish()
    }
}
