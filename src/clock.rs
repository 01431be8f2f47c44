//! The system clock.

use chrono::{DateTime, SecondsFormat, Utc};
use std::time::SystemTime;

/// Returns the current time. Unlike `Utc::now`, it accepts times before 1970.
pub(crate) fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// Returns the current time in ISO 8601, with milliseconds.
pub(crate) fn text() -> String {
    now().to_rfc3339_opts(SecondsFormat::Millis, true)
}
