//! The columns of a batch in one aligned, reusable allocation, and their Arrow form.

use super::attached::AttachedColumn;
use super::columns::Columns;
use super::layout::{ElementType, RowLayout};
use super::memory::Zeroed;
use crate::error::{Error, Result};
use crate::step::{FIELDS, STEP_SIZE};
use arrow::array::{
    ArrayRef, AsArray, BooleanArray, DictionaryArray, FixedSizeListArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::{DataType, Field, Int16Type, Schema, SchemaRef};
use bytes::Bytes;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The integer type of tokens. An embedding layer takes each of them without a cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenType {
    /// One byte per token.
    #[default]
    UInt8,
    /// Four bytes per token.
    Int32,
    /// Eight bytes per token, PyTorch's usual index type.
    Int64,
}

/// Rows of a [`StepTable`](super::StepTable) as columns.
///
/// | column | shape | type | |
/// | --- | --- | --- | --- |
/// | `tokens` | (n, 16) | uint8, int32 or int64 | exponents, row-major, 0 to 15 |
/// | `move` | (n,) | uint8 | 0 to 3, UDLR; 255 = none |
/// | `ev_values` | (n, 4) | float32 | 0.0 where illegal, NaN where the step has none |
/// | `ev_legal` | (n, 4) | bool | |
/// | `run_id` | (n,) | uint32 | |
/// | `step_index` | (n,) | uint16 | |
/// | `board` | (n,) | uint64 | |
/// | extras | (n,) | their own; int16 codes of a column of categories, -1 for null | |
/// | attached | (n, D) | their own | see [`StepTable::attach`](super::StepTable::attach) |
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
    /// Values per row: 16, 4 or 1, and any number for an attached column.
    pub values_per_row: usize,
    /// All values as bytes, row after row. A bool is one byte.
    pub bytes: &'a [u8],
    /// The strings behind the codes of a category column.
    pub categories: Option<&'a [String]>,
}

/// The columns of a batch, and the source of each column's values.
#[derive(Debug)]
pub(crate) struct BatchSchema {
    pub(super) columns: Vec<ColumnSpec>,
    tokens: ElementType,
    has_extras: bool,
    attached: Option<String>,
    arrow: SchemaRef,
}

#[derive(Clone, Debug)]
pub(super) struct ColumnSpec {
    pub(super) name: String,
    pub(super) dtype: ElementType,
    pub(super) values: usize,
    pub(super) source: Source,
    categories: Option<Arc<[String]>>,
}

/// The source of a column's values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The sixteen exponents of the board.
    Tokens,
    /// The four bits of the legality mask, one bool each.
    LegalBools,
    /// The bytes at this offset of the row.
    Copy(usize),
    /// The attached column with this index.
    Attached(usize),
}

/// The memory of a batch.
pub(crate) struct Arena {
    memory: Zeroed,
    pub(super) offsets: Vec<usize>,
    capacity: usize,
}

/// The alignment of columns in bytes: a cache line, as Arrow recommends.
const COLUMN_ALIGN: usize = Zeroed::ALIGN;
/// Rows, and bytes of columns, that are gathered between two cancellation checks. This is some milliseconds of
/// work, and enough for the maximum number of threads of one gather.
const ROWS_AT_ONCE: usize = 1 << 20;
const BYTES_AT_ONCE: usize = 64 << 20;

impl TokenType {
    pub(super) fn element(self) -> ElementType {
        match self {
            TokenType::UInt8 => ElementType::UInt8,
            TokenType::Int32 => ElementType::Int32,
            TokenType::Int64 => ElementType::Int64,
        }
    }
}

impl FromStr for TokenType {
    type Err = Error;

    fn from_str(name: &str) -> Result<TokenType> {
        match name {
            "uint8" => Ok(TokenType::UInt8),
            "int32" => Ok(TokenType::Int32),
            "int64" => Ok(TokenType::Int64),
            _ => Err(Error::argument("tokens", "uint8, int32 or int64", name)),
        }
    }
}

impl BatchSchema {
    /// Returns the schema of a table's batches: all columns, or the named ones.
    pub(super) fn new(
        layout: &RowLayout,
        attached: &[AttachedColumn],
        tokens: TokenType,
        only: Option<&[String]>,
    ) -> Result<BatchSchema> {
        let field = |name: &'static str, dtype| {
            let field = FIELDS.iter().find(|field| field.name == name);
            let (values, offset) = field.map_or((1, 0), |field| (field.values, field.offset));
            ColumnSpec::new(name, dtype, values, Source::Copy(offset))
        };
        let mut columns = vec![
            ColumnSpec::new("tokens", tokens.element(), 16, Source::Tokens),
            field("move", ElementType::UInt8),
            field("ev_values", ElementType::Float32),
            ColumnSpec::new("ev_legal", ElementType::Bool, 4, Source::LegalBools),
            field("run_id", ElementType::UInt32),
            field("step_index", ElementType::UInt16),
            field("board", ElementType::UInt64),
        ];
        columns.extend(extra_columns(layout));
        columns.extend(attached_columns(attached));
        if let Some(only) = only {
            let find = |name: &String| {
                columns.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
                    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                    Error::argument("columns", names.join(", "), name)
                })
            };
            if let Some((_, twice)) = only.iter().enumerate().find(|(i, name)| only[..*i].contains(name)) {
                return Err(Error::argument("columns", "each column once", twice));
            }
            columns = only.iter().map(find).collect::<Result<_>>()?;
        }
        Ok(BatchSchema::from_columns(columns))
    }

    /// Returns the schema of a whole table's columns: the row's own fields, the extra and the attached columns.
    pub(super) fn of_row(layout: &RowLayout, attached: &[AttachedColumn]) -> BatchSchema {
        let dtypes = [
            ElementType::UInt64,
            ElementType::Float32,
            ElementType::UInt32,
            ElementType::UInt16,
            ElementType::UInt8,
            ElementType::UInt8,
        ];
        let fields = FIELDS
            .iter()
            .zip(dtypes)
            .map(|(field, dtype)| ColumnSpec::new(field.name, dtype, field.values, Source::Copy(field.offset)));
        BatchSchema::from_columns(fields.chain(extra_columns(layout)).chain(attached_columns(attached)).collect())
    }

    fn from_columns(columns: Vec<ColumnSpec>) -> BatchSchema {
        let fields: Vec<Field> = columns.iter().map(ColumnSpec::arrow_field).collect();
        let tokens = columns.iter().find(|column| matches!(column.source, Source::Tokens));
        let tokens = tokens.map_or(ElementType::UInt8, |column| column.dtype);
        let is_extra = |column: &ColumnSpec| matches!(column.source, Source::Copy(STEP_SIZE..));
        let has_extras = columns.iter().any(is_extra);
        let attached = columns.iter().find(|column| matches!(column.source, Source::Attached(_)));
        let attached = attached.map(|column| column.name.clone());
        BatchSchema { columns, tokens, has_extras, attached, arrow: Arc::new(Schema::new(fields)) }
    }

    /// The type of tokens; uint8 if there is no such column.
    pub(super) fn tokens(&self) -> ElementType {
        self.tokens
    }

    /// Whether the schema has all columns that every table has.
    pub(super) fn has_all_of_step(&self) -> bool {
        let is_of_step =
            |column: &&ColumnSpec| !matches!(column.source, Source::Copy(STEP_SIZE..) | Source::Attached(_));
        self.columns.iter().filter(is_of_step).count() == 7
    }

    /// Whether any column is an extra column of the row.
    pub(super) fn has_extras(&self) -> bool {
        self.has_extras
    }

    /// The name of the first attached column, if any.
    pub(crate) fn attached(&self) -> Option<&str> {
        self.attached.as_deref()
    }

    /// Bytes per row.
    pub(crate) fn width(&self) -> usize {
        self.columns.iter().map(ColumnSpec::width).sum()
    }

    /// The number of rows that are gathered between two cancellation checks.
    pub(crate) fn rows_at_once(&self) -> usize {
        (BYTES_AT_ONCE / self.width().max(1)).clamp(1, ROWS_AT_ONCE)
    }

    /// Splits the memory of the first rows off the columns.
    pub(crate) fn split_front<'a>(&self, columns: &mut Columns<'a>, num_rows: usize) -> Columns<'a> {
        let cut = |(column, spec): (&mut &'a mut [u8], &ColumnSpec)| {
            let (front, rest) = std::mem::take(column).split_at_mut(num_rows * spec.width());
            *column = rest;
            front
        };
        columns.iter_mut().zip(&self.columns).map(cut).collect()
    }

    /// The columns as an Arrow schema.
    pub(crate) fn arrow(&self) -> &SchemaRef {
        &self.arrow
    }
}

fn extra_columns(layout: &RowLayout) -> impl Iterator<Item = ColumnSpec> {
    layout.extras().iter().map(|extra| ColumnSpec {
        categories: extra.categories.clone(),
        ..ColumnSpec::new(&extra.name, extra.dtype, 1, Source::Copy(extra.offset))
    })
}

fn attached_columns(attached: &[AttachedColumn]) -> impl Iterator<Item = ColumnSpec> {
    let spec = |(number, column): (usize, &AttachedColumn)| {
        ColumnSpec::new(column.name(), column.dtype(), column.values_per_row(), Source::Attached(number))
    };
    attached.iter().enumerate().map(spec)
}

/// The key in a field's metadata that names the type of its values if Arrow lacks that type.
const DTYPE_KEY: &str = "a2store.dtype";

impl ColumnSpec {
    fn new(name: &str, dtype: ElementType, values: usize, source: Source) -> ColumnSpec {
        ColumnSpec { name: name.to_owned(), dtype, values, source, categories: None }
    }

    /// Bytes per row.
    pub(super) fn width(&self) -> usize {
        self.dtype.width() * self.values
    }

    fn arrow_field(&self) -> Field {
        if self.categories.is_some() {
            return Field::new_dictionary(&self.name, DataType::Int16, DataType::Utf8, true);
        }
        let dtype = match self.values {
            1 => self.dtype.arrow(),
            n => DataType::FixedSizeList(self.item(), n as i32),
        };
        self.with_dtype(Field::new(&self.name, dtype, false))
    }

    fn item(&self) -> Arc<Field> {
        Arc::new(self.with_dtype(Field::new("item", self.dtype.arrow(), false)))
    }

    /// Returns the field with metadata on a type that Arrow lacks.
    fn with_dtype(&self, field: Field) -> Field {
        match self.dtype {
            ElementType::BFloat16 => field.with_metadata([(DTYPE_KEY.to_owned(), "bfloat16".to_owned())].into()),
            _ => field,
        }
    }
}

impl Arena {
    /// Allocates memory for batches of up to `capacity` rows.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn new(schema: &BatchSchema, capacity: usize) -> Result<Arena> {
        // The allocation rejects saturated sizes.
        let mut len = 0_usize;
        let mut offsets = Vec::with_capacity(schema.columns.len());
        for column in &schema.columns {
            offsets.push(len);
            let end = len.saturating_add(column.width().saturating_mul(capacity));
            len = end.checked_next_multiple_of(COLUMN_ALIGN).unwrap_or(usize::MAX);
        }
        Ok(Arena { memory: Zeroed::new(len)?, offsets, capacity })
    }

    /// A pointer to the start of the memory, through which the owner may write.
    #[cfg(feature = "python")]
    fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns each column's memory for the first `num_rows` rows.
    pub(crate) fn columns_mut(&mut self, schema: &BatchSchema, num_rows: usize) -> Columns<'_> {
        let mut columns = Columns::new();
        let (mut rest, mut start) = (self.memory.bytes_mut(), 0);
        for (column, &offset) in schema.columns.iter().zip(&self.offsets) {
            let (_, from_here) = rest.split_at_mut(offset - start);
            let (bytes, after) = from_here.split_at_mut(column.width() * num_rows);
            columns.push(bytes);
            (rest, start) = (after, offset + column.width() * num_rows);
        }
        columns
    }
}

/// Memory of batches that can be filled again after every holder has dropped it.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    arenas: Vec<Arc<Arena>>,
    most: usize,
}

impl Pool {
    /// Returns an empty pool for at most `most` arenas.
    pub(crate) fn new(most: usize) -> Pool {
        Pool { arenas: Vec::new(), most }
    }

    /// Returns a pool for at most `most` arenas, `at_once` of which it allocates now.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if not even one arena can be allocated.
    pub(crate) fn filled(most: usize, schema: &BatchSchema, capacity: usize, at_once: usize) -> Result<Pool> {
        let mut pool = Pool { arenas: Vec::with_capacity(most), most };
        for _ in 0..most.min(at_once) {
            match Arena::new(schema, capacity) {
                Ok(arena) => pool.arenas.push(Arc::new(arena)),
                // One arena is enough to continue.
                Err(_) if !pool.arenas.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pool)
    }

    /// Returns unused memory for at least `capacity` rows and at most twice as many. All arenas of one pool
    /// have one schema.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn take(&mut self, schema: &BatchSchema, capacity: usize) -> Result<Arc<Arena>> {
        let fits = |arena: &mut Arc<Arena>| {
            (capacity..=2 * capacity).contains(&arena.capacity()) && Arc::get_mut(arena).is_some()
        };
        // The newest arena is the most likely to be in the caches.
        match self.arenas.iter_mut().rposition(fits) {
            Some(free) => Ok(self.arenas.swap_remove(free)),
            None => Arena::new(schema, capacity).map(Arc::new),
        }
    }

    /// Remembers an arena that is about to be handed out. A full pool forgets a free arena, or else the oldest.
    pub(crate) fn keep(&mut self, arena: &Arc<Arena>) {
        if self.arenas.len() >= self.most {
            let free = self.arenas.iter().position(|arena| Arc::strong_count(arena) == 1);
            self.arenas.remove(free.unwrap_or(0));
        }
        self.arenas.push(Arc::clone(arena));
    }
}

impl AsRef<[u8]> for Arena {
    fn as_ref(&self) -> &[u8] {
        self.memory.bytes()
    }
}

impl Batch {
    pub(crate) fn new(arena: Arc<Arena>, schema: Arc<BatchSchema>, num_rows: usize) -> Batch {
        Batch { arena, schema, num_rows }
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// The columns.
    pub fn columns(&self) -> impl Iterator<Item = BatchColumn<'_>> {
        (0..self.schema.columns.len()).filter_map(|index| self.at(index))
    }

    /// Returns the column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<BatchColumn<'_>> {
        self.at(self.schema.columns.iter().position(|column| column.name == name)?)
    }

    fn at(&self, index: usize) -> Option<BatchColumn<'_>> {
        let column = self.schema.columns.get(index)?;
        let bytes = self.bytes().get(self.range(index)?)?;
        let categories = column.categories.as_deref();
        Some(BatchColumn { name: &column.name, dtype: column.dtype, values_per_row: column.values, bytes, categories })
    }

    /// The memory of all columns.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.arena.as_ref().as_ref()
    }

    /// The start of the memory of all columns. The pointer comes from the allocation and not from a reference,
    /// so a holder of the batch may write through it.
    #[cfg(feature = "python")]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.arena.as_ptr()
    }

    /// The range of a column in [`bytes`](Batch::bytes).
    pub(crate) fn range(&self, index: usize) -> Option<std::ops::Range<usize>> {
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
        RecordBatch::try_new_with_options(Arc::clone(&self.schema.arrow), columns, &options).map_err(arrow_error)
    }

    fn arrow_column(&self, spec: &ColumnSpec, owner: &Bytes, range: std::ops::Range<usize>) -> Result<ArrayRef> {
        let bytes = owner.slice(range);
        let len = self.num_rows * spec.values;
        let values: ArrayRef = if spec.dtype == ElementType::Bool {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(len, |i| bytes[i] != 0), None))
        } else {
            let data = arrow::array::ArrayData::builder(spec.dtype.arrow()).len(len).add_buffer(Buffer::from(bytes));
            make_array(data.build().map_err(arrow_error)?)
        };
        if let Some(categories) = &spec.categories {
            let codes = values.as_primitive::<Int16Type>();
            let valid = codes.values().iter().map(|&code| code >= 0).collect();
            let codes = PrimitiveArray::<Int16Type>::new(codes.values().clone(), Some(valid));
            let categories = StringArray::from_iter_values(categories.iter());
            return Ok(Arc::new(DictionaryArray::try_new(codes, Arc::new(categories)).map_err(arrow_error)?));
        }
        match spec.values {
            1 => Ok(values),
            n => {
                let list = FixedSizeListArray::try_new(spec.item(), n as i32, values, None);
                Ok(Arc::new(list.map_err(arrow_error)?))
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

pub(super) fn arrow_error(error: arrow::error::ArrowError) -> Error {
    Error::from(std::io::Error::other(error))
}
