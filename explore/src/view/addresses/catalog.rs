//! The names that a statement can use: tables, columns, functions and named queries.

use crate::view::explorer::{Explorer, limits};
use crate::view::failure::Answer;
use crate::view::request::blocking;
use a2store::archive::TableName;
use a2store::query::{SavedQuery, functions, no_params, type_name};
use arrow::datatypes::{Field, Schema};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::sync::Arc;

/// The description of the tables. Each row describes one or more columns: "| `a`, `b` | types | … | meaning |".
const TABLES: &str = include_str!("../../../../docs/columns.md");

/// Returns the description of a table's column; an empty text if there is none.
fn column_doc(table: &str, column: &str) -> String {
    if matches!((table, column), ("annotations", "policy_p1" | "policy_logp" | "policy_hard")) {
        return format!("{column}_up, {column}_down, {column}_left and {column}_right as a list");
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

pub(crate) async fn schema(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let mut tables = Vec::new();
        for name in TableName::ALL.map(TableName::name) {
            let query = archive.sql_with(&format!("SELECT * FROM {name}"), no_params(), &limits(), cancel)?;
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
        // The page reads the parameters in the header of the SQL, as it does for statements of the editor.
        let queries: Vec<Value> = SavedQuery::all()
            .iter()
            .map(|query| json!({ "name": query.name, "purpose": query.purpose, "sql": query.sql }))
            .collect();
        Ok(Json(json!({ "tables": tables, "functions": functions, "queries": queries })))
    })
    .await
}
