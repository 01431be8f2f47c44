//! The byte layout of a row: a [`Step`](crate::Step), then the extra columns, the widest first.

use crate::step::{FIELDS, STEP_SIZE, Step};
use crate::table::rows::element::ElementType;
use crate::table::rows::step_column::{STEP_INDEX, is_reserved};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The byte layout of a row.
///
/// The first 32 bytes are a [`Step`](crate::Step). Extra columns follow, ordered by the width of a value, so each is
/// aligned without gaps. The stride is the next multiple of 8. If a step index exceeds 65,535, all indices are in an
/// extra column `step_index`, uint32, and those in the steps are at most 65,535.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowLayout {
    stride: usize,
    extras: Vec<ExtraField>,
}

/// An extra column of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtraField {
    /// The column's name in the query; `step_index` if the table has step indices above 65,535.
    pub name: String,
    /// The type of the values.
    pub dtype: ElementType,
    /// The number of values per row. A list of fixed size has several.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub values_per_row: usize,
    /// The column's offset in the row, in bytes.
    pub offset: usize,
    /// The strings behind the codes, in ascending order, if the column holds categories. The codes are int16,
    /// -1 for null.
    pub categories: Option<Arc<[String]>>,
}

/// The maximum number of values per row of an extra column.
const MAX_VALUES: usize = 1 << 20;

fn one() -> usize {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The shape that serde asks for.
fn is_one(values: &usize) -> bool {
    *values == 1
}

impl ExtraField {
    /// Returns a column whose place in the row is not set yet.
    pub(in crate::table) fn new(name: &str, dtype: ElementType, values_per_row: usize) -> ExtraField {
        ExtraField { name: name.to_owned(), dtype, values_per_row, offset: 0, categories: None }
    }

    /// Returns the size of the column in a row, in bytes.
    pub(in crate::table) fn width(&self) -> usize {
        self.dtype.width() * self.values_per_row
    }

    /// Returns whether no other column of a table has this name.
    fn has_own_name(&self) -> bool {
        !is_reserved(&self.name)
            || (self.name == STEP_INDEX
                && (self.dtype, self.values_per_row) == (ElementType::UInt32, 1)
                && self.categories.is_none())
    }
}

impl RowLayout {
    /// Returns the layout of a row with these extra columns, in the requested order, and sets their offsets.
    pub(in crate::table) fn new(mut extras: Vec<ExtraField>) -> RowLayout {
        let mut by_width: Vec<&mut ExtraField> = extras.iter_mut().collect();
        by_width.sort_by_key(|extra| std::cmp::Reverse(extra.dtype.width()));
        let mut offset = STEP_SIZE;
        for extra in by_width {
            extra.offset = offset;
            offset += extra.width();
        }
        RowLayout { stride: offset.next_multiple_of(8), extras }
    }

    /// Returns the size of a row in bytes, a multiple of 8.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the extra columns, in the requested order.
    #[must_use]
    pub fn extras(&self) -> &[ExtraField] {
        &self.extras
    }

    /// Returns the extra column of this name.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<&ExtraField> {
        self.extras.iter().find(|extra| extra.name == name)
    }

    /// Returns the step in a row. Its index is at most 65,535.
    #[inline]
    pub(in crate::table) fn step_of(&self, row: &[u8]) -> Step {
        let step: Step = bytemuck::pod_read_unaligned(&row[..STEP_SIZE]);
        match self.step_index_offset() {
            // Rows that another program wrote may hold anything in this field.
            Some(_) => Step { step_index: u16::try_from(self.step_index_of(row)).unwrap_or(u16::MAX), ..step },
            None => step,
        }
    }

    /// Returns the step index in a row.
    #[inline]
    pub(in crate::table) fn step_index_of(&self, row: &[u8]) -> u32 {
        match self.step_index_offset() {
            Some(offset) => bytemuck::pod_read_unaligned(&row[offset..offset + 4]),
            None => u32::from(bytemuck::pod_read_unaligned::<Step>(&row[..STEP_SIZE]).step_index),
        }
    }

    /// Returns the offset of the step indices, if they are an extra column.
    #[inline]
    fn step_index_offset(&self) -> Option<usize> {
        self.extra(STEP_INDEX).map(|extra| extra.offset)
    }

    /// Returns whether every column is where [`RowLayout::new`] puts it. Use this to check layouts from files and
    /// other processes.
    pub(in crate::table) fn is_valid(&self) -> bool {
        let is_sound = |(k, extra): (usize, &ExtraField)| {
            let codes = extra.categories.as_ref().is_none_or(|names| {
                (extra.dtype, extra.values_per_row) == (ElementType::Int16, 1)
                    && names.len() <= 1 << 15
                    && names.is_sorted_by(|a, b| a < b)
            });
            let is_new = self.extras[..k].iter().all(|other| other.name != extra.name);
            let is_small = (1..=MAX_VALUES).contains(&extra.values_per_row);
            codes && is_new && is_small && extra.has_own_name() && extra.dtype != ElementType::BFloat16
        };
        self.extras.len() < 1 << 10
            && self.extras.iter().enumerate().all(is_sound)
            && *self == RowLayout::new(self.extras.clone())
    }

    /// Sets the strings of the category columns, in the order of those columns.
    pub(in crate::table) fn with_categories(mut self, categories: Vec<Arc<[String]>>) -> RowLayout {
        let coded = self.extras.iter_mut().filter(|extra| extra.categories.is_some());
        for (extra, categories) in coded.zip(categories) {
            extra.categories = Some(categories);
        }
        self
    }

    /// Returns the fields of a row's NumPy structured type, ordered by offset: name, type, number of values, offset
    /// in bytes.
    #[must_use = "an iterator does nothing by itself"]
    pub fn numpy_fields(&self) -> impl Iterator<Item = (&str, &'static str, usize, usize)> {
        let step = FIELDS.iter().filter(|field| self.extra(field.name).is_none());
        let step = step.map(|field| (field.name, field.numpy, field.values, field.offset));
        let mut extras: Vec<&ExtraField> = self.extras.iter().collect();
        // A NumPy header lists the fields by offset.
        extras.sort_by_key(|extra| extra.offset);
        let extras = extras
            .into_iter()
            .map(|extra| (extra.name.as_str(), extra.dtype.numpy(), extra.values_per_row, extra.offset));
        step.chain(extras)
    }
}
