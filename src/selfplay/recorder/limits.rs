//! What a recorder may take, and how it says that it takes no more.

use crate::error::{Error, ErrorKind, Result};
use std::fmt;
use std::time::Duration;

/// What a recorder may take; `None` = no limit of that kind.
///
/// A session holds whole games: once a limit is reached no game begins, and those under way go on to their end. Only
/// `max_disk_mb` is kept to the byte: a game that would exceed it is refused when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Games that have begun and were not abandoned.
    pub max_games: Option<u64>,
    /// Steps that were kept, of games that ended or are under way.
    pub max_steps: Option<u64>,
    /// Memory for steps that are not on disk yet, in millions of bytes, at least 16. Where it is used up, pushes wait
    /// for the rotation that is under way. `None` = half of what the machine has to give at the start.
    pub max_ram_mb: Option<u64>,
    /// Time since the recorder was made, in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// Size of all that the recorder writes, in millions of bytes, at least 1.
    pub max_disk_mb: Option<u64>,
}

/// A limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// `max_games`.
    Games,
    /// `max_steps`.
    Steps,
    /// `max_ram_mb`.
    Ram,
    /// `max_wall_ms`.
    Wall,
    /// `max_disk_mb`.
    Disk,
}

/// What steps may take besides their buffers: the file's own, SQLite's cache, the recorder's.
const RAM_OVERHEAD: u64 = 6_000_000;
const MIN_RAM_MB: u64 = 16;
const MB: u64 = 1_000_000;

impl Limit {
    /// `"games"`, `"steps"`, `"ram"`, `"wall"` or `"disk"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Games => "games",
            Limit::Steps => "steps",
            Limit::Ram => "ram",
            Limit::Wall => "wall",
            Limit::Disk => "disk",
        }
    }

    #[cold]
    pub(super) fn error(self, limits: &Limits, found: String) -> Error {
        let allowed = match self {
            Limit::Games => format!("{}", limits.max_games.unwrap_or(u64::MAX)),
            Limit::Steps => format!("{}", limits.max_steps.unwrap_or(u64::MAX)),
            Limit::Ram => match limits.max_ram_mb {
                Some(mb) => format!("{mb} MB"),
                None => "half of the machine's memory".into(),
            },
            Limit::Wall => format!("{} ms", limits.max_wall_ms.unwrap_or(u64::MAX)),
            Limit::Disk => format!("{} MB", limits.max_disk_mb.unwrap_or(u64::MAX)),
        };
        ErrorKind::RecorderLimit { limit: self.name(), allowed, found }.into()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<()> {
        if let Some(mb) = self.max_ram_mb.filter(|&mb| mb < MIN_RAM_MB) {
            return Err(Error::argument("max_ram_mb", format!("at least {MIN_RAM_MB}"), mb));
        }
        match self.max_disk_mb {
            Some(0) => Err(Error::argument("max_disk_mb", "at least 1", 0)),
            _ => Ok(()),
        }
    }

    /// Bytes for the buffers of steps.
    pub(super) fn ram_budget(&self) -> u64 {
        let mb = |mb: u64| mb.saturating_mul(MB) - RAM_OVERHEAD;
        let half = || crate::machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        self.max_ram_mb.map_or_else(half, mb)
    }

    pub(super) fn disk_budget(&self) -> u64 {
        self.max_disk_mb.map_or(u64::MAX, |mb| mb.saturating_mul(MB))
    }

    pub(super) fn wall(&self) -> Option<Duration> {
        self.max_wall_ms.map(Duration::from_millis)
    }
}
