//! The columns of the tables, for all readers of the Parquet files.
//!
//! `steps` repeats columns of the run that filters often need: `max_score`, `highest_tile`, `num_steps` and
//! `engine`. So no reader has to join the tables. Run-length and dictionary encoding store the repetition in
//! almost no space.

use super::table_name::TableName;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::{Arc, LazyLock};

/// The version of the schema and of manifests. Readers reject any other version.
pub(super) const SCHEMA_VERSION: u32 = 1;
/// The key of the schema version in the metadata of a Parquet file.
pub(super) const SCHEMA_VERSION_KEY: &str = "a2store.schema_version";
/// The key of the archive's id in the metadata of a data file.
pub(super) const ARCHIVE_KEY: &str = "a2store.archive_id";
/// The key of the id of the transaction that wrote a data file.
pub(super) const TXN_KEY: &str = "a2store.txn";

/// Returns the schema of a table, as in its Parquet files.
#[must_use]
pub fn table_schema(table: TableName) -> SchemaRef {
    static SCHEMAS: LazyLock<[SchemaRef; 3]> = LazyLock::new(|| {
        [run_fields(), step_fields(), annotation_fields()].map(|fields| Arc::new(Schema::new(fields)))
    });
    Arc::clone(&SCHEMAS[table as usize])
}

/// Returns the schema of some columns of a table, in the table's order.
pub(super) fn schema_of_columns(table: TableName, names: &[&str]) -> SchemaRef {
    let schema = table_schema(table);
    let fields = schema.fields().iter().filter(|field| names.contains(&field.name().as_str()));
    Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()))
}

/// Returns the type of columns of repeated text.
pub(super) fn text_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()))
}

fn run_fields() -> Vec<Field> {
    vec![
        // Keys.
        Field::new("run_id", DataType::UInt32, false),
        Field::new("digest", DataType::FixedSizeBinary(32), false),
        Field::new("game", DataType::Int64, true),
        // Origin.
        Field::new("format", text_dictionary(), false),
        Field::new("source", DataType::Utf8, false),
        Field::new("source_index", DataType::Int64, true),
        Field::new("source_id", DataType::Int64, true),
        Field::new("session", DataType::Utf8, true),
        Field::new("engine", text_dictionary(), true),
        Field::new("seed", DataType::UInt64, true),
        Field::new("start_time", timestamp(), true),
        Field::new("elapsed_s", DataType::Float32, false),
        // Result.
        Field::new("num_steps", DataType::UInt32, false),
        Field::new("game_steps", DataType::UInt32, true),
        Field::new("max_score", DataType::Int64, false),
        Field::new("highest_tile", DataType::UInt32, false),
        Field::new("final_board", DataType::UInt64, true),
        Field::new("final_tile_65536_mask", DataType::UInt16, true),
        Field::new("verified", DataType::Boolean, false),
        Field::new("raw_evs", DataType::Boolean, false),
        // Ingest.
        Field::new("ingested_at", timestamp(), false),
        Field::new("original", DataType::Binary, true),
    ]
}

fn step_fields() -> Vec<Field> {
    vec![
        // Keys, board and move.
        Field::new("run_id", DataType::UInt32, false),
        Field::new("step_index", DataType::UInt32, false),
        Field::new("board", DataType::UInt64, false),
        Field::new("tile_65536_mask", DataType::UInt16, false),
        Field::new("move", DataType::UInt8, true),
        // Values.
        Field::new("ev_up", DataType::Float32, true),
        Field::new("ev_down", DataType::Float32, true),
        Field::new("ev_left", DataType::Float32, true),
        Field::new("ev_right", DataType::Float32, true),
        Field::new("board_eval", DataType::Int32, true),
        Field::new("valuation_type", text_dictionary(), true),
        // Flags and columns that derive from the board.
        Field::new("ev_legal", DataType::UInt8, false),
        Field::new("has_evs", DataType::Boolean, false),
        Field::new("max_exp", DataType::UInt8, false),
        Field::new("phase", text_dictionary(), false),
        // Columns of the run.
        Field::new("max_score", DataType::Int64, false),
        Field::new("highest_tile", DataType::UInt32, false),
        Field::new("num_steps", DataType::UInt32, false),
        Field::new("engine", text_dictionary(), true),
    ]
}

/// The names of the policies in `annotations`. Each has a column per move.
pub const POLICIES: [&str; 3] = ["policy_p1", "policy_logp", "policy_hard"];
/// The moves in the order of their numbers.
pub const MOVE_NAMES: [&str; 4] = ["up", "down", "left", "right"];

fn annotation_fields() -> Vec<Field> {
    let mut fields = vec![
        Field::new("run_id", DataType::UInt32, false),
        Field::new("step_index", DataType::UInt32, false),
        Field::new("model", text_dictionary(), false),
        Field::new("teacher_move", DataType::UInt8, true),
        Field::new("legal_mask", DataType::UInt8, true),
        Field::new("policy_kind_mask", DataType::UInt8, true),
        Field::new("argmax_head", DataType::UInt8, true),
        Field::new("argmax_prob", DataType::Float32, true),
    ];
    for policy in POLICIES {
        fields.extend(MOVE_NAMES.map(|name| Field::new(format!("{policy}_{name}"), DataType::Float32, true)));
    }
    let item = Field::new_list_field(DataType::Float32, false);
    fields.push(Field::new("student_bins", DataType::List(item.into()), true));
    fields
}
