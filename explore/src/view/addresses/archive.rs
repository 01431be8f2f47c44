//! The archive: its description, the names that a statement can use, and events of new versions.

use crate::page::{MAX_GAP, MIN_LOSS, palettes};
use crate::rows::read;
use crate::view::explorer::{Explorer, MAX_ROWS, limits};
use crate::view::request::{Answer, blocking};
use a2store::archive::TableName;
use a2store::query::{Function, SavedQuery, functions, json_rows, no_params, short, type_name};
use arrow::datatypes::{Field, Schema};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Describes the archive.
pub(crate) async fn archive(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let sql = "SELECT engine FROM runs GROUP BY engine ORDER BY engine NULLS LAST";
        let engines: Vec<Value> = json_rows(&read(&archive, sql, &limits(), cancel)?)?.into_iter().flatten().collect();
        let path = archive.path();
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let models: Vec<String> = archive.annotations().into_iter().map(|model| model.model).collect();
        Ok(Json(json!({
            "name": name,
            "path": path.to_string_lossy(),
            "version": archive.version(),
            "num_runs": archive.num_runs(),
            "num_steps": archive.num_steps(),
            "phases": { "mid": archive.phases().mid, "late": archive.phases().late },
            "engines": engines,
            "models": models,
            "policy": explorer.policy.as_ref().map(|policy| policy.name()),
            "program": concat!("a2store ", env!("CARGO_PKG_VERSION")),
            "max_rows": MAX_ROWS,
            "min_loss": short(MIN_LOSS),
            "max_gap": short(MAX_GAP),
            "palettes": palettes(),
        })))
    })
    .await
}

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

/// Lists the tables with their columns, the functions and the named queries.
pub(crate) async fn schema(State(explorer): State<Arc<Explorer>>) -> Answer<Value> {
    blocking(move |cancel| {
        let archive = explorer.archive();
        let mut tables = Vec::new();
        for name in TableName::ALL.map(TableName::name) {
            let query = archive.sql_with(&format!("SELECT * FROM {name}"), no_params(), &limits(), cancel)?;
            tables.push(json!({ "name": name, "columns": columns(name, &query.schema()) }));
        }
        let function = |function: &Function| {
            json!({
                "name": function.name,
                "call": function.signature(),
                "type": type_name(&function.return_type()),
                "doc": function.doc,
                "example": function.example.0,
                "result": function.example.1,
            })
        };
        let functions: Vec<Value> = functions().iter().map(function).collect();
        // The page reads the parameters in the header of the SQL, as it does for statements of the editor.
        let query = |query: SavedQuery| json!({ "name": query.name, "purpose": query.purpose, "sql": query.sql });
        let queries: Vec<Value> = SavedQuery::all().into_iter().map(query).collect();
        Ok(Json(json!({ "tables": tables, "functions": functions, "queries": queries })))
    })
    .await
}

/// Polls for new versions while a page is open.
pub(crate) async fn watch_archive(explorer: Arc<Explorer>) {
    // Each poll of an object store is a request that costs money.
    let period = Duration::from_millis(if explorer.archive().folder().is_some() { 500 } else { 10_000 });
    loop {
        tokio::time::sleep(period).await;
        if explorer.archive.receiver_count() == 0 {
            continue;
        }
        let explorer = Arc::clone(&explorer);
        // The archive may be unreachable for a while. Then the requests of the page report the error.
        _ = tokio::task::spawn_blocking(move || explorer.refresh()).await;
    }
}

/// Sends events, in the format of server-sent events, until the page closes.
pub(crate) async fn events(State(explorer): State<Arc<Explorer>>) -> Response {
    /// The interval of comments that show that the connection is alive.
    const ALIVE: Duration = Duration::from_secs(15);
    let text = |explorer: &Explorer| {
        let archive = explorer.archive();
        let (version, num_runs, num_steps) = (archive.version(), archive.num_runs(), archive.num_steps());
        let data = json!({ "version": version, "num_runs": num_runs, "num_steps": num_steps });
        format!("event: archive\ndata: {data}\n\n")
    };
    let mut receiver = explorer.archive.subscribe();
    // The first event describes the archive as it is.
    receiver.mark_changed();
    let news = stream::unfold((receiver, explorer), move |(mut receiver, explorer)| async move {
        let next = match tokio::time::timeout(ALIVE, receiver.changed()).await {
            Ok(Ok(())) => text(&explorer),
            Ok(Err(_)) => return None,
            Err(_) => ": alive\n\n".to_owned(),
        };
        Some((Ok::<_, std::convert::Infallible>(next), (receiver, explorer)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(news)).into_response()
}
