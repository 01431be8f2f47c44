//! Attaching the values of an Arrow stream, such as the result of a query, to a table.
//!
//! Memory holds the values once. The keys are in memory too while they are aligned with the table.

use super::attached::{AttachedColumn, ValueShard};
use super::element::ElementType;
use super::layout::ExtraField;
use super::memory::{Region, memory_limit as bytes_allowed};
use super::row_writer::{at_row, write_values};
use super::step_keys::{BOARD, STEPS, StepKeys};
use super::step_table::StepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::machine::reserve;
use crate::progress::{Progress, Unit};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;

/// The name of the column of run ids.
const RUN_ID: &str = "run_id";

impl StepTable {
    /// Returns this table with one more column, whose values are in batches of rows of this schema. The rows have the integers
    /// `run_id` and `step_index` (or `step_idx`), one column of values, and may have `board`, uint64, which must then
    /// equal the table's boards. Each value is a number, a boolean or a fixed-size list of these; a null is NaN in
    /// floats.
    ///
    /// The column behaves as one of [`attach`](StepTable::attach), but its values are in memory. The rows may
    /// have any order, and the stream may have additional rows. While the keys are aligned, they take eight bytes per
    /// row of the stream if run ids and step indices are uint32. `memory_limit` bounds the bytes of values and keys;
    /// `None` = the memory that the system has available.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the name is taken; [`ErrorKind::Column`] if a column is missing or
    /// has another type, or if the stream lacks the step of a table row or has a step twice;
    /// [`ErrorKind::MemoryLimit`]; [`ErrorKind::Cancelled`]; the errors of the stream.
    ///
    /// # Examples
    /// ```no_run
    /// use a2store::{Archive, CancellationToken, StepTable, no_params};
    /// # fn example(archive: &Archive, table: &StepTable) -> a2store::Result<()> {
    /// let sql = "SELECT run_id, step_index, policy_p1 FROM annotations WHERE model = 'model-v1'";
    /// let rows = archive.sql(sql, no_params())?.stream()?;
    /// let (schema, cancel) = (rows.schema(), CancellationToken::new());
    /// let table = table.attach_rows("policy_p1", &schema, rows, None, &(), &cancel)?;
    /// assert_eq!(table.take(&[5, 0])?.column("policy_p1").unwrap().values_per_row, 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn attach_rows(
        &self,
        name: &str,
        schema: &Schema,
        rows: impl IntoIterator<Item = Result<RecordBatch>>,
        memory_limit: Option<u64>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        self.check_unused(name)?;
        let columns = KeyedColumns::find(schema)?;
        progress.begin("read", Unit::Rows, 0);
        let read = columns.read(rows, bytes_allowed(memory_limit), progress, cancel);
        progress.end();
        let (shard, keys) = read?;
        let column = AttachedColumn {
            name: name.into(),
            dtype: columns.values.dtype,
            values_per_row: columns.values.values_per_row,
            values: [shard].into(),
            places: self.places(name, None, &keys, progress, cancel)?,
        };
        self.with_column(column)
    }
}

/// The columns of a stream: those of a key as fields of a packed row, and the values.
struct KeyedColumns {
    key: Vec<ExtraField>,
    key_columns: Vec<usize>,
    /// The size of a key in bytes.
    key_width: usize,
    values: ExtraField,
    value_column: usize,
}

impl KeyedColumns {
    fn find(schema: &Schema) -> Result<KeyedColumns> {
        let steps: Vec<&str> = STEPS.into_iter().filter(|name| schema.index_of(name).is_ok()).collect();
        let is_key = |name: &str| name == RUN_ID || name == BOARD || STEPS.contains(&name);
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let values: Vec<usize> = (0..names.len()).filter(|&column| !is_key(names[column])).collect();
        let keys: Vec<usize> = (0..names.len()).filter(|&column| is_key(names[column])).collect();
        let has_run_id = names.iter().filter(|name| **name == RUN_ID).count() == 1;
        let is_once = |column: &usize| names.iter().filter(|name| **name == names[*column]).count() == 1;
        let ([value_column], [_], true, true) = (&values[..], &steps[..], has_run_id, keys.iter().all(is_once)) else {
            let expected = "the columns run_id and step_index, one column of values, and board or nothing else";
            return Err(Error::argument("rows", expected, names.join(", ")));
        };
        let mut offset = 0;
        let mut key = Vec::new();
        for &column in &keys {
            let found = schema.field(column).data_type();
            let is_board = names[column] == BOARD;
            let dtype = ElementType::of_arrow(names[column], found).map(|(dtype, _)| dtype).ok();
            let fits = if is_board { dtype == Some(ElementType::UInt64) } else { found.is_integer() };
            let Some(dtype) = dtype.filter(|_| fits) else {
                let expected = if is_board { "uint64" } else { "integers" };
                return Err(Error::column(names[column], None, expected, found));
            };
            key.push(ExtraField { offset, ..ExtraField::new(names[column], dtype, 1) });
            offset += dtype.width();
        }
        let (dtype, values_per_row) =
            ElementType::of_arrow(names[*value_column], schema.field(*value_column).data_type())?;
        let values = ExtraField::new(names[*value_column], dtype, values_per_row);
        Ok(KeyedColumns { key, key_columns: keys, key_width: offset, values, value_column: *value_column })
    }

    /// Reads all rows: their values, and their keys.
    fn read(
        &self,
        rows: impl IntoIterator<Item = Result<RecordBatch>>,
        limit: u64,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<(ValueShard, StepKeys)> {
        let (mut region, reserved) = Region::reserve_up_to(limit)?;
        let limit = limit.min(reserved);
        let (mut keys, mut len, mut num_rows) = (Vec::new(), 0, 0);
        for batch in rows {
            cancel.check()?;
            let batch = batch?;
            let width = self.values.width() + self.key_width;
            let needed = (len + keys.len() + batch.num_rows() * width) as u64;
            if needed > limit {
                return Err(ErrorKind::MemoryLimit { needed, limit }.into());
            }
            let end = len + batch.num_rows() * self.values.width();
            let values = region.bytes_mut().get_mut(len..end).unwrap_or_default();
            self.write(&batch, values, &mut keys).map_err(|error| at_row(error, num_rows))?;
            len = end;
            num_rows += batch.num_rows() as u64;
            progress.advance(batch.num_rows() as u64);
        }
        let keys = StepKeys::of_rows(keys, &self.key)?;
        Ok((ValueShard { first_row: 0, values: region.freeze(len)? }, keys))
    }

    fn write(&self, batch: &RecordBatch, values: &mut [u8], keys: &mut Vec<u8>) -> Result<()> {
        write_values(batch.column(self.value_column), &self.values, self.values.width(), values)?;
        let start = keys.len();
        let len = batch.num_rows() * self.key_width;
        reserve(keys, len)?;
        keys.resize(start + len, 0);
        for (field, &column) in self.key.iter().zip(&self.key_columns) {
            write_values(batch.column(column), field, self.key_width, &mut keys[start..])?;
        }
        Ok(())
    }
}
