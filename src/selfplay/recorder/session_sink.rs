//! The [`Sink`] that writes a session.

use super::ended_game::EndedGame;
use super::options::RecorderOptions;
use super::sink::{Closing, DiskCost, Sink};
use crate::clock;
use crate::error::Result;
use crate::format::{GrowingSession, NewRun};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

/// A sink that writes each flush as a shard of a session.
#[derive(Debug)]
pub(super) struct SessionSink {
    session: GrowingSession,
}

/// The size of a run in SQLite, in both copies of the database, including the tree above it.
const RUN_LEN: u64 = 2 * 64;
/// The size of the headers and of an empty SQLite database.
const FIXED_LEN: u64 = 1 << 16;

impl SessionSink {
    /// Creates a session in a folder that no reader uses yet.
    pub(super) fn create(folder: &Path, options: &RecorderOptions) -> Result<SessionSink> {
        let mut model = json!({ "tag": options.tag });
        if let Some(sha) = &options.model_hash {
            model["sha"] = json!(sha);
        }
        let config = options.config_hash.as_ref().map(|sha| json!({ "sha": sha }));
        let mut entries = vec![("model".to_owned(), model)];
        let known = [
            ("engine", options.engine.as_ref().map(|engine| json!(engine))),
            ("config", config),
            ("sample_rate", Some(json!(options.sample_rate))),
            ("writer", Some(json!(concat!("a2store ", env!("CARGO_PKG_VERSION"))))),
            ("started", Some(now())),
            ("finished", Some(json!(false))),
        ];
        entries.extend(known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        entries.extend(options.entries.iter().cloned());
        Ok(SessionSink { session: GrowingSession::create(folder, &entries, options.with_action)? })
    }

    /// Recovers the session of a dead recorder.
    pub(super) fn recover(folder: &Path) -> Result<SessionSink> {
        Ok(SessionSink { session: GrowingSession::recover(folder)? })
    }

    pub(super) fn set_folder(&mut self, folder: &Path) {
        self.session.set_folder(folder);
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.session.num_rows()
    }
}

impl Sink for SessionSink {
    fn write(&mut self, games: &Arc<Vec<EndedGame>>) -> Result<()> {
        let runs = games.iter().map(|game| NewRun {
            id: game.id(),
            seed: game.seed(),
            num_steps: game.num_steps(),
            max_score: game.max_score(),
            highest_tile: game.highest_tile(),
            steps: game.steps(),
        });
        self.session.append(runs, &[("updated", now())])
    }

    fn close(&mut self, closing: &Closing) -> Result<()> {
        let ended = if closing.finished { "ended" } else { "recovered" };
        let count = json!({ "abandoned": closing.abandoned, "live": closing.live });
        self.session.set_entries(&[("finished", json!(closing.finished)), (ended, now()), ("not_kept", count)])
    }

    fn num_durable(&self) -> u64 {
        self.session.next_id()
    }

    fn num_runs(&self) -> u64 {
        self.session.num_runs()
    }

    fn num_bytes(&self) -> u64 {
        let (rows, metadata) = self.session.num_bytes();
        // A flush writes a new database before it replaces the old one.
        rows + 2 * metadata
    }

    fn cost(&self) -> DiskCost {
        let per_step = GrowingSession::row_len(self.with_action()) as u64;
        DiskCost { fixed: FIXED_LEN, per_game: RUN_LEN, per_step }
    }

    fn with_action(&self) -> bool {
        self.session.with_action()
    }

    fn with_evs(&self) -> bool {
        false
    }
}

/// Returns the current time in ISO 8601.
fn now() -> Value {
    json!(clock::text())
}
