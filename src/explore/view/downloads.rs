//! Results as files. One request describes a file. A second request, a navigation of the browser, downloads it.

use super::cache::{MAX_WAITING, WaitingFile, lock};
use super::explorer::Explorer;
use super::failure::Failure;
use super::request::{Body, CancelOnDrop, Parts, blocking};
use super::statement::Statement;
use crate::cancellation::CancellationToken;
use crate::query::{QueryOptions, RowFormat, WriteRowsOptions};
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The maximum number of pieces that wait until a slow client reads them.
const PIECES: usize = 8;

/// The time limit of a download.
const TIME: Duration = Duration::from_secs(3600);

#[derive(Deserialize)]
pub(super) struct Request {
    #[serde(flatten)]
    statement: Statement,
    format: String,
}

fn parse_format(name: &str) -> Result<(RowFormat, &'static str, &'static str), Failure> {
    Ok(match name {
        "parquet" => (RowFormat::Parquet, "parquet", "application/vnd.apache.parquet"),
        "csv" => (RowFormat::Csv, "csv", "text/csv; charset=utf-8"),
        "arrow" => (RowFormat::ArrowFile, "arrow", "application/vnd.apache.arrow.file"),
        "jsonl" => (RowFormat::Json, "jsonl", "application/jsonl; charset=utf-8"),
        other => {
            let message = format!("format: expected parquet, csv, arrow or jsonl, found {other:?}");
            return Err(Failure::bad_request(message));
        }
    })
}

/// Returns the limits of a download. It may take longer than other requests, because the user sees its
/// progress.
fn limits(explorer: &Explorer, statement: &Statement) -> crate::error::Result<QueryOptions> {
    Ok(explorer.options_of(statement.text())?.with_time_limit(TIME))
}

/// Checks a statement, and returns the address of its file. The address works once.
pub(super) async fn prepare(
    State(explorer): State<Arc<Explorer>>,
    Body(request): Body<Request>,
) -> Result<Json<Value>, Failure> {
    let (format, extension, _) = parse_format(&request.format)?;
    blocking(move |cancel| {
        let archive = explorer.archive();
        request.statement.plan(&archive, &limits(&explorer, &request.statement)?, cancel)?;
        let name = request.statement.file_name().to_owned();
        let id = lock(&explorer.files).add(archive, request.statement, format);
        let too_many =
            || Failure::bad_request(format!("download: {MAX_WAITING} files wait already: try again in a minute"));
        let url = format!("/download/{}/{name}.{extension}", id.ok_or_else(too_many)?);
        Ok(Json(json!({ "url": url })))
    })
    .await
}

/// Sends a file as it is written.
pub(super) async fn download(
    State(explorer): State<Arc<Explorer>>,
    Parts((id, name)): Parts<(String, String)>,
) -> Result<Response, Failure> {
    let kind = name.rsplit_once('.').map(|(_, extension)| parse_format(extension)).transpose()?;
    // The permit comes first: if the wait for it times out, the address stays valid.
    let permit = explorer.permit_of(&explorer.downloads, "downloads").await?;
    let file = lock(&explorer.files).take(&id);
    let WaitingFile { archive, statement, format, .. } =
        file.ok_or_else(|| Failure::not_found("no such file: each address works once, and for one minute"))?;
    let (sender, mut receiver) = mpsc::channel(PIECES);
    let options = limits(&explorer, &statement)?;
    let cancel = CancellationToken::new();
    let on_drop = CancelOnDrop(cancel.clone());
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let pieces = Pieces(sender.clone());
        let written = statement.plan(&archive, &options, &cancel).and_then(|(query, _)| {
            Ok(query.stream_unless_cancelled(&cancel)?.write_to(&WriteRowsOptions::from(format), pieces, &cancel)?)
        });
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
    let headers = [
        (header::CONTENT_TYPE, kind.map_or("application/octet-stream", |(.., kind)| kind).to_owned()),
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
    ];
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
