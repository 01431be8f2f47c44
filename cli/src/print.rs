//! Numbers and reports on standard output.

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};

/// Prints a report as one line of JSON with sorted keys. `extra` adds fields or replaces them.
pub(crate) fn print_json<'a>(report: &impl Serialize, extra: impl IntoIterator<Item = (&'a str, Value)>) -> Result<()> {
    let mut json = serde_json::to_value(report)?;
    for (name, value) in extra {
        json[name] = value;
    }
    writeln!(io::stdout().lock(), "{json}")?;
    Ok(())
}

/// Prints a report as JSON or as a line of text, and returns the exit status 0.
pub(crate) fn print_report<'a>(
    is_json: bool,
    report: &impl Serialize,
    extra: impl IntoIterator<Item = (&'a str, Value)>,
    text: &str,
) -> Result<u8> {
    if is_json {
        print_json(report, extra)?;
    } else {
        writeln!(io::stdout().lock(), "{text}")?;
    }
    Ok(0)
}

/// Formats a number with thousands separators.
pub(crate) fn count(number: u64) -> String {
    indicatif::HumanCount(number).to_string()
}

/// Formats a number of bytes with a decimal unit.
pub(crate) fn megabytes(bytes: u64) -> String {
    indicatif::DecimalBytes(bytes).to_string()
}

/// Formats `number` per second, rounded to the precision of such a measurement.
pub(crate) fn rate(number: u64, secs: f64) -> String {
    match number as f64 / secs.max(1e-9) {
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.0}k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}
