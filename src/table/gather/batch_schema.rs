//! The schema of batches: their columns, the source of each column's values, and the Arrow schema.

use crate::error::{Error, Result};
use crate::table::rows::element::ElementType;
use crate::table::rows::layout::{ExtraField, RowLayout};
use crate::table::rows::step_column::{StepColumn, TILE_MASK, is_reserved};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use smallvec::SmallVec;
use std::sync::Arc;

/// The memory of each column of a schema, in schema order. Each has room for one value per index.
pub(crate) type ColumnBuffers<'a> = SmallVec<[&'a mut [u8]; 16]>;

/// The columns of a batch, and the source of each column's values.
#[derive(Debug)]
pub(crate) struct BatchSchema {
    pub(in crate::table) columns: Vec<ColumnSpec>,
    /// The type of tokens; uint8 if there is no such column.
    pub(in crate::table) tokens: ElementType,
    /// Whether the schema has all columns that every table has.
    pub(in crate::table) has_all_of_step: bool,
    /// Whether any column is an extra column of the row.
    pub(in crate::table) has_extras: bool,
    /// The offset of the masks of cells with 65,536 in a row, if rows have them and the schema has tokens or the masks.
    pub(in crate::table) mask_offset: Option<usize>,
    pub(in crate::table) has_attached: bool,
    /// The columns as an Arrow schema.
    pub(in crate::table) arrow: SchemaRef,
}

/// A column of a batch: its name, type and shape, and the source of its values.
#[derive(Clone, Debug)]
pub(in crate::table) struct ColumnSpec {
    pub(in crate::table) name: String,
    pub(in crate::table) dtype: ElementType,
    pub(in crate::table) values_per_row: usize,
    pub(in crate::table) source: ColumnSource,
    /// The strings behind the codes of a category column.
    pub(in crate::table) categories: Option<Arc<[String]>>,
}

/// The source of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum ColumnSource {
    /// The row's step.
    Step(StepColumn),
    /// The extra column at this offset of the row.
    Extra(usize),
    /// The attached column with this index.
    Attached(usize),
}

/// Rows, and bytes of columns, that are gathered between two cancellation checks. This is some milliseconds of
/// work, and enough for the maximum number of threads of one gather.
const ROWS_AT_ONCE: usize = 1 << 20;
const BYTES_AT_ONCE: usize = 64 << 20;

impl BatchSchema {
    /// Returns the schema of a table's batches: all columns, or the named ones.
    pub(in crate::table) fn new(
        layout: &RowLayout,
        attached: Vec<ColumnSpec>,
        tokens: ElementType,
        only: Option<&[String]>,
    ) -> Result<BatchSchema> {
        if !matches!(tokens, ElementType::UInt8 | ElementType::Int32 | ElementType::Int64) {
            return Err(Error::argument("tokens", "uint8, int32 or int64", format_args!("{tokens:?}")));
        }
        let columns = columns(&StepColumn::BATCH, tokens, layout, attached);
        let Some(only) = only else { return Ok(BatchSchema::from_columns(columns, layout)) };
        if let Some((_, twice)) = only.iter().enumerate().find(|(i, name)| only[..*i].contains(name)) {
            return Err(Error::argument("columns", "each column once", twice));
        }
        let find = |name: &String| {
            columns.iter().find(|column| column.name == *name).cloned().ok_or_else(|| {
                let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                Error::argument("columns", names.join(", "), name)
            })
        };
        Ok(BatchSchema::from_columns(only.iter().map(find).collect::<Result<_>>()?, layout))
    }

    /// Returns the schema of those columns of a whole table whose name `keep` accepts: of the row's own fields, the extra
    /// and the attached columns.
    pub(in crate::table) fn of_table(
        layout: &RowLayout,
        attached: Vec<ColumnSpec>,
        keep: impl Fn(&str) -> bool,
    ) -> BatchSchema {
        let mut columns = columns(&StepColumn::TABLE, ElementType::UInt8, layout, attached);
        columns.retain(|column| keep(&column.name));
        BatchSchema::from_columns(columns, layout)
    }

    fn from_columns(columns: Vec<ColumnSpec>, layout: &RowLayout) -> BatchSchema {
        let has = |source: ColumnSource| columns.iter().any(|column| column.source == source);
        let tokens = columns.iter().find(|column| column.source == ColumnSource::Step(StepColumn::Tokens));
        let tokens = tokens.map_or(ElementType::UInt8, |column| column.dtype);
        let has_all_of_step = StepColumn::BATCH.into_iter().all(|column| has(ColumnSource::Step(column)));
        let has_extras = columns.iter().any(|column| matches!(column.source, ColumnSource::Extra(_)));
        let mask = layout.extra(TILE_MASK).filter(|extra| extra.dtype == ElementType::UInt16).map(|extra| extra.offset);
        let shows = |offset: usize| has(ColumnSource::Step(StepColumn::Tokens)) || has(ColumnSource::Extra(offset));
        let mask_offset = mask.filter(|&offset| shows(offset));
        let has_attached = columns.iter().any(|column| matches!(column.source, ColumnSource::Attached(_)));
        let arrow = Arc::new(Schema::new(columns.iter().map(ColumnSpec::arrow_field).collect::<Vec<_>>()));
        BatchSchema { columns, tokens, has_all_of_step, has_extras, mask_offset, has_attached, arrow }
    }

    /// Returns the first column whose values may depend on the board's orientation but are not turned with it: an
    /// attached column, or an extra column of several values per row.
    pub(crate) fn unturned(&self) -> Option<String> {
        let name = |column: &ColumnSpec| match column.source {
            ColumnSource::Attached(_) => Some(format!("the attached column {}", column.name)),
            ColumnSource::Extra(_) if column.values_per_row > 1 => {
                Some(format!("the column {} of {} values per row", column.name, column.values_per_row))
            }
            _ => None,
        };
        self.columns.iter().find_map(name)
    }

    /// Returns whether any value also depends on an extra column, an attached column or the mask of 65,536.
    pub(in crate::table) fn has_more_than_steps(&self) -> bool {
        self.has_extras || self.has_attached || self.mask_offset.is_some()
    }

    /// Bytes per row.
    pub(crate) fn width(&self) -> usize {
        self.columns.iter().map(ColumnSpec::width).sum()
    }

    /// Returns the number of rows that are gathered between two cancellation checks.
    pub(crate) fn rows_at_once(&self) -> usize {
        (BYTES_AT_ONCE / self.width().max(1)).clamp(1, ROWS_AT_ONCE)
    }

    /// Splits the memory of the first rows off the columns.
    pub(crate) fn split_front<'a>(&self, columns: &mut ColumnBuffers<'a>, num_rows: usize) -> ColumnBuffers<'a> {
        let cut = |(column, spec): (&mut &'a mut [u8], &ColumnSpec)| {
            let (front, rest) = std::mem::take(column).split_at_mut(num_rows * spec.width());
            *column = rest;
            front
        };
        columns.iter_mut().zip(&self.columns).map(cut).collect()
    }
}

fn columns(
    of_step: &[StepColumn],
    tokens: ElementType,
    layout: &RowLayout,
    attached: Vec<ColumnSpec>,
) -> Vec<ColumnSpec> {
    let of_extra = |extra: &ExtraField| ColumnSpec {
        categories: extra.categories.clone(),
        ..ColumnSpec::new(&extra.name, extra.dtype, extra.values_per_row, ColumnSource::Extra(extra.offset))
    };
    let mut found: Vec<ColumnSpec> = Vec::new();
    for &column in of_step {
        let (name, dtype, values_per_row) = column.shape(tokens);
        // An extra column of this name holds what the field cannot.
        let in_field = || ColumnSpec::new(name, dtype, values_per_row, ColumnSource::Step(column));
        found.push(layout.extra(name).map_or_else(in_field, of_extra));
    }
    let others = layout.extras().iter().filter(|extra| !is_reserved(&extra.name));
    found.extend(others.map(of_extra).chain(attached));
    found
}

/// The key in a field's metadata that names the type of its values if Arrow lacks that type.
const DTYPE_KEY: &str = "a2store.dtype";

impl ColumnSpec {
    pub(in crate::table) fn new(
        name: &str,
        dtype: ElementType,
        values_per_row: usize,
        source: ColumnSource,
    ) -> ColumnSpec {
        ColumnSpec { name: name.to_owned(), dtype, values_per_row, source, categories: None }
    }

    /// Bytes per row.
    pub(in crate::table) fn width(&self) -> usize {
        self.dtype.width() * self.values_per_row
    }

    fn arrow_field(&self) -> Field {
        if self.categories.is_some() {
            return Field::new_dictionary(&self.name, DataType::Int16, DataType::Utf8, true);
        }
        let dtype = match self.values_per_row {
            1 => self.dtype.arrow(),
            n => DataType::FixedSizeList(self.item(), n as i32),
        };
        self.with_dtype(Field::new(&self.name, dtype, false))
    }

    pub(in crate::table) fn item(&self) -> Arc<Field> {
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
