//! Reports that are computed in the background and cached.

use super::lock::lock;
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::progress::{Progress, Unit};
use crate::random;
use crate::report::ReportOptions;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The maximum number of cached reports.
const MAX_REPORTS: usize = 4;

/// The reports, newest last.
#[derive(Default)]
pub(super) struct Reports(Vec<Entry>);

impl Drop for Reports {
    fn drop(&mut self) {
        for entry in &self.0 {
            entry.work.cancel.cancel();
        }
    }
}

struct Entry {
    version: u64,
    options: ReportOptions,
    key: String,
    work: Arc<Work>,
}

/// The computation of a report.
struct Work {
    done: AtomicU64,
    total: AtomicU64,
    cancel: CancellationToken,
    outcome: Mutex<Option<Outcome>>,
}

#[derive(Clone)]
enum Outcome {
    Ready { html: Arc<str>, seconds: f64 },
    Failed(String),
}

impl Progress for Work {
    fn begin(&self, _: &'static str, _: Unit, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn advance(&self, by: u64) {
        self.done.fetch_add(by, Ordering::Relaxed);
    }

    fn end(&self) {}
}

impl Reports {
    /// Returns the state of a report of an archive. Starts the report if it does not exist yet, or if `restart`
    /// is set.
    pub(super) fn ask(&mut self, archive: Archive, options: ReportOptions, restart: bool) -> Value {
        let is_asked = |entry: &Entry| {
            let Entry { options: ReportOptions { condition, groups, compare, .. }, version, .. } = entry;
            (*version, condition, groups, compare)
                == (archive.version(), &options.condition, &options.groups, &options.compare)
        };
        let found = self.0.iter().position(is_asked);
        if let Some(at) = found.filter(|_| restart) {
            self.0.remove(at).work.cancel.cancel();
        } else if let Some(at) = found {
            return self.0[at].state();
        }
        while self.0.len() >= MAX_REPORTS {
            self.0.remove(0).work.cancel.cancel();
        }
        let work = Arc::new(Work {
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            cancel: CancellationToken::new(),
            outcome: Mutex::new(None),
        });
        let (version, options_of, worker) = (archive.version(), options.clone(), Arc::clone(&work));
        let entry = Entry { version, options: options_of, key: random::id(), work };
        let state = entry.state();
        self.0.push(entry);
        tokio::task::spawn_blocking(move || compute(&archive, &options, &worker));
        state
    }

    /// Returns the page of a report, if it is complete.
    pub(super) fn page(&self, key: &str) -> Option<Arc<str>> {
        let entry = self.0.iter().find(|entry| entry.key == key)?;
        match &*lock(&entry.work.outcome) {
            Some(Outcome::Ready { html, .. }) => Some(Arc::clone(html)),
            _ => None,
        }
    }
}

fn compute(archive: &Archive, options: &ReportOptions, work: &Work) {
    let started = Instant::now();
    let html = archive.report(options, work, &work.cancel).and_then(|report| report.to_html());
    *lock(&work.outcome) = Some(match html {
        Ok(html) => Outcome::Ready { html: html.into(), seconds: started.elapsed().as_secs_f64() },
        Err(error) => Outcome::Failed(error.to_string()),
    });
}

impl Entry {
    fn state(&self) -> Value {
        match &*lock(&self.work.outcome) {
            None => {
                let (done, total) = (self.work.done.load(Ordering::Relaxed), self.work.total.load(Ordering::Relaxed));
                json!({ "state": "running", "done": done, "total": total })
            }
            Some(Outcome::Ready { seconds, .. }) => {
                let url = format!("/report/{}", self.key);
                json!({ "state": "ready", "version": self.version, "url": url, "seconds": seconds })
            }
            Some(Outcome::Failed(error)) => json!({ "state": "failed", "error": error }),
        }
    }
}
