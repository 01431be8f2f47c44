//! The limits of a sandbox, and the error when a query exceeds one or crashes.

use signal_hook::low_level::signal_name;
use std::time::Duration;

/// The limits of a sandboxed query.
#[derive(Clone, Debug)]
pub(in super::super) struct SandboxLimits {
    /// In bytes.
    pub(in super::super) memory: u64,
    pub(in super::super) time: Duration,
    /// Bytes of all temporary files together, and of the result.
    pub(in super::super) disk: u64,
}

/// The reason why a query was killed or crashed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SandboxError {
    #[error("query killed: time limit of {} exceeded", humantime::format_duration(*.0))]
    Time(Duration),
    #[error("query killed: memory limit of {} exceeded", size(*.0))]
    Memory(u64),
    #[error("query killed: disk limit of {} exceeded", size(*.0))]
    Disk(u64),
    #[error("the query process ended by signal {}: stack overflow", signal_label(*.0))]
    StackOverflow(i32),
    #[error("the query process ended by signal {}", signal_label(*.0))]
    Signal(i32),
}

/// Formats a number of bytes in the largest unit that divides it.
fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

/// Formats a signal as its number and name.
fn signal_label(signal: i32) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_the_largest_unit_that_divides_them() {
        let sizes = [0, 1023, 1024, 1025, 3 << 19, 2 << 30, 2 << 40].map(size);
        assert_eq!(sizes, ["0 bytes", "1023 bytes", "1 KiB", "1025 bytes", "1536 KiB", "2 GiB", "2048 GiB"]);
    }
}
