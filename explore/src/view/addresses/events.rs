//! Events for open pages: new versions of the archive.

use crate::view::explorer::Explorer;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

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
    let receiver = explorer.archive.subscribe();
    let first = text(&explorer);
    let news = stream::unfold((Some(first), receiver, explorer), move |(first, mut receiver, explorer)| async move {
        let next = match first {
            Some(first) => first,
            None => match tokio::time::timeout(ALIVE, receiver.changed()).await {
                Ok(Ok(())) => text(&explorer),
                Ok(Err(_)) => return None,
                Err(_) => ": alive\n\n".to_owned(),
            },
        };
        Some((Ok::<_, std::convert::Infallible>(next), (None, receiver, explorer)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(news)).into_response()
}
