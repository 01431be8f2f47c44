//! The time as text.

use chrono::{DateTime, SecondsFormat, Utc};
use std::time::SystemTime;

/// Returns the current time in ISO 8601, with milliseconds.
pub(crate) fn text() -> String {
    // Unlike `Utc::now`, the conversion accepts times before 1970.
    DateTime::<Utc>::from(SystemTime::now()).to_rfc3339_opts(SecondsFormat::Millis, true)
}
