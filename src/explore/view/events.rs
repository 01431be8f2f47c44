//! Events for open pages: new versions of the archive, and changed notes.

use super::explorer::{Event, Explorer};
use super::notes_file::Notes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;

/// Polls for new versions and changed notes while a page is open.
pub(super) async fn watch_archive(explorer: Arc<Explorer>, follows: bool) {
    // Each poll of an object store is a request that costs money.
    let period = Duration::from_millis(if explorer.archive().folder().is_some() { 500 } else { 10_000 });
    let mut seen = Some(explorer.notes.as_ref().map(Notes::stamp));
    loop {
        tokio::time::sleep(period).await;
        if explorer.events.receiver_count() == 0 {
            continue;
        }
        let explorer = Arc::clone(&explorer);
        let look = tokio::task::spawn_blocking(move || {
            if follows {
                // The archive may be unreachable for a while. Then the requests of the page report the error.
                _ = explorer.refresh();
            }
            let stamp = explorer.notes.as_ref().map(Notes::stamp);
            if Some(stamp) != seen {
                explorer.notes_changed();
            }
            Some(stamp)
        });
        if let Ok(stamp) = look.await {
            seen = stamp;
        }
    }
}

/// Sends events, in the format of server-sent events, until the page closes.
pub(super) async fn events(State(explorer): State<Arc<Explorer>>) -> Response {
    /// The interval of comments that show that the connection is alive.
    const ALIVE: Duration = Duration::from_secs(15);
    let text = |explorer: &Explorer, event: Event| match event {
        Event::Notes => "event: notes\ndata: {}\n\n".to_owned(),
        Event::Archive => {
            let archive = explorer.archive();
            let (version, num_runs, num_steps) = (archive.version(), archive.num_runs(), archive.num_steps());
            let data = json!({ "version": version, "num_runs": num_runs, "num_steps": num_steps });
            format!("event: archive\ndata: {data}\n\n")
        }
    };
    let receiver = explorer.events.subscribe();
    let first = text(&explorer, Event::Archive);
    let news = stream::unfold((Some(first), receiver, explorer), move |(first, mut receiver, explorer)| async move {
        let next = match first {
            Some(first) => first,
            None => match tokio::time::timeout(ALIVE, receiver.recv()).await {
                Ok(Ok(event)) => text(&explorer, event),
                // A slow page missed events of either kind.
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    text(&explorer, Event::Archive) + &text(&explorer, Event::Notes)
                }
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                Err(_) => ": alive\n\n".to_owned(),
            },
        };
        Some((Ok::<_, std::convert::Infallible>(next), (None, receiver, explorer)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(news)).into_response()
}
