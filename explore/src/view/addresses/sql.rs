//! The rows of statements and named queries, in JSON.

use super::statement::Statement;
use crate::view::explorer::{Explorer, MAX_ROWS, limits};
use crate::view::failure::{Answer, Failure};
use crate::view::request::{Body, blocking};
use a2store::query::{is_board, json_rows, type_name};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The maximum size of a response's rows, as Arrow arrays.
const MAX_BYTES: u64 = 64 << 20;

#[derive(Deserialize)]
pub(crate) struct Request {
    #[serde(flatten)]
    statement: Statement,
    limit: Option<u64>,
}

/// Returns the rows of a statement or of a named query.
pub(crate) async fn rows(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let limit = request.limit.unwrap_or(MAX_ROWS);
    if limit > MAX_ROWS {
        return Err(Failure::bad_request(format!("limit: expected at most {MAX_ROWS}, found {limit}")));
    }
    let _permit = explorer.permit().await?;
    blocking(move |cancel| {
        let started = Instant::now();
        let options = limits().with_byte_limit(MAX_BYTES);
        let (query, sql) = request.statement.plan(&explorer.archive(), &options, cancel)?;
        // One extra row shows whether there are more rows.
        let query = query.limit(limit + 1)?;
        let schema = query.schema();
        let columns: Vec<Value> = schema
            .fields()
            .iter()
            .map(|field| {
                let is_board = is_board(field.name(), field.data_type());
                json!({ "name": field.name(), "type": type_name(field.data_type()), "board": is_board })
            })
            .collect();
        let mut stream = query.stream(cancel)?;
        let (mut rows, mut has_more) = (Vec::new(), false);
        while let Some(batch) = stream.next_unless_cancelled(cancel)? {
            let rest = (limit as usize).saturating_sub(rows.len());
            rows.extend(json_rows(&batch.slice(0, batch.num_rows().min(rest)))?);
            if batch.num_rows() > rest {
                has_more = true;
                break;
            }
        }
        Ok(Json(json!({
            "columns": columns,
            "num_rows": rows.len(),
            "rows": rows,
            "has_more": has_more,
            "seconds": started.elapsed().as_secs_f64(),
            "sql": sql,
        })))
    })
    .await
}
