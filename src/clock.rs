//! The time as text.

use chrono::{SecondsFormat, Utc};

/// Returns the current time in ISO 8601, with milliseconds.
pub(crate) fn text() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}
