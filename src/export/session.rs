//! What a session is written with: what the one said that all its runs are of, or else what holds for runs of any origin.

use crate::archive::StoredMeta;
use crate::error::{Error, Result};
use crate::format::{SessionInfo, SourceFormat};
use std::sync::Arc;

/// Which sessions runs are of.
#[derive(Default)]
pub(super) struct Sessions {
    /// Source and description of the session of all runs so far.
    one: Option<(String, Arc<str>)>,
    /// Whether runs are of several, or of none, or do not say which they were there.
    is_mixed: bool,
    /// The engine of all runs so far.
    engine: Option<Option<String>>,
    has_several_engines: bool,
    /// Whether some run has its moves from elsewhere than the rules, so that they are to be written.
    has_moves: bool,
    num_runs: u64,
}

/// How a session is written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// The table `session`.
    pub(super) entries: Vec<(String, Option<String>)>,
    pub(super) with_action: bool,
    /// Whether runs have the ids and lengths of the session that they came from.
    pub(super) as_it_was: bool,
}

impl Sessions {
    pub(super) fn add(&mut self, run: &StoredMeta) {
        self.num_runs += 1;
        let own = run.session_info.as_ref().filter(|_| run.source_id.is_some());
        match (&self.one, own) {
            (_, None) => self.is_mixed = true,
            (None, Some(info)) => self.one = Some((run.source.clone(), Arc::clone(info))),
            (Some((source, info)), Some(other)) => self.is_mixed |= *source != run.source || info != other,
        }
        match &self.engine {
            None => self.engine = Some(run.engine.clone()),
            Some(engine) => self.has_several_engines |= *engine != run.engine,
        }
        // Of an archive of before schema version 4 it is not known whether a session had them.
        let has_moves = match own.and_then(|info| serde_json::from_str::<SessionInfo>(info).ok()) {
            Some(info) => info.has_actions,
            None => run.format != Some(SourceFormat::Session),
        };
        self.has_moves |= has_moves;
    }

    pub(super) fn plan(self) -> Result<Plan> {
        if let Some((source, info)) = self.one.filter(|_| !self.is_mixed) {
            let info: SessionInfo = serde_json::from_str(&info).map_err(|error| {
                Error::argument("session_info", "what a session says of itself", format!("{error} ({source})"))
            })?;
            return Ok(Plan { entries: info.entries, with_action: info.has_actions, as_it_was: true });
        }
        let engine = self.engine.flatten().filter(|_| !self.has_several_engines);
        let model = engine.map(|engine| ("model".to_owned(), Some(serde_json::json!({ "tag": engine }).to_string())));
        // Runs that come without a word, as those of a conversion do, are taken to have moves.
        let with_action = self.has_moves || self.num_runs == 0;
        Ok(Plan { entries: model.into_iter().collect(), with_action, as_it_was: false })
    }
}
