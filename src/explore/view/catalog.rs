//! The names that a statement can use: tables, columns, functions and named queries.

use super::explorer::Explorer;
use super::failure::Answer;
use super::request::blocking;
use crate::query::{SavedQuery, functions, no_params, type_name};
use arrow::datatypes::{Field, Schema};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// The description of the tables. Each row describes one or more columns: "| `a`, `b` | types | … | meaning |".
const TABLES: &str = include_str!("../../../docs/archive.md");

/// Returns the description of a table's column; an empty text if there is none.
fn column_doc(table: &str, column: &str) -> String {
    match (table, column) {
        ("annotations", "policy_p1" | "policy_logp" | "policy_hard") => {
            return format!("{column}_up, {column}_down, {column}_left and {column}_right as a list");
        }
        ("notes", "run_id" | "step_index") => {
            return "the position; the final board has the index of the last step plus 1".into();
        }
        ("notes", "mark") => return "a word; may be empty".into(),
        ("notes", "note") => return "a text; may be empty".into(),
        ("notes", "written") => return "when the note was written".into(),
        _ => {}
    }
    let heading = format!("\n## `{table}`\n");
    let section = TABLES.split_once(&heading).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or_default());
    let quoted = format!("`{column}`");
    let mut rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let row =
        rows.find(|row| row.split(" | ").next().is_some_and(|names| names.split(", ").any(|name| name == quoted)));
    let doc = row.and_then(|row| row.trim_end_matches('|').trim_end().rsplit_once("| ")).map_or("", |(_, doc)| doc);
    doc.replace('`', "")
}

/// Describes the columns of a table.
fn columns(table: &str, schema: &Schema) -> Vec<Value> {
    let column = |field: &Arc<Field>| {
        let doc = column_doc(table, field.name());
        json!({ "name": field.name(), "type": type_name(field.data_type()), "doc": doc })
    };
    schema.fields().iter().map(column).collect()
}

pub(super) async fn schema(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        // If the notes file cannot be read, the table `notes` is left out.
        let options = explorer.options_of("notes").unwrap_or_else(|_| explorer.limits());
        let archive = explorer.archive();
        let mut names = vec!["runs", "steps", "annotations"];
        names.extend(options.tables.iter().map(|(name, _)| name.as_str()));
        let mut tables = Vec::new();
        for name in &names {
            let query =
                archive.sql_unless_cancelled(&format!("SELECT * FROM {name}"), no_params(), &options, cancel)?;
            tables.push(json!({ "name": name, "columns": columns(name, &query.schema()) }));
        }
        let functions: Vec<Value> = functions()
            .iter()
            .map(|function| {
                json!({
                    "name": function.name,
                    "call": function.signature(),
                    "type": type_name(&function.return_type()),
                    "doc": function.doc,
                    "example": function.example.0,
                    "result": function.example.1,
                })
            })
            .collect();
        let queries: Vec<Value> = SavedQuery::shipped()?.iter().map(named_query).collect();
        Ok(Json(json!({ "tables": tables, "functions": functions, "queries": queries })))
    })
    .await
}

fn named_query(query: &SavedQuery) -> Value {
    let parameters = query.parameters.iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "type": parameter.dtype,
            "default": parameter.default.as_ref().map(default_text),
            "doc": parameter.doc,
        })
    });
    let columns =
        query.columns.iter().map(|column| json!({ "name": column.name, "type": column.dtype, "doc": column.doc }));
    json!({
        "name": query.name,
        "purpose": query.purpose,
        "sql": query.sql,
        "parameters": parameters.collect::<Vec<_>>(),
        "columns": columns.collect::<Vec<_>>(),
    })
}

fn default_text(value: &crate::query::ScalarValue) -> String {
    if value.is_null() { "null".to_owned() } else { value.to_string() }
}
