//! The system clock.

use chrono::{DateTime, SecondsFormat, Utc};
use std::time::SystemTime;

/// Returns the current time. Unlike `Utc::now`, it accepts times before 1970.
#[must_use]
pub fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// Returns a time in ISO 8601, with milliseconds.
#[must_use]
pub fn text(time: impl Into<DateTime<Utc>>) -> String {
    time.into().to_rfc3339_opts(SecondsFormat::Millis, true)
}
