//! Rows of a table that meet a condition in SQL.
//!
//! The columns are those of the archive's `steps` that a row can provide: fields of the step, values derived from the
//! board, and the run's score and engine. Extra and attached columns have their own types.
//! Threads evaluate the condition on chunks of rows, and gather only the columns that it uses.

use super::attached::AttachedColumn;
use super::batch_schema::BatchSchema;
use super::runs::RunFacts;
use super::selection::Selection;
use super::step_column::{STEP_INDEX, TILE_MASK, is_reserved};
use super::step_table::StepTable;
use super::threads::in_parts;
use super::view::unknown;
use crate::archive::Phases;
use crate::board::Board;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::query::RowCondition;
use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float32Array, Int64Array, RecordBatch, StringArray, UInt8Array, UInt16Array,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Float32Type, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use std::sync::Arc;

/// The number of rows that a condition is evaluated on at a time.
const CHUNK: u64 = 1 << 16;

/// The columns of `steps` that every table has, their types, and the columns of a table that they are made from.
const COLUMNS: [(&str, DataType, &[&str]); 15] = [
    ("run_id", DataType::UInt32, &["run_id"]),
    (STEP_INDEX, DataType::UInt32, &[STEP_INDEX]),
    ("board", DataType::UInt64, &["board"]),
    ("move", DataType::UInt8, &["move"]),
    ("ev_legal", DataType::UInt8, &["ev_legal"]),
    ("ev_up", DataType::Float32, &["ev_values", "ev_legal"]),
    ("ev_down", DataType::Float32, &["ev_values", "ev_legal"]),
    ("ev_left", DataType::Float32, &["ev_values", "ev_legal"]),
    ("ev_right", DataType::Float32, &["ev_values", "ev_legal"]),
    ("has_evs", DataType::Boolean, &["ev_values"]),
    ("max_exp", DataType::UInt8, &["board", TILE_MASK]),
    ("phase", DataType::Utf8, &["board"]),
    ("max_score", DataType::Int64, &["run_id"]),
    ("engine", DataType::Utf8, &["run_id"]),
    (TILE_MASK, DataType::UInt16, &[TILE_MASK]),
];

impl StepTable {
    /// Returns the rows that meet a condition in SQL.
    pub(super) fn meeting(&self, condition: &str, cancel: &CancellationToken) -> Result<Selection> {
        let schema = condition_schema(&BatchSchema::of_table(self.layout(), AttachedColumn::specs(&self.attached)));
        let condition = RowCondition::plan(condition, &schema, self.runs.phases.unwrap_or_default(), cancel)?;
        let columns = ConditionColumns::new(self, condition.schema())?;
        let part = |number: usize| {
            let start = number as u64 * CHUNK;
            let positions: Vec<u64> = (start..self.num_rows().min(start + CHUNK)).collect();
            let meets = condition.rows(&columns.of_rows(&positions)?)?;
            let mut rows: Vec<u64> = meets.set_indices().map(|row| start + row as u64).collect();
            self.map_positions(&mut rows);
            let ranges = rows.chunk_by(|a, b| a + 1 == *b).map(|rows| rows[0]..rows[rows.len() - 1] + 1);
            Ok(ranges.collect::<Vec<_>>())
        };
        let found = in_parts(self.num_rows().div_ceil(CHUNK) as usize, cancel, part)?;
        Ok(Selection::new(found.into_iter().flatten()))
    }
}

/// Returns the columns that a condition may use. A column of the table has precedence over a derived one.
fn condition_schema(table: &BatchSchema) -> SchemaRef {
    let own = table.arrow().fields().iter().filter(|field| !is_reserved(field.name()));
    let derived = COLUMNS.iter().filter(|(name, ..)| !own.clone().any(|field| field.name() == name));
    let derived = derived.map(|(name, dtype, _)| Arc::new(Field::new(*name, dtype.clone(), true)));
    Arc::new(Schema::new(derived.chain(own.clone().cloned()).collect::<Vec<_>>()))
}

/// Makes the columns of a condition from rows.
struct ConditionColumns<'t> {
    table: &'t StepTable,
    /// The columns of the condition.
    schema: SchemaRef,
    /// The columns of the table that they are made from.
    gathered: Arc<BatchSchema>,
    phases: Phases,
    facts: Option<Arc<RunFacts>>,
}

impl ConditionColumns<'_> {
    fn new<'t>(table: &'t StepTable, schema: &SchemaRef) -> Result<ConditionColumns<'t>> {
        let inputs =
            |name: &str| COLUMNS.iter().find(|column| column.0 == name).map_or(&[] as &[&str], |column| column.2);
        let needs = |field: &Arc<Field>, name: &str| field.name() == name || inputs(field.name()).contains(&name);
        let gathered = BatchSchema::of_table_columns(table.layout(), AttachedColumn::specs(&table.attached), |name| {
            schema.fields().iter().any(|field| needs(field, name))
        });
        let uses = |name: &str| schema.index_of(name).is_ok() && gathered.arrow().index_of(name).is_err();
        let facts = match uses("max_score") || uses("engine") {
            true => Some(table.runs.facts()?.ok_or_else(|| unknown("the scores and engines of its runs"))?),
            false => None,
        };
        let phases = table.runs.phases.ok_or_else(|| unknown("thresholds of the game phases"));
        let phases = if uses("phase") { phases? } else { Phases::default() };
        Ok(ConditionColumns { table, schema: Arc::clone(schema), gathered: Arc::new(gathered), phases, facts })
    }

    fn of_rows(&self, positions: &[u64]) -> Result<RecordBatch> {
        let rows = self.table.gathered(positions, &self.gathered)?.to_record_batch()?;
        let columns = self.schema.fields().iter().map(|field| {
            let own = rows.column_by_name(field.name()).filter(|_| !is_reserved(field.name()));
            let column = own.map_or_else(|| self.derived(field.name(), &rows), |column| Some(Arc::clone(column)));
            let column = column.unwrap_or_else(|| new_null_array(field.data_type(), rows.num_rows()));
            cast(&column, field.data_type())
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>().map_err(std::io::Error::other)?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options);
        Ok(batch.map_err(std::io::Error::other)?)
    }

    /// Returns a column of `steps`. Nulls are where `steps` has them.
    fn derived(&self, name: &str, rows: &RecordBatch) -> Option<ArrayRef> {
        let boards = || Some(rows.column_by_name("board")?.as_primitive_opt::<UInt64Type>()?.values().iter());
        let exps = || Some(boards()?.map(|&board| Board(board).max_exp()));
        let masks = rows.column_by_name(TILE_MASK).and_then(|masks| masks.as_primitive_opt::<UInt16Type>());
        let facts = || {
            let ids = rows.column_by_name("run_id")?.as_primitive_opt::<UInt32Type>()?;
            Some(ids.values().iter().map(|&id| self.facts.as_ref().and_then(|facts| facts.get(id))))
        };
        let values = |branch: usize| {
            let values = rows.column_by_name("ev_values")?.as_fixed_size_list_opt()?.values().clone();
            let values = values.as_primitive_opt::<Float32Type>()?.clone();
            Some((0..rows.num_rows()).map(move |row| values.value(4 * row + branch)))
        };
        let value = |branch: usize| {
            let legal = rows.column_by_name("ev_legal")?.as_primitive_opt::<UInt8Type>()?.values().iter();
            let value = |(value, legal): (f32, &u8)| (legal >> branch & 1 == 1 && !value.is_nan()).then_some(value);
            Some(Arc::new(values(branch)?.zip(legal).map(value).collect::<Float32Array>()) as ArrayRef)
        };
        Some(match name {
            "move" => {
                let moves = rows.column_by_name(name)?.as_primitive_opt::<UInt8Type>()?.values().iter();
                Arc::new(moves.map(|&chosen| (chosen < 4).then_some(chosen)).collect::<UInt8Array>())
            }
            "ev_up" => value(0)?,
            "ev_down" => value(1)?,
            "ev_left" => value(2)?,
            "ev_right" => value(3)?,
            "has_evs" => Arc::new(values(0)?.map(|value| Some(!value.is_nan())).collect::<BooleanArray>()),
            "max_exp" => {
                let has_mask = |row| masks.is_some_and(|masks| masks.value(row) != 0);
                let exps = exps()?.enumerate().map(|(row, exp)| if has_mask(row) { 16 } else { exp });
                Arc::new(exps.collect::<UInt8Array>())
            }
            "phase" => Arc::new(exps()?.map(|exp| Some(self.phases.of_max_exp(exp).name())).collect::<StringArray>()),
            "max_score" => Arc::new(facts()?.map(|facts| facts.map(|facts| facts.0 as i64)).collect::<Int64Array>()),
            "engine" => Arc::new(facts()?.map(|facts| facts.and_then(|facts| facts.1)).collect::<StringArray>()),
            TILE_MASK => Arc::new(UInt16Array::from(vec![0; rows.num_rows()])),
            _ => Arc::clone(rows.column_by_name(name)?),
        })
    }
}
