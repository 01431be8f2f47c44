//! The columns of a batch, in one aligned allocation that a loader can use again, and their Arrow form.

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

/// The integer type of tokens: what an embedding layer takes without a cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenType {
    /// One byte a token.
    #[default]
    UInt8,
    /// Four bytes.
    Int32,
    /// Eight bytes, PyTorch's usual index type.
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
/// Clones share the memory. A loader uses it again once every clone, and all that was made from them, is gone.
#[derive(Clone)]
pub struct Batch {
    arena: Arc<Arena>,
    schema: Arc<BatchSchema>,
    num_rows: usize,
}

/// A column of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct BatchColumn<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its values.
    pub dtype: ElementType,
    /// Values per row: 16, 4 or 1, and of an attached column any number.
    pub values_per_row: usize,
    /// All values, row after row, as bytes; a bool is a byte.
    pub bytes: &'a [u8],
    /// What the codes of a column of categories stand for.
    pub categories: Option<&'a [String]>,
}

/// Which columns batches have, and how each comes out of a row.
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

/// How a column comes out of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The sixteen exponents of the board.
    Tokens,
    /// The four bits of the legality mask.
    LegalBools,
    /// The bytes at this offset of the row.
    Copy(usize),
    /// The attached column of this number.
    Attached(usize),
}

/// The memory of a batch.
pub(crate) struct Arena {
    memory: Zeroed,
    pub(super) offsets: Vec<usize>,
    capacity: usize,
}

/// Columns begin at multiples of this many bytes: a cache line, and what Arrow recommends.
const COLUMN_ALIGN: usize = Zeroed::ALIGN;
/// Rows and bytes of columns that are gathered between two cancellation checks. This is some milliseconds of work, and
/// enough for the maximum number of threads of one gather.
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
    /// What batches of a table have: all columns, or those that are named.
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

    /// The row's own fields and the attached columns: the columns of a whole table.
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

    /// The type of tokens, uint8 if there are none.
    pub(super) fn tokens(&self) -> ElementType {
        self.tokens
    }

    /// Whether all columns of a batch are there that every table has.
    pub(super) fn has_all_of_step(&self) -> bool {
        let is_of_step =
            |column: &&ColumnSpec| !matches!(column.source, Source::Copy(STEP_SIZE..) | Source::Attached(_));
        self.columns.iter().filter(is_of_step).count() == 7
    }

    /// Whether any column is not one of a [`Step`](crate::Step)'s own.
    pub(super) fn has_extras(&self) -> bool {
        self.has_extras
    }

    /// The name of the first attached column, if there is one.
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

    /// Splits the first rows off the memory of columns.
    pub(crate) fn split_front<'a>(&self, columns: &mut Columns<'a>, num_rows: usize) -> Columns<'a> {
        let cut = |(column, spec): (&mut &'a mut [u8], &ColumnSpec)| {
            let (front, rest) = std::mem::take(column).split_at_mut(num_rows * spec.width());
            *column = rest;
            front
        };
        columns.iter_mut().zip(&self.columns).map(cut).collect()
    }

    /// The columns in Arrow's terms.
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

/// The name in a field's metadata under which the type of its values stands, where Arrow has none for it.
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
        self.told(Field::new(&self.name, dtype, false))
    }

    fn item(&self) -> Arc<Field> {
        Arc::new(self.told(Field::new("item", self.dtype.arrow(), false)))
    }

    /// The field with what Arrow cannot say of the type.
    fn told(&self, field: Field) -> Field {
        match self.dtype {
            ElementType::BFloat16 => field.with_metadata([(DTYPE_KEY.to_owned(), "bfloat16".to_owned())].into()),
            _ => field,
        }
    }
}

impl Arena {
    /// Memory for batches of up to `capacity` rows.
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

    /// Where the memory begins, with the right to write to it.
    #[cfg(feature = "python")]
    fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The memory of each column for the first `num_rows` rows.
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

/// Memory of batches, to be filled again when nobody holds it any more.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    arenas: Vec<Arc<Arena>>,
    most: usize,
}

impl Pool {
    /// A pool that remembers so many.
    pub(crate) fn new(most: usize) -> Pool {
        Pool { arenas: Vec::new(), most }
    }

    /// A pool that keeps at most `most` arenas and allocates them now, or `at_once` of them.
    ///
    /// # Errors
    /// When there is no memory for one arena.
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

    /// Memory for `capacity` rows or a little more, which no batch uses. All memory of one pool has one schema.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory).
    pub(crate) fn take(&mut self, schema: &BatchSchema, capacity: usize) -> Result<Arc<Arena>> {
        let fits = |arena: &mut Arc<Arena>| {
            (capacity..=2 * capacity).contains(&arena.capacity()) && Arc::get_mut(arena).is_some()
        };
        // The newest, of which the caches may still have most.
        match self.arenas.iter_mut().rposition(fits) {
            Some(free) => Ok(self.arenas.swap_remove(free)),
            None => Arena::new(schema, capacity).map(Arc::new),
        }
    }

    /// Remembers memory that is about to be handed out, in place of some that is free or else of the oldest.
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

    /// The column of that name.
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

    /// Where the memory of all columns begins: the allocation's own pointer, derived from no reference, so that a holder
    /// of the batch may write through it.
    #[cfg(feature = "python")]
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.arena.as_ptr()
    }

    /// Where in [`bytes`](Batch::bytes) a column lies.
    pub(crate) fn range(&self, index: usize) -> Option<std::ops::Range<usize>> {
        let start = *self.arena.offsets.get(index)?;
        Some(start..start + self.schema.columns.get(index)?.width() * self.num_rows)
    }

    /// The columns as Arrow has them. Numbers share the batch's memory; bools, which Arrow packs into bits, are copied.
    ///
    /// # Errors
    /// None that a batch of this crate can cause; Arrow's own checks are passed on.
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        let owner = Bytes::from_owner(SharedArena(Arc::clone(&self.arena)));
        let columns = self.schema.columns.iter().enumerate().map(|(index, spec)| {
            let range = self.range(index).unwrap_or_default();
            self.arrow_column(spec, &owner, range)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema.arrow), columns, &options).map_err(Error::other)
    }

    fn arrow_column(&self, spec: &ColumnSpec, owner: &Bytes, range: std::ops::Range<usize>) -> Result<ArrayRef> {
        let bytes = owner.slice(range);
        let len = self.num_rows * spec.values;
        let values: ArrayRef = if spec.dtype == ElementType::Bool {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(len, |i| bytes[i] != 0), None))
        } else {
            let data = arrow::array::ArrayData::builder(spec.dtype.arrow()).len(len).add_buffer(Buffer::from(bytes));
            make_array(data.build().map_err(Error::other)?)
        };
        if let Some(categories) = &spec.categories {
            let codes = values.as_primitive::<Int16Type>();
            let valid = codes.values().iter().map(|&code| code >= 0).collect();
            let codes = PrimitiveArray::<Int16Type>::new(codes.values().clone(), Some(valid));
            let categories = StringArray::from_iter_values(categories.iter());
            return Ok(Arc::new(DictionaryArray::try_new(codes, Arc::new(categories)).map_err(Error::other)?));
        }
        match spec.values {
            1 => Ok(values),
            n => {
                let list = FixedSizeListArray::try_new(spec.item(), n as i32, values, None);
                Ok(Arc::new(list.map_err(Error::other)?))
            }
        }
    }
}

impl<'a> BatchColumn<'a> {
    /// The values, if they are of this Rust type.
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
