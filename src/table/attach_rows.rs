//! Attaching the values of an Arrow stream, such as the result of a query, to a table.
//!
//! Memory holds the values once. The keys are in memory too while they are aligned with the table.

use super::attached::{AttachedColumn, ValueShard};
use super::element::ElementType;
use super::layout::ExtraField;
use super::memory::{Region, memory_limit as bytes_allowed};
use super::row_writer::{at_row, write_values};
use super::step_keys::{BOARD, RUN_ID, STEPS, StepKeys, key_of};
use super::step_table::StepTable;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::{Progress, Unit};
use arrow::array::{Array, AsArray, RecordBatch, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Schema, UInt32Type, UInt64Type};

impl StepTable {
    /// Returns this table with one more column, whose values are in batches of rows of this schema. The rows have the
    /// integers `run_id` and `step_index` (or `step_idx`), one column of values, and may have `board`, uint64, which
    /// must then equal the table's boards. Each value is a number, a boolean or a fixed-size list of these; a null is
    /// NaN in floats.
    ///
    /// The column behaves as one of [`attach`](StepTable::attach), but its values are in memory. The rows may
    /// have any order, and the stream may have additional rows. While the keys are aligned, they take eight bytes per
    /// row of the stream, and boards take eight more. `memory_limit` bounds the bytes of values and keys;
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
    /// let cancel = CancellationToken::new();
    /// let rows = archive.sql(sql, no_params())?.stream(&cancel)?;
    /// let schema = rows.schema();
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

/// The columns of a stream: those of a key, and the values.
struct KeyedColumns {
    run_id: usize,
    step: usize,
    board: Option<usize>,
    values: ExtraField,
    value_column: usize,
}

impl KeyedColumns {
    fn find(schema: &Schema) -> Result<KeyedColumns> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let of_names = |wanted: &[&str]| (0..names.len()).filter(|&k| wanted.contains(&names[k])).collect::<Vec<_>>();
        let (run_id, step, board) = (of_names(&[RUN_ID]), of_names(&STEPS), of_names(&[BOARD]));
        let values = (0..names.len()).filter(|k| ![&run_id, &step, &board].iter().any(|columns| columns.contains(k)));
        let values: Vec<usize> = values.collect();
        let (&[run_id], &[step], &[value_column], true) = (&run_id[..], &step[..], &values[..], board.len() < 2) else {
            let expected = "the columns run_id and step_index, one column of values, and board or nothing else";
            return Err(Error::argument("rows", expected, names.join(", ")));
        };
        let board = board.first().copied();
        let check = |column: usize, expected: &str, fits: fn(&DataType) -> bool| {
            let found = schema.field(column).data_type();
            if fits(found) { Ok(()) } else { Err(Error::column(names[column], None, expected, found)) }
        };
        check(run_id, "integers", DataType::is_integer)?;
        check(step, "integers", DataType::is_integer)?;
        board.map_or(Ok(()), |board| check(board, "uint64", |dtype| *dtype == DataType::UInt64))?;
        let (dtype, values_per_row) =
            ElementType::of_arrow(names[value_column], schema.field(value_column).data_type())?;
        let values = ExtraField::new(names[value_column], dtype, values_per_row);
        Ok(KeyedColumns { run_id, step, board, values, value_column })
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
        let (mut keys, mut len) = (StepKeys::default(), 0);
        for batch in rows {
            cancel.check()?;
            let batch = batch?;
            let first_row = keys.num_rows();
            let end = len + batch.num_rows() * self.values.width();
            let values = region.bytes_mut().get_mut(len..end).unwrap_or_default();
            let needed = end as u64 + keys.num_bytes() + (batch.num_rows() * self.key_width()) as u64;
            if needed > limit {
                return Err(ErrorKind::MemoryLimit { needed, limit }.into());
            }
            self.write(&batch, values, &mut keys).map_err(|error| at_row(error, first_row))?;
            len = end;
            progress.advance(batch.num_rows() as u64);
        }
        Ok((ValueShard { first_row: 0, values: region.freeze(len)? }, keys))
    }

    /// Returns the size of a key and its board in bytes.
    fn key_width(&self) -> usize {
        size_of::<u64>() * if self.board.is_some() { 2 } else { 1 }
    }

    fn write(&self, batch: &RecordBatch, values: &mut [u8], keys: &mut StepKeys) -> Result<()> {
        write_values(batch.column(self.value_column), &self.values, self.values.width(), values)?;
        let column = |column: usize| {
            let (array, schema) = (batch.column(column), batch.schema());
            match (0..array.len()).find(|&row| array.is_null(row)) {
                Some(row) => Err(Error::column(schema.field(column).name(), Some(row as u64), "a value", "NULL")),
                None => Ok(array),
            }
        };
        // Values that are no uint32 become nulls.
        let integers = |number: usize| -> Result<_> {
            let array = cast(column(number)?, &DataType::UInt32).map_err(std::io::Error::other)?;
            Ok(array.as_primitive::<UInt32Type>().clone())
        };
        let (run_ids, steps) = (integers(self.run_id)?, integers(self.step)?);
        let boards = self.board.map(column).transpose()?.map(|boards| boards.as_primitive::<UInt64Type>().values());
        let key = |row: usize| {
            let value = |array: &UInt32Array| array.is_valid(row).then(|| array.value(row));
            key_of(value(&run_ids), value(&steps))
        };
        keys.push((0..batch.num_rows()).map(key), boards.map(|boards| &boards[..]))
    }
}
