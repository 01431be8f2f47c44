//! Progress as plain lines, for logs and pipes.

use super::Unit;
use indicatif::{DecimalBytes, HumanCount};
use std::io::{Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines, unless the environment sets it.
const PERIOD: Duration = Duration::from_secs(5);

/// The environment variable with the seconds between two lines.
const PERIOD_VARIABLE: &str = "A2STORE_PROGRESS_SECONDS";

/// Plain lines on standard error. Work that ends within the first period prints none.
#[derive(Debug)]
pub(super) struct ProgressLines {
    period: Duration,
    work: Mutex<Work>,
}

/// The work so far.
#[derive(Clone, Copy, Debug)]
struct Work {
    what: &'static str,
    unit: Unit,
    done: u64,
    total: u64,
    begun: Instant,
    /// The time of the last line, or of the start if there is none yet.
    last: Instant,
    has_lines: bool,
}

impl ProgressLines {
    /// Returns lines with the period that the environment sets.
    pub(super) fn from_env() -> ProgressLines {
        let seconds = std::env::var(PERIOD_VARIABLE).ok().and_then(|text| text.parse().ok());
        ProgressLines::new(seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(PERIOD))
    }

    fn new(period: Duration) -> ProgressLines {
        let now = Instant::now();
        let work = Work { what: "", unit: Unit::Runs, done: 0, total: 0, begun: now, last: now, has_lines: false };
        ProgressLines { period, work: Mutex::new(work) }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, what: &'static str, unit: Unit, total: u64) {
        let now = Instant::now();
        *self.lock() = Work { what, unit, done: 0, total, begun: now, last: now, has_lines: false };
    }

    pub(super) fn expect(&self, by: u64) {
        self.lock().total += by;
    }

    pub(super) fn advance(&self, by: u64) {
        let mut work = self.lock();
        work.done += by;
        if work.last.elapsed() >= self.period {
            (work.last, work.has_lines) = (Instant::now(), true);
            print(&work.line(work.begun.elapsed()));
        }
    }

    pub(super) fn end(&self) {
        let mut work = self.lock();
        if std::mem::take(&mut work.has_lines) {
            print(&format!("{}: {} in {}", work.what, work.of(work.done), seconds(work.begun.elapsed())));
        }
    }
}

impl Work {
    /// Returns the line after `elapsed`.
    fn line(&self, elapsed: Duration) -> String {
        let mut line = format!("{}: {}", self.what, self.of(self.done));
        if self.total > 0 {
            let percent = 100 * u128::from(self.done) / u128::from(self.total);
            line = format!("{line} of {} ({percent} %)", self.of(self.total));
        }
        let rate = self.done as f64 / elapsed.as_secs_f64();
        if rate.is_normal() {
            line += &format!(", {}/s", self.of(rate as u64));
            let left = self.total.saturating_sub(self.done) as f64 / rate;
            if left > 0.0 {
                line += &format!(", {} left", seconds(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)));
            }
        }
        line
    }

    /// Returns a number with its unit.
    fn of(&self, number: u64) -> String {
        match self.unit {
            Unit::Bytes => DecimalBytes(number).to_string(),
            Unit::Rows | Unit::Runs | Unit::Queries => format!("{} {}", HumanCount(number), self.unit.name()),
        }
    }
}

/// Returns a time, such as `1h02m03s`.
fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
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
        let lines = ProgressLines::new(Duration::MAX);
        lines.begin("ingest", Unit::Runs, 0);
        lines.advance(500);
        let line = |elapsed| lines.lock().line(Duration::from_secs(elapsed));
        assert_eq!(line(2), "ingest: 500 runs, 250 runs/s");
        lines.expect(20_000);
        assert_eq!(line(2), "ingest: 500 runs of 20,000 runs (2 %), 250 runs/s, 1m18s left");
        lines.advance(19_500);
        assert_eq!(line(0), "ingest: 20,000 runs of 20,000 runs (100 %)");
        lines.begin("verify", Unit::Bytes, 8_000_000_000);
        assert_eq!(line(1), "verify: 0 B of 8.00 GB (0 %)");
        lines.advance(1_000_000);
        assert_eq!(line(1), "verify: 1.00 MB of 8.00 GB (0 %), 1.00 MB/s, 2h13m19s left");
    }
}
