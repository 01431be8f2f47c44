//! Progress reporting. `bar.rs` is the receiver that writes to standard error.

mod bar;

pub use bar::ProgressBar;

/// A receiver of progress reports. Several threads call its methods at once.
///
/// `()` ignores reports. [`ProgressBar`] writes to standard error.
pub trait Progress: Sync {
    /// Reports that the work has begun and is expected to take `total` units.
    fn begin(&self, what: &'static str, unit: Unit, total: u64);
    /// Reports that the expected total grew by this many units.
    fn expect(&self, _by: u64) {}
    /// Reports that `by` more units are done.
    fn advance(&self, by: u64);
    /// Reports that the work has ended, with or without success.
    fn end(&self);
    /// Reports a problem in the input that does not affect the result. The text names the file. If work is repeated,
    /// its warnings may be repeated too.
    fn warn(&self, _text: &str) {}
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
    /// Queries.
    Queries,
}

impl Unit {
    /// Returns the unit's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Rows => "rows",
            Unit::Runs => "runs",
            Unit::Queries => "queries",
        }
    }
}

/// Work whose end is reported when this value is dropped.
#[must_use]
pub(crate) struct ReportedWork<'a>(&'a dyn Progress);

impl<'a> ReportedWork<'a> {
    /// Reports that the work has begun ([`Progress::begin`]).
    pub(crate) fn begin(progress: &'a dyn Progress, what: &'static str, unit: Unit, total: u64) -> ReportedWork<'a> {
        progress.begin(what, unit, total);
        ReportedWork(progress)
    }
}

impl Drop for ReportedWork<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Progress for () {
    fn begin(&self, _: &'static str, _: Unit, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
}
