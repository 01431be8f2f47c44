//! The mapping that holds a table's rows.
//!
//! Address space is reserved for the most that may come and costs nothing until it is written; at the end the rest is
//! given back and the mapping made read-only. Pages of 2 MiB are asked for, since a random row otherwise costs a walk of
//! the page tables on top of its cache line; where the system has none, all works as well, only slower.

use crate::error::{Error, ErrorKind, Result};
use memmap2::{Mmap, MmapMut, MmapOptions};

/// Zeroed memory that is being filled.
pub(super) struct Region {
    map: MmapMut,
}

/// Memory that no longer changes.
pub(super) struct FrozenRegion {
    map: Mmap,
    len: usize,
}

impl Region {
    pub(super) fn reserve(num_bytes: u64) -> Result<Region> {
        let too_large = |_| Error::from(ErrorKind::MemoryLimit { needed: num_bytes, limit: isize::MAX as u64 });
        // A mapping cannot be empty.
        let len = usize::try_from(num_bytes).map_err(too_large)?.max(1);
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
        #[cfg(target_os = "linux")]
        {
            // Refused where the kernel has no huge pages, which is as good as it gets there.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        Ok(Region { map })
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Gives back what lies behind `len` and makes the rest read-only.
    pub(super) fn freeze(mut self, len: usize) -> Result<FrozenRegion> {
        self.truncate(len.max(1))?;
        Ok(FrozenRegion { map: self.map.make_read_only()?, len })
    }

    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)]
    fn truncate(&mut self, len: usize) -> Result<()> {
        if len < self.map.len() {
            // SAFETY: the mapping is anonymous, so no file can be shorter than it, and `&mut self` shows that nothing
            // borrows from it.
            unsafe { self.map.remap(len, memmap2::RemapOptions::new()) }?;
        }
        Ok(())
    }

    /// Elsewhere the address space stays reserved; what was not written takes no memory.
    #[cfg(not(target_os = "linux"))]
    fn truncate(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

impl FrozenRegion {
    pub(super) fn bytes(&self) -> &[u8] {
        self.map.get(..self.len).unwrap_or_default()
    }
}

/// Bytes of memory that the system could give to this process now, where it says so.
pub(super) fn available_bytes() -> Option<u64> {
    let of_container = || {
        let number = |file: &str| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        let max = number("/sys/fs/cgroup/memory.max")?;
        Some(max.saturating_sub(number("/sys/fs/cgroup/memory.current").unwrap_or(0)))
    };
    match (of_machine(), of_container()) {
        (Some(machine), Some(container)) => Some(machine.min(container)),
        (machine, container) => machine.or(container),
    }
}

fn of_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
