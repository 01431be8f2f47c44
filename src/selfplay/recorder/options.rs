//! The options of a recorder.

use crate::error::{Error, Result};
use derive_setters::Setters;
use std::time::Duration;

/// Options of a [`Recorder`](super::Recorder), and the metadata of its sessions.
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
    /// The memory for steps that are not yet written, in millions of bytes, at least 16. If it is used up, pushes wait
    /// for a rotation. `None` = half of the memory that is available at the start.
    pub max_ram_mb: Option<u64>,
    /// Rotates once ended games have this many steps.
    pub rotate_steps: u64,
    /// Rotates once a game has waited this long. It bounds how much a crash can lose. `None` = no bound.
    pub rotate_every: Option<Duration>,
}

/// Most file systems limit a name to 255 bytes, which includes the time before the tag.
const MAX_TAG_LEN: usize = 200;
/// The maximum size of the engine's name and of the model's hash. Run files hold no longer name.
const MAX_TEXT_LEN: usize = u16::MAX as usize;
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
            max_ram_mb: None,
            rotate_steps: 10_000_000,
            rotate_every: Some(Duration::from_secs(600)),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let RecorderOptions { tag, engine, model_hash, .. } = self;
        let is_safe = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        if tag.is_empty() || tag.starts_with('.') || tag.len() > MAX_TAG_LEN || !tag.chars().all(is_safe) {
            let expected = format!("1 to {MAX_TAG_LEN} letters, digits and any of ._+-, not a dot first");
            return Err(Error::argument("tag", expected, format!("{tag:?}")));
        }
        if self.rotate_steps == 0 {
            return Err(Error::argument("rotate_steps", "at least 1", 0));
        }
        if self.rotate_every.is_some_and(|every| every.is_zero()) {
            return Err(Error::argument("rotate_secs", "seconds above 0", "0"));
        }
        if let Some(mb) = self.max_ram_mb.filter(|&mb| mb < MIN_RAM_MB) {
            return Err(Error::argument("max_ram_mb", format!("at least {MIN_RAM_MB}"), mb));
        }
        for (name, text) in [("engine", engine), ("model_hash", model_hash)] {
            if let Some(text) = text.as_ref().filter(|text| text.len() > MAX_TEXT_LEN) {
                return Err(Error::argument(name, format!("at most {MAX_TEXT_LEN} bytes"), text.len()));
            }
        }
        Ok(())
    }

    /// Returns the memory for the buffers of steps, in bytes.
    pub(super) fn ram_budget(&self) -> u64 {
        let half = || crate::machine::available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        self.max_ram_mb.map_or_else(half, |mb| mb.saturating_mul(MB) - RAM_OVERHEAD)
    }
}
