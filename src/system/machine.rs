//! The memory of this machine, and allocation that returns errors.

use crate::error::{ErrorKind, Result};

/// Returns the number of bytes that this process could allocate now; `None` if the system does not report it.
pub(crate) fn available_bytes() -> Option<u64> {
    let of_container = number(CONTAINER_MAX).map(|max| max.saturating_sub(number(CONTAINER_CURRENT).unwrap_or(0)));
    of_machine("MemAvailable:").into_iter().chain(of_container).min()
}

/// Returns the total memory of the machine, or of the container if that is smaller; `None` if it is unknown.
pub(crate) fn total_bytes() -> Option<u64> {
    of_machine("MemTotal:").into_iter().chain(number(CONTAINER_MAX)).min()
}

/// Reserves memory for `additional` more elements.
///
/// # Errors
/// [`ErrorKind::OutOfMemory`]. A plain `Vec::reserve` would abort the process.
pub fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<()> {
    vec.try_reserve(additional).map_err(|_| {
        let needed = vec.len().saturating_add(additional).saturating_mul(size_of::<T>());
        ErrorKind::OutOfMemory { needed: needed as u64 }.into()
    })
}

/// Returns a vector of `len` copies of a value.
///
/// # Errors
/// The errors of [`reserve`].
pub fn filled<T: Copy>(len: usize, value: T) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, len)?;
    vec.resize(len, value);
    Ok(vec)
}

const CONTAINER_MAX: &str = "/sys/fs/cgroup/memory.max";
const CONTAINER_CURRENT: &str = "/sys/fs/cgroup/memory.current";

fn number(file: &str) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn of_machine(line: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|found| found.strip_prefix(line))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
