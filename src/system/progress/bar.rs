//! Progress on standard error: a bar in a terminal, or plain lines in a log.

use super::{Progress, Unit};
use crate::system::process::lock;
use indicatif::{DecimalBytes, FormattedDuration, HumanCount, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::{IsTerminal, Write as _, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time between two lines, unless the environment sets it.
const PERIOD: Duration = Duration::from_secs(5);

/// Progress on standard error: a bar in a terminal, otherwise a plain line every few seconds. Both show the
/// rate and the time left, and print warnings.
///
/// The environment variable `A2STORE_PROGRESS_SECONDS` sets the time between two lines: a number of seconds, 5 by
/// default. Work that ends within the first period prints no line.
#[derive(Debug)]
pub struct ProgressBar {
    /// Counts the work, and draws it in a terminal.
    bar: indicatif::ProgressBar,
    /// The time between two lines; `None` = no lines.
    period: Option<Duration>,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    unit: Unit,
    /// The time of the last line; before the first line, the time of the start.
    last: Instant,
    has_lines: bool,
}

impl ProgressBar {
    /// Returns a bar if standard error is a terminal, otherwise lines.
    #[must_use]
    pub fn for_stderr() -> Self {
        if stderr().is_terminal() {
            return ProgressBar::new(ProgressDrawTarget::stderr(), None);
        }
        let seconds = std::env::var("A2STORE_PROGRESS_SECONDS").ok().and_then(|text| text.parse().ok());
        let period = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PERIOD);
        ProgressBar::new(ProgressDrawTarget::hidden(), Some(period))
    }

    /// Returns a receiver that shows nothing.
    #[must_use]
    pub fn hidden() -> Self {
        ProgressBar::new(ProgressDrawTarget::hidden(), None)
    }

    fn new(target: ProgressDrawTarget, period: Option<Duration>) -> Self {
        let lines = Mutex::new(Lines { unit: Unit::Runs, last: Instant::now(), has_lines: false });
        ProgressBar { bar: indicatif::ProgressBar::with_draw_target(None, target), period, lines }
    }

    /// Returns the name and the unit of the work, and the done and the expected amount. The name is empty before the
    /// work begins.
    pub fn counts(&self) -> (String, Unit, u64, u64) {
        (self.bar.message(), lock(&self.lines).unit, self.bar.position(), self.bar.length().unwrap_or(0))
    }
}

impl Progress for ProgressBar {
    fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        *lock(&self.lines) = Lines { unit, last: Instant::now(), has_lines: false };
        let template = match unit {
            Unit::Bytes => "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}, {eta} left",
            Unit::Rows => "{msg} [{bar:30}] {human_pos}/{human_len} rows {rate}/s, {eta} left",
            Unit::Runs => "{msg} [{bar:30}] {human_pos}/{human_len} runs {rate}/s, {eta} left",
            Unit::Queries => "{msg} [{bar:30}] {human_pos}/{human_len} queries, {eta} left",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            // The crate prints `per_sec` with four decimals.
            let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
            };
            self.bar.set_style(style.with_key("rate", rate).progress_chars("█▉▊▋▌▍▎▏ "));
        }
        self.bar.reset();
        self.bar.set_length(total);
        self.bar.set_message(what);
    }

    fn expect(&self, by: u64) {
        self.bar.inc_length(by);
    }

    fn advance(&self, by: u64) {
        self.bar.inc(by);
        let Some(period) = self.period else { return };
        let mut lines = lock(&self.lines);
        if lines.last.elapsed() >= period {
            (lines.last, lines.has_lines) = (Instant::now(), true);
            let (done, total) = (self.bar.position(), self.bar.length().unwrap_or(0));
            print(&line(&self.bar.message(), lines.unit, done, total, self.bar.elapsed()));
        }
    }

    fn end(&self) {
        let mut lines = lock(&self.lines);
        if std::mem::take(&mut lines.has_lines) {
            let (what, done) = (self.bar.message(), amount(self.bar.position(), lines.unit));
            print(&format!("{what}: {done} in {}", FormattedDuration(self.bar.elapsed())));
        }
        if !self.bar.is_hidden() {
            self.bar.finish_and_clear();
        }
    }

    fn warn(&self, text: &str) {
        if self.period.is_some() || !self.bar.is_hidden() {
            self.bar.suspend(|| print(&format!("a2store: warning: {text}")));
        }
    }
}

/// Returns the line after `elapsed`.
fn line(what: &str, unit: Unit, done: u64, total: u64, elapsed: Duration) -> String {
    let mut line = format!("{what}: {}", amount(done, unit));
    if total > 0 {
        let percent = 100 * u128::from(done) / u128::from(total);
        line = format!("{line} of {} ({percent} %)", amount(total, unit));
    }
    let rate = done as f64 / elapsed.as_secs_f64();
    if rate.is_normal() {
        line += &format!(", {}/s", amount(rate as u64, unit));
        let left = total.saturating_sub(done) as f64 / rate;
        if left > 0.0 {
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
            line += &format!(", {} left", FormattedDuration(left));
        }
    }
    line
}

/// Returns a number with its unit.
fn amount(number: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => DecimalBytes(number).to_string(),
        Unit::Rows | Unit::Runs | Unit::Queries => format!("{} {}", HumanCount(number), unit.name()),
    }
}

/// Prints a line. Ignores a failure, because the work does not need the line.
fn print(line: &str) {
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_share_the_rate_and_the_time_left() {
        let runs = |done, total, secs| line("ingest", Unit::Runs, done, total, Duration::from_secs(secs));
        assert_eq!(runs(500, 0, 2), "ingest: 500 runs, 250 runs/s");
        assert_eq!(runs(500, 20_000, 2), "ingest: 500 runs of 20,000 runs (2 %), 250 runs/s, 00:01:18 left");
        assert_eq!(runs(20_000, 20_000, 0), "ingest: 20,000 runs of 20,000 runs (100 %)");
        let bytes = |done, total| line("verify", Unit::Bytes, done, total, Duration::from_secs(1));
        assert_eq!(bytes(0, 8_000_000_000), "verify: 0 B of 8.00 GB (0 %)");
        let expected = "verify: 1.00 MB of 8.00 GB (0 %), 1.00 MB/s, 02:13:19 left";
        assert_eq!(bytes(1_000_000, 8_000_000_000), expected);
    }

    #[test]
    fn a_hidden_bar_counts_each_work_from_0() {
        let bar = ProgressBar::hidden();
        for _ in 0..2 {
            bar.begin("verify", Unit::Bytes, 0);
            bar.expect(3);
            bar.advance(2);
            assert_eq!((bar.bar.position(), bar.bar.length()), (2, Some(3)));
            bar.end();
        }
    }
}
