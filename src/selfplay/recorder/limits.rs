//! The limits of a recorder, and the errors for reached ones.

use crate::error::{Error, ErrorKind, Result};
use crate::names::text_form;
use derive_setters::Setters;
use std::time::Duration;

/// The limits of a recorder; `None` = no limit of that kind.
///
/// A recording contains whole games. Once a limit is reached, no game begins, and running games may end. Only
/// `max_disk_mb` is exact: a game that would exceed it is rejected at its end.
///
/// Set fields with the `with_*` methods: `Limits::default().with_max_games(64)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct Limits {
    /// The number of games that have begun and were not abandoned.
    pub max_games: Option<u64>,
    /// The number of kept steps, of ended and of running games.
    pub max_steps: Option<u64>,
    /// The memory for steps that are not on disk yet, in millions of bytes, at least 16. If it is used up, pushes
    /// wait for the current flush. `None` = half of the memory that is available at the start.
    pub max_ram_mb: Option<u64>,
    /// The time since the recorder was created, in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// The size of everything that the recorder writes, in millions of bytes, at least 1.
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

/// Memory in addition to the buffers of steps: file buffers, SQLite's cache, the recorder's own data.
const RAM_OVERHEAD: u64 = 6_000_000;
const MIN_RAM_MB: u64 = 16;
const MB: u64 = 1_000_000;

impl Limit {
    /// Returns `"games"`, `"steps"`, `"ram"`, `"wall"` or `"disk"`.
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

text_form!(Limit);

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

    /// Returns the memory for the buffers of steps, in bytes.
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
