//! Progress reporting.

use indicatif::{HumanCount, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;

/// A receiver of progress reports. Its methods are called from several threads at once.
///
/// `()` ignores reports. [`ProgressBar`] draws on standard error.
pub trait Progress: Sync {
    /// Reports that the work has begun and is expected to take `total` units.
    fn begin(&self, what: &'static str, unit: Unit, total: u64);
    /// Reports that the expected total grew by `by` units.
    fn expect(&self, by: u64) {
        let _ = by;
    }
    /// Reports that `by` more units are done.
    fn advance(&self, by: u64);
    /// Reports that the work has ended, with or without success.
    fn end(&self);
    /// Reports a problem in the input that does not affect the result. `text` names the file. If work is repeated, its
    /// warnings may be repeated too.
    fn warn(&self, text: &str) {
        let _ = text;
    }
}

/// The unit of a [`Progress`] report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of input.
    Bytes,
    /// Rows of a table.
    Rows,
    /// Games.
    Runs,
}

impl Unit {
    /// Returns the unit's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Rows => "rows",
            Unit::Runs => "runs",
        }
    }
}

impl Progress for () {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}

/// A progress bar on standard error that shows the rate and the time left.
#[derive(Debug)]
pub struct ProgressBar(indicatif::ProgressBar);

impl ProgressBar {
    /// Returns a bar that is drawn only if standard error is a terminal.
    #[must_use]
    pub fn for_terminal() -> Self {
        Self(indicatif::ProgressBar::hidden()).with_target(ProgressDrawTarget::stderr())
    }

    /// Returns a bar that is never drawn.
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
            Unit::Rows => "{msg} [{bar:30}] {human_pos}/{human_len} rows {rate}/s, {eta} left",
            Unit::Runs => "{msg} [{bar:30}] {human_pos}/{human_len} runs {rate}/s, {eta} left",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            // `per_sec` of the crate has four decimals.
            let rate = |state: &ProgressState, out: &mut dyn Write| {
                let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
            };
            self.0.set_style(style.with_key("rate", rate).progress_chars("█▉▊▋▌▍▎▏ "));
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
