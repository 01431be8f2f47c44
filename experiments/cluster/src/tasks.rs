//! The end of tasks on workers.
//!
//! `datafusion-distributed` 4.0.0 does not stop a task whose query has ended, unless it is about to send a batch: the plan
//! stays in a cache, and the plan's own threads go on (`worker/impl_coordinator_channel.rs:171`). So each task gets a
//! token. Scans fail when it is cancelled: when the client's request for the task ends, which lasts as long as the query, or
//! when the client no longer waits for the answer.

use datafusion::common::{Result, exec_datafusion_err};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;

/// The header with the name of a task.
pub const HEADER: &str = "x-trial-task";

/// The tasks that run on a worker, by the value of their header.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<Mutex<HashMap<HeaderValue, CancellationToken>>>);

/// Session extension: is cancelled when the session's query has ended.
#[derive(Clone, Debug)]
pub struct Ended(pub CancellationToken);

impl Tasks {
    /// Starts the task of a request, if it names one. The task ends with the request's body.
    pub fn start(&self, request: Request<Body>) -> (Request<Body>, Option<Ended>) {
        let Some(name) = request.headers().get(HEADER).cloned() else { return (request, None) };
        let token = CancellationToken::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), token.clone());
        let ended = Ended(token.clone());
        let on_drop = OnDrop::Request(EndOfTask { tasks: self.clone(), name, token });
        (request.map(|body| Body::new(Watched { body, on_drop })), Some(ended))
    }

    /// Returns the token of the task that these headers name.
    #[must_use]
    pub fn of(&self, headers: &HeaderMap) -> Option<Ended> {
        let name = headers.get(HEADER)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned().map(Ended)
    }
}

impl Ended {
    /// Returns the stream, which fails when the query has ended.
    #[must_use]
    pub fn guard(&self, stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, token) = (stream.schema(), self.0.clone());
        // The end of a stream would look like the end of its rows.
        let failed = stream::iter(std::iter::once_with(move || {
            token.is_cancelled().then(|| Err(exec_datafusion_err!("the query has ended")))
        }));
        let rows = stream.take_until(self.0.clone().cancelled_owned());
        Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(failed.filter_map(std::future::ready))))
    }
}

impl Ended {
    /// Returns the answer. If the client drops it before its end, the task ends. The server notices this at once, on the
    /// runtime of connections, even if all threads for queries are busy.
    #[must_use]
    pub fn watch(self, answer: Response<Body>) -> Response<Body> {
        answer.map(|body| Body::new(Watched { body, on_drop: OnDrop::Answer { token: self.0, is_complete: false } }))
    }
}

struct EndOfTask {
    tasks: Tasks,
    name: HeaderValue,
    token: CancellationToken,
}

impl Drop for EndOfTask {
    fn drop(&mut self) {
        self.token.cancel();
        self.tasks.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// A body that may end a task when it is dropped.
struct Watched {
    body: Body,
    on_drop: OnDrop,
}

enum OnDrop {
    Request(#[allow(dead_code)] EndOfTask),
    Answer { token: CancellationToken, is_complete: bool },
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let OnDrop::Answer { token, is_complete: false } = self {
            token.cancel();
        }
    }
}

impl HttpBody for Watched {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Self::Data>, Self::Error>>> {
        let next = Pin::new(&mut self.body).poll_frame(context);
        let is_last = match &next {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(frame))) => frame.is_trailers(),
            _ => false,
        };
        if let (true, OnDrop::Answer { is_complete, .. }) = (is_last, &mut self.on_drop) {
            *is_complete = true;
        }
        next
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns the header of a task.
pub fn name(key: &datafusion_distributed::TaskKey) -> Result<HeaderValue> {
    let text = format!("{}/{}/{}", key.query_id, key.stage_id, key.task_number);
    HeaderValue::from_str(&text).map_err(|error| exec_datafusion_err!("{error}"))
}
