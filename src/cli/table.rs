//! Rows as a table for people: separators of thousands, rounded floats, and no line longer than the terminal.

use super::print::grouped;
use super::terminal::Look;
use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use console::{Alignment, measure_text_width, pad_str, style, truncate_str};
use std::ops::Range;

/// Texts are not shortened below this width. Columns are hidden instead.
const MIN_TEXT: usize = 12;

/// Integers above this are boards, seeds or hashes, which have no separators.
const MAX_COUNT: u128 = 1 << 53;

/// Endings of the names of columns whose integers are names rather than numbers. Such integers have no separators.
const LABELS: [&str; 7] = ["id", "board", "index", "mask", "seed", "tile", "version"];

/// A table as text.
pub(super) struct Table {
    /// The lines, without a line break at the end.
    pub(super) text: String,
    /// The number of columns that do not fit.
    pub(super) num_hidden: usize,
}

/// Formats rows as a table. If it is wider than the terminal, texts are shortened, and columns in the middle are
/// hidden.
pub(super) fn table(batches: &[RecordBatch], look: Look) -> Result<Table> {
    let Some(first) = batches.first() else { return Ok(Table { text: String::new(), num_hidden: 0 }) };
    let mut columns: Vec<Column> = Vec::new();
    for (index, field) in first.schema().fields().iter().enumerate() {
        let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(index).as_ref()).collect();
        columns.push(Column::new(field.name(), &arrays)?);
    }
    let hidden = look.width.map_or(0..0, |width| fit(&mut columns, width));
    let num_hidden = hidden.len();
    if num_hidden > 0 {
        columns.splice(hidden, [Column::ellipsis(batches)]);
    }
    let rule = columns.iter().map(|column| format!("+{}", "-".repeat(column.width + 2))).collect::<String>() + "+";
    let mut lines = vec![rule.clone(), line(columns.iter().map(|column| column.header(look.colors))), rule.clone()];
    let num_rows = columns.first().map_or(0, |column| column.cells.len());
    lines.extend((0..num_rows).map(|row| line(columns.iter().map(|column| column.cell(row, look.colors)))));
    if num_rows > 0 {
        lines.push(rule);
    }
    Ok(Table { text: lines.join("\n"), num_hidden })
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.map(|cell| format!("| {cell} ")).collect::<String>() + "|"
}

/// The cells of a column as text.
struct Column {
    name: String,
    /// `None` = null.
    cells: Vec<Option<String>>,
    is_number: bool,
    /// The width of the cells in the table.
    width: usize,
}

impl Column {
    fn new(name: &str, arrays: &[&dyn Array]) -> Result<Column> {
        let options = FormatOptions::default();
        let mut cells = Vec::new();
        for array in arrays {
            let formatter = ArrayFormatter::try_new(*array, &options)?;
            // Arrays of type Null and dictionaries have nulls without a mask.
            let nulls = array.logical_nulls();
            for row in 0..array.len() {
                let text = || match array.data_type() {
                    DataType::Float32 => Ok(rounded(f64::from(array.as_primitive::<Float32Type>().value(row)))),
                    DataType::Float64 => Ok(rounded(array.as_primitive::<Float64Type>().value(row))),
                    _ => formatter.value(row).try_to_string().map(|text| printable(&text)),
                };
                cells.push(if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) { None } else { Some(text()?) });
            }
        }
        let dtype = arrays.first().map(|array| array.data_type().clone());
        if dtype.as_ref().is_some_and(DataType::is_integer) && !LABELS.iter().any(|label| name.ends_with(label)) {
            group(&mut cells);
        }
        let is_number = dtype.is_some_and(|dtype| dtype.is_numeric());
        let mut column = Column { name: printable(name), cells, is_number, width: 0 };
        column.width = column.cells_width().max(measure_text_width(&column.name));
        Ok(column)
    }

    /// Returns the column that stands for the hidden ones.
    fn ellipsis(batches: &[RecordBatch]) -> Column {
        let num_rows = batches.iter().map(RecordBatch::num_rows).sum();
        Column { name: "…".into(), cells: vec![Some("…".into()); num_rows], is_number: false, width: 1 }
    }

    fn cells_width(&self) -> usize {
        self.cells.iter().map(|cell| measure_text_width(cell.as_deref().unwrap_or(NULL))).max().unwrap_or(0)
    }

    /// Returns the smallest width: a number is never shortened, because the rest would be another number.
    fn min_width(&self) -> usize {
        let cells = if self.is_number { self.cells_width() } else { 0 };
        cells.max(MIN_TEXT).min(self.width)
    }

    fn header(&self, colors: bool) -> String {
        style(self.padded(&self.name)).bold().force_styling(colors).to_string()
    }

    fn cell(&self, row: usize, colors: bool) -> String {
        match self.cells.get(row).and_then(Option::as_deref) {
            Some(text) => self.padded(text),
            None => style(self.padded(NULL)).dim().force_styling(colors).to_string(),
        }
    }

    fn padded(&self, text: &str) -> String {
        let align = if self.is_number { Alignment::Right } else { Alignment::Left };
        pad_str(&truncate_str(text, self.width, "…"), self.width, align, None).into_owned()
    }
}

const NULL: &str = "NULL";

/// The width of the column that replaces hidden columns.
const GAP: usize = 4;

/// Returns the width of a line with these columns. Each column has a border and two blanks.
fn line_width(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + 3).sum::<usize>() + 1
}

/// Narrows the columns so that a line has at most `width` cells if possible. Returns the columns to hide.
fn fit(columns: &mut [Column], width: usize) -> Range<usize> {
    let len = columns.len();
    let fits = |hidden: &Range<usize>, width_of: &dyn Fn(&Column) -> usize| {
        let shown = columns.iter().enumerate().filter(|(index, _)| !hidden.contains(index));
        let gap = if hidden.is_empty() { 0 } else { GAP };
        line_width(shown.map(|(_, column)| width_of(column))) + gap <= width
    };
    let hidden = (1..=len).rev().map(|shown| shown.div_ceil(2)..len - shown / 2);
    let hidden = hidden.into_iter().find(|hidden| fits(hidden, &Column::min_width)).unwrap_or(1.min(len)..len);
    let capped = |column: &Column, cap: usize| column.width.min(cap).max(column.min_width());
    let mut cap = columns.iter().map(|column| column.width).max().unwrap_or(0);
    while cap > MIN_TEXT && !fits(&hidden, &|column| capped(column, cap)) {
        cap -= 1;
    }
    for column in columns {
        column.width = capped(column, cap);
    }
    hidden
}

/// Adds separators of thousands, unless a number is too large for a count.
fn group(cells: &mut [Option<String>]) {
    let is_count = |text: &String| text.trim_start_matches('-').parse::<u128>().is_ok_and(|count| count <= MAX_COUNT);
    if cells.iter().flatten().all(is_count) {
        cells.iter_mut().flatten().for_each(|text| *text = grouped(text));
    }
}

/// Rounds a float to six significant digits.
fn rounded(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() || !(1e-4..1e15).contains(&magnitude) {
        return match value == 0.0 || !value.is_finite() {
            true => format!("{value:?}"),
            false => format!("{value:.5e}"),
        };
    }
    let decimals = (5.0 - magnitude.log10().floor()).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.split_once('.') {
        Some((whole, decimals)) => match decimals.trim_end_matches('0') {
            "" => format!("{}.0", grouped(whole)),
            decimals => format!("{}.{decimals}", grouped(whole)),
        },
        None => format!("{}.0", grouped(&text)),
    }
}

/// Replaces control characters, which would break the lines of a table.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Float64Array, Int64Array, StringArray, UInt64Array};
    use std::sync::Arc;

    fn batch(columns: Vec<(&str, Arc<dyn Array>)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
    }

    #[test]
    fn floats_have_six_significant_digits() {
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.5, "0.5"),
            (4.0, "4.0"),
            (3_902.666_667, "3,902.67"),
            (-1_234_567.891, "-1,234,568.0"),
            (0.000_123_456_789, "0.000123457"),
            (0.000_012_3, "1.23000e-5"),
            (1e15, "1.00000e15"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(rounded(value), expected, "{value}");
        }
    }

    #[test]
    fn people_read_separators_nulls_and_labels() {
        let rows = batch(vec![
            ("n", Arc::new(Int64Array::from(vec![Some(-1_234_567), None]))),
            ("run_id", Arc::new(UInt64Array::from(vec![1000, 2000]))),
            ("hash", Arc::new(UInt64Array::from(vec![1, u64::MAX]))),
            ("x", Arc::new(Float64Array::from(vec![Some(1e3), Some(2.0)]))),
            ("text", Arc::new(StringArray::from(vec![Some("a\nb"), None]))),
        ]);
        let expected = "\
+------------+--------+----------------------+---------+------+
|          n | run_id |                 hash |       x | text |
+------------+--------+----------------------+---------+------+
| -1,234,567 |   1000 |                    1 | 1,000.0 | a\\nb |
|       NULL |   2000 | 18446744073709551615 |     2.0 | NULL |
+------------+--------+----------------------+---------+------+";
        assert_eq!(table(&[rows], Look::default()).unwrap().text, expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = "テキスト, or a long text with many words".repeat(2);
        let names: Vec<String> = (0..9).map(|i| format!("column_{i}")).collect();
        let columns = names.iter().enumerate().map(|(i, name)| {
            let array: Arc<dyn Array> = match i % 2 {
                0 => Arc::new(StringArray::from(vec![text.as_str()])),
                _ => Arc::new(Int64Array::from(vec![123_456_789])),
            };
            (name.as_str(), array)
        });
        let rows = batch(columns.collect());
        let widest = |table: &Table| table.text.lines().map(measure_text_width).max().unwrap();
        let whole = table(std::slice::from_ref(&rows), Look::default()).unwrap();
        assert_eq!(whole.num_hidden, 0);
        for width in 40..=widest(&whole) {
            let look = Look { width: Some(width), colors: width % 2 == 0 };
            let shown = table(std::slice::from_ref(&rows), look).unwrap();
            assert!(widest(&shown) <= width, "{width}:\n{}", shown.text);
            assert_eq!(shown.text.contains('…'), width < widest(&whole));
            // A number is whole or hidden.
            let visible = names.iter().skip(1).step_by(2).filter(|name| shown.text.contains(*name)).count();
            assert_eq!(shown.text.matches("123,456,789").count(), visible, "{}", shown.text);
            assert!(shown.num_hidden == 0 || shown.text.contains("| … |"));
        }
        assert!(table(&[rows], Look { width: Some(40), colors: false }).unwrap().num_hidden > 4);
    }
}
