//! The options of a recorder.

use super::limits::Limits;
use crate::error::{Error, Result};
use derive_setters::Setters;
use serde_json::Value;
use std::time::Duration;

/// Options of a [`Recorder`](super::Recorder), and the metadata of its session.
///
/// Set fields with the `with_*` methods: `RecorderOptions::new("v7").with_journal(true)`.
#[derive(Clone, Debug, PartialEq, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct RecorderOptions {
    /// The model's name, which is part of the folder's name: letters, digits and `._+-`, without a leading dot.
    #[setters(into)]
    pub tag: String,
    /// The name of the engine.
    #[setters(into)]
    pub engine: Option<String>,
    /// A hash of the model.
    #[setters(into)]
    pub model_hash: Option<String>,
    /// A hash of the engine's configuration.
    #[setters(into)]
    pub config_hash: Option<String>,
    /// More metadata of the session, by key.
    pub entries: Vec<(String, Value)>,
    /// The limits of the recorder.
    pub limits: Limits,
    /// Keeps one step out of this many, beginning with the first.
    pub sample_rate: u32,
    /// Flushes ended games once they have this many kept steps.
    pub rotate_steps: u64,
    /// Also flushes ended games when this much time has passed since the last flush; `None` = no time limit.
    pub rotate_every: Option<Duration>,
    /// Makes each game durable as soon as it ends. Each game is then written twice.
    pub journal: bool,
    /// Whether a session stores moves. If so, every step needs its move. Without moves, an existing Rust reader of
    /// sessions can read it, but every reader has to derive the moves from the boards. Some stay unknown.
    #[setters(rename = "with_action")]
    pub with_action: bool,
}

/// The metadata keys that the recorder sets itself.
const OWN_KEYS: [&str; 12] = [
    "model",
    "engine",
    "config",
    "sample_rate",
    "writer",
    "started",
    "updated",
    "ended",
    "recovered",
    "finished",
    "not_kept",
    "recorded",
];
/// Most file systems limit a name to 255 bytes, which includes the time before the tag.
const MAX_TAG_LEN: usize = 200;
/// A reader's limit for all metadata of a session, less the recorder's own entries.
const MAX_ENTRIES_LEN: usize = 1 << 17;

impl RecorderOptions {
    /// Returns the default options with this tag.
    #[must_use]
    pub fn new(tag: impl Into<String>) -> RecorderOptions {
        RecorderOptions {
            tag: tag.into(),
            engine: None,
            model_hash: None,
            config_hash: None,
            entries: Vec::new(),
            limits: Limits::default(),
            sample_rate: 1,
            rotate_steps: 10_000_000,
            rotate_every: None,
            journal: false,
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
        if self.sample_rate == 0 {
            return Err(Error::argument("sample_rate", "at least 1", 0));
        }
        if self.rotate_steps == 0 {
            return Err(Error::argument("rotate_steps", "at least 1", 0));
        }
        if self.rotate_every.is_some_and(|every| every.is_zero()) {
            return Err(Error::argument("rotate_secs", "seconds above 0", "0"));
        }
        let mut keys = std::collections::HashSet::from(OWN_KEYS);
        if let Some((key, _)) = entries.iter().find(|(key, _)| !keys.insert(key)) {
            return Err(Error::argument("entries", "unique keys that the recorder does not set itself", key));
        }
        let texts = [&self.engine, &self.model_hash, &self.config_hash].into_iter().flatten().map(String::len);
        let len: usize = entries.iter().map(|(key, value)| key.len() + value.to_string().len() + 32).chain(texts).sum();
        if len > MAX_ENTRIES_LEN {
            return Err(Error::argument("entries", format!("at most {MAX_ENTRIES_LEN} bytes in all"), len));
        }
        self.limits.check()
    }
}
