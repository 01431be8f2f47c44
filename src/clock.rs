//! The system clock. It may show any time: before 1970, or after the last year of a calendar.

use crate::error::{Error, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use std::time::{SystemTime, UNIX_EPOCH};

/// The first second of year 1 and the last second of year 9999. Years in RFC 3339 have four digits.
const FIRST: i64 = -62_135_596_800;
const LAST: i64 = 253_402_300_799;

/// Returns the current time, clamped to the years 1 to 9999. chrono's own `Utc::now` panics before 1970.
pub(crate) fn now() -> DateTime<Utc> {
    utc(SystemTime::now())
}

/// Returns the current time in ISO 8601, with milliseconds.
pub(crate) fn text() -> String {
    now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns an error unless the clock shows a time from 1970 to 9999. Call this before code that panics at other times.
///
/// # Errors
/// [`ErrorKind::Io`](crate::ErrorKind::Io).
pub(crate) fn check() -> Result<()> {
    check_time(SystemTime::now())
}

fn check_time(time: SystemTime) -> Result<()> {
    let now = utc(time);
    if (0..LAST).contains(&now.timestamp()) {
        return Ok(());
    }
    let found = now.to_rfc3339_opts(SecondsFormat::Secs, true);
    Err(Error::other(format!("system clock: expected a time from 1970 to 9999, found {found}")))
}

fn utc(time: SystemTime) -> DateTime<Utc> {
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    let (secs, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (seconds(since.as_secs()), since.subsec_nanos()),
        // chrono expects whole seconds, rounded down, plus nanoseconds.
        Err(before) => match (seconds(before.duration().as_secs()), before.duration().subsec_nanos()) {
            (secs, 0) => (-secs, 0),
            (secs, nanos) => (-secs - 1, 1_000_000_000 - nanos),
        },
    };
    DateTime::from_timestamp(secs.clamp(FIRST, LAST), nanos).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_time_has_a_text() {
        let text = |time: SystemTime| utc(time).to_rfc3339_opts(SecondsFormat::Millis, true);
        let before = |secs, nanos| UNIX_EPOCH.checked_sub(Duration::new(secs, nanos)).expect("a time");
        let after = |secs| UNIX_EPOCH.checked_add(Duration::from_secs(secs)).expect("a time");
        for (time, expected, is_usual) in [
            (UNIX_EPOCH, "1970-01-01T00:00:00.000Z", true),
            (before(0, 1_000_000), "1969-12-31T23:59:59.999Z", false),
            (before(86_400, 0), "1969-12-31T00:00:00.000Z", false),
            (before(1 << 62, 0), "0001-01-01T00:00:00.000Z", false),
            (after(1 << 31), "2038-01-19T03:14:08.000Z", true),
            (after(1 << 62), "9999-12-31T23:59:59.000Z", false),
        ] {
            assert_eq!(text(time), expected);
            assert_eq!(check_time(time).is_ok(), is_usual, "{expected}");
        }
        let error = check_time(before(1, 0)).expect_err("a time before 1970").to_string();
        assert_eq!(error, "system clock: expected a time from 1970 to 9999, found 1969-12-31T23:59:59Z");
    }
}
