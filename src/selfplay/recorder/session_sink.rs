//! The [`Sink`] that writes each buffer as a complete session in a folder.

use super::buffer::FinishedGame;
use super::options::RecorderOptions;
use super::sink::{Sink, SinkFormat};
use crate::error::Result;
use crate::format::{SessionOptions, SessionWriter, StagedFolder};
use crate::run::RunMeta;
use crate::system::{clock, publish};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A sink that writes sessions.
#[derive(Debug)]
pub(super) struct SessionSink {
    folder: PathBuf,
    options: RecorderOptions,
    /// The time at which the next session began.
    started: DateTime<Utc>,
    num_bytes: u64,
    /// The sessions whose names may not be durable.
    unsynced: Vec<PathBuf>,
    /// The number of games, first in the next write, that these sessions have already.
    num_written: usize,
}

/// The bytes of a run in SQLite, including the tree above it.
const RUN_LEN: u64 = 64;
/// The bytes of the headers and of an empty SQLite database.
const FIXED_LEN: u64 = 1 << 16;
/// The bytes of a row, without and with its move.
const ROW_LEN: [u64; 2] = [28, 29];

impl SessionSink {
    /// Creates the folder if it is missing. Removes the unfinished sessions of recorders that crashed.
    pub(super) fn create(folder: &Path, options: &RecorderOptions) -> Result<SessionSink> {
        publish::create_folders(folder)?;
        StagedFolder::remove_abandoned(folder);
        // A folder that cannot be written to is an error now, not at the first rotation.
        drop(StagedFolder::new_in(folder)?);
        Ok(SessionSink {
            folder: folder.to_owned(),
            options: options.clone(),
            started: clock::now(),
            num_bytes: 0,
            unsynced: Vec::new(),
            num_written: 0,
        })
    }

    /// Writes a session and gives it its name.
    fn write_session(&mut self, games: &[FinishedGame]) -> Result<()> {
        let options = SessionOptions::default().with_action(self.options.with_action);
        let mut writer = SessionWriter::create_in(&self.folder, &self.entries(), options)?;
        for game in games {
            writer.push_part(game.id, &game.to_run(&RunMeta::default())?, Some(game.num_steps))?;
        }
        let (time, tag) = (self.started.format("%Y%m%dT%H%M%SZ"), &self.options.tag);
        let session = writer.finish_as((1..).map(|number| match number {
            1 => self.folder.join(format!("{time}_model={tag}")),
            // Put the number between the time and the first `_`, so that the tag still follows the last `=`.
            _ => self.folder.join(format!("{time}-{number}_model={tag}")),
        }))?;
        self.num_bytes += len_of(&session);
        self.unsynced.push(session);
        self.started = clock::now();
        Ok(())
    }

    /// Returns the metadata of the next session, as JSON by key.
    fn entries(&self) -> Vec<(String, Value)> {
        let RecorderOptions { tag, engine, model_hash, entries, sample_rate, .. } = &self.options;
        let mut model = json!({ "tag": tag });
        if let Some(sha) = model_hash {
            model["sha"] = json!(sha);
        }
        let known = [
            ("model", Some(model)),
            ("engine", engine.as_ref().map(|engine| json!(engine))),
            ("sample_rate", Some(json!(sample_rate))),
            ("writer", Some(json!(concat!("a2store ", env!("CARGO_PKG_VERSION"))))),
            ("started", Some(json!(clock::text(self.started)))),
            ("ended", Some(json!(clock::text(clock::now())))),
        ];
        let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        known.chain(entries.iter().cloned()).collect()
    }
}

impl Sink for SessionSink {
    fn write(&mut self, games: &Arc<Vec<FinishedGame>>) -> Result<Vec<PathBuf>> {
        let new = games.get(self.num_written..).unwrap_or_default();
        if !new.is_empty() {
            self.write_session(new)?;
            self.num_written = games.len();
        }
        publish::sync(&self.folder)?;
        self.num_written = 0;
        Ok(std::mem::take(&mut self.unsynced))
    }

    fn num_bytes(&self) -> u64 {
        self.num_bytes
    }

    fn format(&self) -> SinkFormat {
        SinkFormat {
            with_action: self.options.with_action,
            with_evs: false,
            bytes_per_write: FIXED_LEN + 2 * self.options.entries_len() as u64,
            bytes_per_game: RUN_LEN,
            bytes_per_step: ROW_LEN[usize::from(self.options.with_action)],
        }
    }
}

/// Returns the size of the files in a folder, in bytes.
fn len_of(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().filter_map(std::result::Result::ok);
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}
