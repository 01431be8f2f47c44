//! The first rows of a result, as a table in text or HTML.

use crate::board::{Board, Palette, WideBoard, board_svg};
use crate::error::Result;
use crate::query::engine::errors::query_error;
use crate::query::output::type_names::type_name;
use crate::query::query::Query;
use crate::system::cancellation::CancellationToken;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt16Array, UInt64Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use arrow::util::pretty::pretty_format_batches_with_options;
use std::fmt;
use std::sync::Arc;

/// The width of a board's picture in pixels.
const PICTURE_SIZE: u32 = 64;
/// NULL is shown as `null`, and an empty cell is an empty string.
const FORMAT: FormatOptions<'static> = FormatOptions::new().with_null("null");

/// The first rows of a [`Query`]. Its `Display` is a text table. Floats are rounded to 6 decimals, those below 0.1 to
/// 6 significant digits.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// let preview = archive.sql("SELECT 1 AS one", a2store::query::no_params())?.preview(10, &a2store::CancellationToken::new())?;
/// assert_eq!((preview.num_rows, preview.has_more), (1, false));
/// assert!(preview.to_string().contains("| one |"));
/// # Ok::<(), a2store::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Preview {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// The number of rows shown.
    pub num_rows: usize,
    /// Whether the result has more rows.
    pub has_more: bool,
}

impl Query {
    /// Runs the query until it has returned `max_rows` rows, and then stops it.
    ///
    /// # Errors
    /// The errors of [`stream`](Query::stream).
    pub fn preview(&self, max_rows: usize, cancel: &CancellationToken) -> Result<Preview> {
        let mut stream = self.stream(cancel)?;
        let batches = std::iter::from_fn(|| stream.next_batch(cancel).transpose());
        Preview::of_batches(self.schema(), batches, max_rows)
    }
}

impl Preview {
    /// Takes the first rows of batches. Batches after these rows are not read.
    ///
    /// # Errors
    /// The errors of the batches.
    pub fn of_batches(
        schema: SchemaRef,
        batches: impl IntoIterator<Item = Result<RecordBatch>>,
        max_rows: usize,
    ) -> Result<Preview> {
        let mut preview = Preview { schema, batches: Vec::new(), num_rows: 0, has_more: false };
        for batch in batches {
            let batch = batch?;
            let taken = batch.num_rows().min(max_rows - preview.num_rows);
            preview.num_rows += taken;
            preview.has_more |= taken < batch.num_rows();
            let columns = batch.slice(0, taken).columns().iter().map(rounded).collect();
            let rounded = RecordBatch::try_new(batch.schema(), columns);
            preview.batches.push(rounded.map_err(|error| query_error(error.into()))?);
            if preview.has_more {
                break;
            }
        }
        Ok(preview)
    }

    /// Returns the rows as an HTML table, with the types of the columns. Boards are small pictures; pointing at one
    /// shows its number.
    ///
    /// # Errors
    /// [`ErrorKind::Query`](crate::ErrorKind::Query) for values that cannot be shown as text.
    pub fn to_html(&self) -> Result<String> {
        let failed = |error: ArrowError| query_error(error.into());
        let mut html = String::from("<table>\n<thead><tr>");
        for field in self.schema.fields() {
            let (name, dtype) = (escaped(field.name()), escaped(&type_name(field.data_type())));
            html += &format!("<th>{name}<br><small>{dtype}</small></th>");
        }
        html += "</tr></thead>\n<tbody>\n";
        for batch in &self.batches {
            let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &FORMAT));
            let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
            let pictures: Vec<_> = (0..columns.len()).map(|at| pictures(batch, at)).collect();
            for row in 0..batch.num_rows() {
                html += "<tr>";
                for (column, picture) in columns.iter().zip(&pictures) {
                    let text = escaped(&column.value(row).try_to_string().map_err(failed)?);
                    match picture.as_ref().and_then(|picture| picture(row)) {
                        Some(picture) => html += &format!("<td title=\"{text}\">{picture}</td>"),
                        None => html += &format!("<td>{text}</td>"),
                    }
                }
                html += "</tr>\n";
            }
        }
        html += "</tbody>\n</table>\n";
        html += &format!("<small>{}</small>", self.summary());
        Ok(html)
    }

    fn summary(&self) -> String {
        let rows = if self.num_rows == 1 { "row" } else { "rows" };
        match self.has_more {
            true => format!("the first {} {rows}", self.num_rows),
            false => format!("{} {rows}", self.num_rows),
        }
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut batches = vec![RecordBatch::new_empty(self.schema.clone())];
        batches.extend_from_slice(&self.batches);
        let table = pretty_format_batches_with_options(&batches, &FORMAT).map_err(|_| fmt::Error)?.to_string();
        // Control characters of a text could send commands to the terminal.
        let printable = |c: char| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.into() };
        write!(f, "{}\n{}", table.chars().map(printable).collect::<String>(), self.summary())
    }
}

/// Returns the pictures of a column by row, if the column's name says that it holds boards. The mask of their tiles of
/// 65,536 is another column.
fn pictures(batch: &RecordBatch, at: usize) -> Option<impl Fn(usize) -> Option<String>> {
    let mask = match batch.schema().field(at).name().as_str() {
        "board" | "position" => "tile_65536_mask",
        "final_board" => "final_tile_65536_mask",
        _ => return None,
    };
    let boards: &UInt64Array = batch.column(at).as_primitive_opt()?;
    let masks: Option<&UInt16Array> = batch.column_by_name(mask).and_then(|column| column.as_primitive_opt());
    Some(move |row: usize| -> Option<String> {
        let mask = masks.filter(|masks| masks.is_valid(row)).map_or(0, |masks| masks.value(row));
        let board = boards.is_valid(row).then(|| Board(boards.value(row)))?;
        Some(board_svg(WideBoard::new(board, mask).ok()?, Palette::Classic, PICTURE_SIZE))
    })
}

/// Rounds a column of floats for people.
fn rounded(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Float64 => Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float64Type>(round)),
        DataType::Float32 => {
            let round = |value: f32| round(f64::from(value)) as f32;
            Arc::new(column.as_primitive::<Float32Type>().unary::<_, Float32Type>(round))
        }
        _ => Arc::clone(column),
    }
}

fn round(value: f64) -> f64 {
    let rounded = match value.abs() >= 0.1 {
        true => (value * 1e6).round() / 1e6,
        false => format!("{value:.5e}").parse().unwrap_or(value),
    };
    if rounded.is_finite() { rounded } else { value }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
