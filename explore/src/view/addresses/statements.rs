//! Statements and named queries: their rows in JSON, and results as files.

use crate::rows::scalar;
use crate::view::explorer::{Body, Explorer, MAX_ROWS, limits};
use crate::view::request::{Answer, CancelOnDrop, Failure, blocking};
use a2store::archive::Archive;
use a2store::query::{Query, QueryOptions, RowFormat, SavedQuery, ScalarValue, is_board, json_rows, type_name};
use a2store::system::cancellation::CancellationToken;
use arrow::datatypes::Field;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The maximum size of a response's rows, as Arrow arrays.
const MAX_BYTES: u64 = 64 << 20;

/// The maximum number of pieces of a file that wait until a slow client reads them.
const PIECES: usize = 8;

/// The time limit of a download, which may take longer than other requests.
const TIME: Duration = Duration::from_secs(3600);

/// A statement or the name of a query, with the values of its parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    sql: Option<String>,
    name: Option<String>,
    #[serde(default)]
    params: Map<String, Value>,
    /// The maximum number of rows in JSON.
    limit: Option<u64>,
    /// The format of a file.
    #[serde(default)]
    format: String,
}

impl Request {
    /// Plans the statement, and returns it with its text.
    fn plan(
        &self,
        archive: &Archive,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<(Query, String), Failure> {
        let param = |(name, value): (&String, &Value)| {
            // A text of decimal digits stays a text; the type of the parameter decides later.
            let expected =
                || Failure::bad_request(format!("params: {name}: expected a number, a text, a bool or null"));
            scalar(value).map(|value| (name.clone(), value)).ok_or_else(expected)
        };
        let params: Vec<(String, ScalarValue)> = self.params.iter().map(param).collect::<Result<_, Failure>>()?;
        match (&self.sql, &self.name) {
            (Some(sql), None) => Ok((archive.sql_with(sql, params, options, cancel)?, sql.clone())),
            (None, Some(name)) => {
                let saved = SavedQuery::find(name)?;
                Ok((archive.query_with(&saved, params, options, cancel)?, saved.sql))
            }
            _ => Err(Failure::bad_request("expected either sql or name")),
        }
    }
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
        let (query, sql) = request.plan(&explorer.archive(), &options, cancel)?;
        // One extra row shows whether there are more rows.
        let query = query.limit(limit + 1)?;
        let column = |field: &Arc<Field>| {
            let is_board = is_board(field.name(), field.data_type());
            json!({ "name": field.name(), "type": type_name(field.data_type()), "board": is_board })
        };
        let columns: Vec<Value> = query.schema().fields().iter().map(column).collect();
        let mut stream = query.stream(cancel)?;
        let (mut rows, mut has_more) = (Vec::new(), false);
        while let Some(batch) = stream.next_batch(cancel)? {
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

/// Sends the rows of a statement as a file, while they are written.
pub(crate) async fn download(
    State(explorer): State<Arc<Explorer>>,
    Body(request): Body<Request>,
) -> Result<Response, Failure> {
    let (format, kind) = match request.format.as_str() {
        "parquet" => (RowFormat::Parquet, "application/vnd.apache.parquet"),
        "csv" => (RowFormat::Csv, "text/csv; charset=utf-8"),
        "arrow" => (RowFormat::ArrowFile, "application/vnd.apache.arrow.file"),
        "jsonl" => (RowFormat::Json, "application/jsonl; charset=utf-8"),
        other => {
            let message = format!("format: expected parquet, csv, arrow or jsonl, found {other:?}");
            return Err(Failure::bad_request(message));
        }
    };
    let permit = explorer.permit_of(&explorer.downloads, "downloads").await?;
    let archive = explorer.archive();
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let cancel = CancellationToken::new();
    let on_drop = CancelOnDrop(cancel.clone());
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let pieces = Pieces(sender.clone());
        let planned = request.plan(&archive, &limits().with_time_limit(TIME), &cancel);
        let written = planned.and_then(|(query, _)| Ok(query.stream(&cancel)?.write_to(format, pieces, &cancel)?));
        if let Err(failure) = written {
            _ = sender.blocking_send(Err(failure));
        }
    });
    // An error before the first rows becomes the response. The browser reports a later one as an interrupted
    // download.
    let first = receiver.recv().await.transpose()?;
    let pieces = stream::unfold((first, receiver, on_drop), |(first, mut receiver, on_drop)| async move {
        let piece = match first {
            Some(first) => Ok(first),
            None => receiver.recv().await?.map_err(|failure| io::Error::other(failure.message)),
        };
        Some((piece, (None, receiver, on_drop)))
    });
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, "attachment")];
    Ok((headers, axum::body::Body::from_stream(pieces)).into_response())
}

/// A writer that sends its data to the client. It waits while the client is slow, and fails after the client
/// has left.
struct Pieces(mpsc::Sender<Result<Bytes, Failure>>);

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(data))).map_err(gone).map(|()| data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
