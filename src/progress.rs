//! How long work tells how far it is, and how it is asked to stop.

use crate::error::{ErrorKind, Result};
use indicatif::{ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};

/// Hears how far a piece of work is, and may stop it. Called from several threads at once.
///
/// `()` hears nothing and never stops anything; [`ProgressBar`] draws on standard error.
pub trait Progress: Sync {
    /// The work begins: `total` units of `unit` are expected.
    fn begin(&self, what: &'static str, unit: Unit, total: u64);
    /// So many units more are expected than were so far.
    fn expect(&self, by: u64) {
        let _ = by;
    }
    /// So many units more are done.
    fn advance(&self, by: u64);
    /// The work has ended, well or not.
    fn end(&self);
    /// Whether the work should stop. Asked often, so it must be cheap.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// What the units of [`Progress`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of input.
    Bytes,
    /// Rows of a table.
    Rows,
    /// Games.
    Runs,
}

impl Progress for () {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}

/// A bar on standard error with rate and time left.
#[derive(Debug)]
pub struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// A bar that is drawn when standard error is a terminal, and silent when it is not.
    #[must_use]
    pub fn for_terminal() -> Self {
        Self(indicatif::ProgressBar::hidden()).with_target(ProgressDrawTarget::stderr())
    }

    /// A bar that is never drawn.
    #[must_use]
    pub fn hidden() -> Self {
        Self(indicatif::ProgressBar::hidden())
    }

    fn with_target(self, target: ProgressDrawTarget) -> Self {
        self.0.set_draw_target(target);
        self
    }
}

impl Progress for ProgressBar {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        let template = match unit {
            Unit::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
            Unit::Rows => "{msg} [{bar:30}] {human_pos}/{human_len} rows {per_sec}, {eta} left",
            Unit::Runs => "{msg} [{bar:30}] {human_pos}/{human_len} runs {per_sec}, {eta} left",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        self.0.set_length(total);
        self.0.set_message(what);
    }

    fn expect(&self, by: u64) {
        self.0.inc_length(by);
    }

    fn advance(&self, by: u64) {
        self.0.inc(by);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// Progress that also stops when a flag is raised.
#[derive(Debug)]
pub struct Cancellable<'a, P: ?Sized> {
    progress: &'a P,
    cancelled: &'a AtomicBool,
}

impl<'a, P: Progress + ?Sized> Cancellable<'a, P> {
    /// Reports to `progress` and stops when `cancelled` is true.
    pub fn new(progress: &'a P, cancelled: &'a AtomicBool) -> Self {
        Self { progress, cancelled }
    }
}

impl<P: Progress + ?Sized> Progress for Cancellable<'_, P> {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        self.progress.begin(what, unit, total);
    }
    fn expect(&self, by: u64) {
        self.progress.expect(by);
    }
    fn advance(&self, by: u64) {
        self.progress.advance(by);
    }
    fn end(&self) {
        self.progress.end();
    }
    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.progress.is_cancelled()
    }
}

/// [`ErrorKind::Cancelled`] when the work should stop.
pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
    if progress.is_cancelled() { Err(ErrorKind::Cancelled.into()) } else { Ok(()) }
}
