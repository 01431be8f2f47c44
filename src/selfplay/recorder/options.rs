//! The options and the counters of a recorder.

use crate::error::{Error, Result};
use derive_setters::Setters;
use serde_json::Value;
use std::time::Duration;

/// Options of a [`Recorder`](super::Recorder), and the metadata of its sessions.
///
/// A recorder writes whole games. Once `max_games`, `max_steps` or `max_wall_ms` is reached, no game begins, and
/// running games may end. Only `max_disk_mb` is exact: a game that would exceed it is rejected at its end.
///
/// Set fields with the `with_*` methods: `RecorderOptions::new("v7").with_max_games(64)`.
#[derive(Clone, Debug, PartialEq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct RecorderOptions {
    /// The model's name, which is part of the name of each session: letters, digits and `._+-`, without a leading dot.
    #[setters(into)]
    pub tag: String,
    /// The name of the engine.
    #[setters(into)]
    pub engine: Option<String>,
    /// A hash of the model.
    #[setters(into)]
    pub model_hash: Option<String>,
    /// More metadata of the sessions, by key.
    pub entries: Vec<(String, Value)>,
    /// The maximum number of games that have begun and were not abandoned; `None` = no limit.
    pub max_games: Option<u64>,
    /// The maximum number of kept steps of ended games; `None` = no limit.
    pub max_steps: Option<u64>,
    /// The maximum time since the recorder was created, in milliseconds; `None` = no limit.
    pub max_wall_ms: Option<u64>,
    /// The maximum size of everything that the recorder writes, in millions of bytes, at least 1; `None` = no limit.
    pub max_disk_mb: Option<u64>,
    /// The memory for steps that are not yet written, in millions of bytes, at least 16. If it is used up, pushes wait
    /// for a rotation. `None` = half of the memory that is available at the start.
    pub max_ram_mb: Option<u64>,
    /// Keeps one step out of this many, beginning with the first.
    pub sample_rate: u32,
    /// Rotates once ended games have this many kept steps.
    pub rotate_steps: u64,
    /// Rotates once a game has waited this long. It bounds how much a crash can lose. `None` = no bound.
    pub rotate_every: Option<Duration>,
    /// Whether a session stores moves. If so, every step needs its move. Without moves, an existing Rust reader of
    /// sessions can read it, but every reader has to derive the moves from the boards. Some stay unknown.
    #[setters(rename = "with_action")]
    pub with_action: bool,
}

/// The counters of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderStats {
    /// The number of games that have begun.
    pub begun: u64,
    /// The number of running games. When a recorder is closed, these games are lost.
    pub live: u64,
    /// The number of games that ended and are kept.
    pub ended: u64,
    /// The number of games that were abandoned, or rejected at their end.
    pub abandoned: u64,
    /// The number of kept steps of ended games.
    pub steps: u64,
    /// The number of durable games: all games whose id is below it.
    pub durable: u64,
    /// The number of rotations that wrote games.
    pub rotations: u64,
    /// The size of everything written, in bytes.
    pub disk_bytes: u64,
    /// The memory of all steps that are not yet written, in bytes.
    pub ram_bytes: u64,
    /// The error of the last rotation, if it failed. The games stay in memory, and the next rotation writes them.
    pub failure: Option<String>,
}

/// The metadata keys that the recorder sets itself.
const OWN_KEYS: [&str; 6] = ["model", "engine", "sample_rate", "writer", "started", "ended"];
/// Most file systems limit a name to 255 bytes, which includes the time before the tag.
const MAX_TAG_LEN: usize = 200;
/// A reader's limit for all metadata of a session, less the recorder's own entries.
const MAX_ENTRIES_LEN: usize = 1 << 17;
/// Memory in addition to the buffers of steps: file buffers, SQLite's cache, the recorder's own data.
const RAM_OVERHEAD: u64 = 6_000_000;
const MIN_RAM_MB: u64 = 16;
const MB: u64 = 1_000_000;

impl RecorderOptions {
    /// Returns the default options with this tag.
    #[must_use]
    pub fn new(tag: impl Into<String>) -> RecorderOptions {
        RecorderOptions {
            tag: tag.into(),
            engine: None,
            model_hash: None,
            entries: Vec::new(),
            max_games: None,
            max_steps: None,
            max_wall_ms: None,
            max_disk_mb: None,
            max_ram_mb: None,
            sample_rate: 1,
            rotate_steps: 10_000_000,
            rotate_every: Some(Duration::from_secs(600)),
            with_action: true,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let RecorderOptions { tag, entries, .. } = self;
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        if tag.is_empty() || tag.starts_with('.') || tag.len() > MAX_TAG_LEN || !tag.chars().all(is_safe) {
            let expected = format!("1 to {MAX_TAG_LEN} letters, digits and any of ._+-, not a dot first");
            return Err(Error::argument("tag", expected, format!("{tag:?}")));
        }
        let at_least = |least: u64, name, value: Option<u64>| match value.filter(|&value| value < least) {
            Some(value) => Err(Error::argument(name, format!("at least {least}"), value)),
            None => Ok(()),
        };
        at_least(1, "sample_rate", Some(self.sample_rate.into()))?;
        at_least(1, "rotate_steps", Some(self.rotate_steps))?;
        if self.rotate_every.is_some_and(|every| every.is_zero()) {
            return Err(Error::argument("rotate_secs", "seconds above 0", "0"));
        }
        at_least(MIN_RAM_MB, "max_ram_mb", self.max_ram_mb)?;
        at_least(1, "max_disk_mb", self.max_disk_mb)?;
        let mut keys = std::collections::HashSet::from(OWN_KEYS);
        if let Some((key, _)) = entries.iter().find(|(key, _)| !keys.insert(key)) {
            return Err(Error::argument("entries", "unique keys that the recorder does not set itself", key));
        }
        let len = self.entries_len();
        if len > MAX_ENTRIES_LEN {
            return Err(Error::argument("entries", format!("at most {MAX_ENTRIES_LEN} bytes in all"), len));
        }
        Ok(())
    }

    /// Returns the size of the metadata of a session that the caller chose.
    pub(super) fn entries_len(&self) -> usize {
        let texts = [&self.engine, &self.model_hash].into_iter().flatten().map(String::len);
        self.entries.iter().map(|(key, value)| key.len() + value.to_string().len() + 32).chain(texts).sum()
    }

    /// Returns the memory for the buffers of steps, in bytes.
    pub(super) fn ram_budget(&self) -> u64 {
        let half = || crate::system::machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        self.max_ram_mb.map_or_else(half, |mb| mb.saturating_mul(MB) - RAM_OVERHEAD)
    }

    /// Returns the maximum size of everything written, in bytes.
    pub(super) fn disk_budget(&self) -> u64 {
        self.max_disk_mb.map_or(u64::MAX, |mb| mb.saturating_mul(MB))
    }
}
