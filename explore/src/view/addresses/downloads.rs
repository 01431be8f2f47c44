//! Results as files.

use super::statement::Statement;
use crate::view::explorer::{Explorer, limits};
use crate::view::failure::Failure;
use crate::view::request::{Body, CancelOnDrop};
use a2store::query::RowFormat;
use a2store::system::cancellation::CancellationToken;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use serde::Deserialize;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// The maximum number of pieces that wait until a slow client reads them.
const PIECES: usize = 8;

/// The time limit of a download, which may take longer than other requests.
const TIME: Duration = Duration::from_secs(3600);

#[derive(Deserialize)]
pub(crate) struct Request {
    #[serde(flatten)]
    statement: Statement,
    format: String,
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
        let planned = request.statement.plan(&archive, &limits().with_time_limit(TIME), &cancel);
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
