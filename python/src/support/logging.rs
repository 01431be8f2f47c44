//! Log records: the library's events, sent to the loggers below `a2store` of Python's `logging`.
//!
//! Events come from any thread, and these threads must not wait for the interpreter. So the subscriber only
//! adds events to a queue. [`deliver`] empties the queue on a Python thread: while a call waits for its work,
//! and before it returns.

use super::interpreter::{Inside, detached};
use a2store::system::clock;
use a2store::system::process::{PerProcess, lock};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyModule;
use serde_json::{Value, json};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, Once};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default};
use tracing::{Event, Level, Metadata, Subscriber};

/// The prefixes of event targets, and the loggers that receive these events.
const LOGGERS: [(&str, &str); 8] = [
    ("a2store::commit", "a2store.commit"),
    ("a2store::ingest", "a2store.ingest"),
    ("a2store::maintenance", "a2store.maintenance"),
    ("a2store::query", "a2store.query"),
    ("a2store::recorder", "a2store.recorder"),
    ("a2store::table", "a2store.table"),
    ("a2store::retry", "a2store.retry"),
    // Requests that the crate `object_store` retries.
    ("object_store", "a2store.object_store"),
];

/// The maximum number of events in the queue. Further events are dropped and counted.
const CAPACITY: usize = 4_096;

/// The lowest level, as a number of `logging`, of the records that each logger handles.
static LEVELS: [AtomicU8; LOGGERS.len()] = [const { AtomicU8::new(u8::MAX) }; LOGGERS.len()];

/// Whether the queue may have events.
static HAS_EVENTS: AtomicBool = AtomicBool::new(false);

static QUEUE: PerProcess<Mutex<Queue>> = PerProcess::new();

#[derive(Default)]
struct Queue {
    /// Each event is an array: its logger, level, seconds since 1970, text and fields.
    events: Vec<Value>,
    dropped: u64,
}

/// Returns the queue, or `None` if it cannot be created.
fn queue() -> Option<MutexGuard<'static, Queue>> {
    let queue = QUEUE.get_or_make(|| Ok(Mutex::default())).ok()?;
    Some(lock(queue))
}

/// Starts receiving events of the levels that the loggers handle now.
pub(crate) fn listen(py: Python<'_>) {
    static ONCE: Once = Once::new();
    // If the process already has a subscriber, that subscriber receives the events.
    ONCE.call_once(|| drop(set_global_default(ToPython)));
    // A signal handler may have raised `KeyboardInterrupt`. Other errors are ignored: while the interpreter
    // shuts down, modules may be missing, and the levels stay as they are.
    if let Err(error) = read_levels(py) {
        interrupts(py, &error);
    }
}

/// Makes the interpreter raise a `KeyboardInterrupt` again later. Returns false for other exceptions.
fn interrupts(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py)
        && py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main")).is_ok()
}

fn read_levels(py: Python<'_>) -> PyResult<()> {
    let _inside = Inside::new(py);
    let names = LOGGERS.map(|(_, name)| name);
    let levels: [u8; LOGGERS.len()] = module(py)?.call_method1("levels", (names,))?.extract()?;
    for (level, known) in levels.into_iter().zip(&LEVELS) {
        known.store(level, Ordering::Relaxed);
    }
    Ok(())
}

/// Releases the interpreter, runs `work`, and sends its events to `logging`.
pub(crate) fn logged<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    listen(py);
    let done = detached(py, work);
    deliver_all(py);
    done
}

/// Sends the events of the queue to `logging`, and reports an exception of a handler as unraisable.
pub(crate) fn deliver_all(py: Python<'_>) {
    let Err(error) = deliver(py) else { return };
    // The work has ended, so the interpreter raises a `KeyboardInterrupt` after the call.
    if !interrupts(py, &error) {
        error.write_unraisable(py, None);
    }
}

/// Sends the events of the queue to `logging`.
///
/// # Errors
/// The exception of a handler.
pub(crate) fn deliver(py: Python<'_>) -> PyResult<()> {
    if !HAS_EVENTS.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (events, dropped) = {
        let Some(mut queue) = queue() else { return Ok(()) };
        HAS_EVENTS.store(false, Ordering::Relaxed);
        (std::mem::take(&mut queue.events), std::mem::take(&mut queue.dropped))
    };
    let _inside = Inside::new(py);
    module(py)?.call_method1("handle", (Value::Array(events).to_string(), dropped)).map(drop)
}

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("a2store._logging")
}

/// The process's subscriber.
struct ToPython;

impl ToPython {
    /// Returns the index of the logger of a target.
    fn logger_of(target: &str) -> Option<usize> {
        if !target.starts_with("a2store") && !target.starts_with("object_store") {
            return None;
        }
        LOGGERS.iter().position(|(prefix, _)| target.starts_with(prefix))
    }

    /// Returns the number of a level in `logging`.
    fn number(level: Level) -> u8 {
        match level {
            Level::ERROR => 40,
            Level::WARN => 30,
            Level::INFO => 20,
            Level::DEBUG => 10,
            Level::TRACE => 5,
        }
    }
}

impl Subscriber for ToPython {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match metadata.is_event() && ToPython::logger_of(metadata.target()).is_some() {
            true => Interest::sometimes(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let logger = ToPython::logger_of(metadata.target()).filter(|_| metadata.is_event());
        logger.is_some_and(|logger| ToPython::number(*metadata.level()) >= LEVELS[logger].load(Ordering::Relaxed))
    }

    fn event(&self, event: &Event<'_>) {
        let Some(logger) = ToPython::logger_of(event.metadata().target()) else { return };
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = ToPython::number(*event.metadata().level());
        let time = clock::now().timestamp_micros() as f64 / 1e6;
        let queued = json!([LOGGERS[logger].1, level, time, fields.text, fields.named]);
        let Some(mut queue) = queue() else { return };
        match queue.events.len() < CAPACITY {
            true => queue.events.push(queued),
            false => queue.dropped += 1,
        }
        HAS_EVENTS.store(true, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The message and the fields of an event.
#[derive(Default)]
struct Fields {
    text: String,
    named: Vec<(&'static str, Value)>,
}

/// Implements methods of [`Visit`] for values that JSON can hold.
macro_rules! record_values {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(&mut self, field: &Field, value: $type) {
            self.named.push((field.name(), value.into()));
        })*
    };
}

impl Visit for Fields {
    record_values! { record_bool: bool, record_i64: i64, record_u64: u64, record_str: &str }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no numbers that are not finite.
        let value = if value.is_finite() { value.into() } else { value.to_string().into() };
        self.named.push((field.name(), value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // If `Debug` fails, the text so far is kept.
        let _ = write!(text, "{value:?}");
        match field.name() {
            "message" => self.text = text,
            name => self.named.push((name, text.into())),
        }
    }
}
