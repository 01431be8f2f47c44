//! The metadata of an exported session. If all runs come from one session, its metadata is kept. Otherwise the
//! metadata fits runs of any origin.

use crate::archive::StoredMeta;
use crate::error::{Error, Result};
use crate::format::{SessionInfo, SourceFormat};
use std::sync::Arc;

/// The origins of the runs of an export.
#[derive(Default)]
pub(super) struct SessionOrigins {
    /// The source and description of the session that all runs so far belong to.
    one: Option<(String, Arc<str>)>,
    /// Whether the runs come from several sessions or none, or lack their id in the session.
    is_mixed: bool,
    /// The engine that all runs so far share.
    engine: Option<Option<String>>,
    has_several_engines: bool,
    /// Whether the moves of some run cannot be derived from the rules, so that they must be written.
    has_moves: bool,
    num_runs: u64,
}

/// The options and metadata of an exported session.
#[derive(Debug, Default)]
pub(super) struct SessionPlan {
    /// The rows of the table `session`.
    pub(super) entries: Vec<(String, Option<String>)>,
    pub(super) with_action: bool,
    /// Whether the runs keep the ids and lengths of their original session.
    pub(super) as_it_was: bool,
}

impl SessionOrigins {
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
        // Archives before schema version 4 do not record whether a session had moves.
        let has_moves = match own.and_then(|info| serde_json::from_str::<SessionInfo>(info).ok()) {
            Some(info) => info.has_actions,
            None => run.format != Some(SourceFormat::Session),
        };
        self.has_moves |= has_moves;
    }

    pub(super) fn plan(self) -> Result<SessionPlan> {
        if let Some((source, info)) = self.one.filter(|_| !self.is_mixed) {
            let info: SessionInfo = serde_json::from_str(&info).map_err(|error| {
                Error::argument("session_info", "the description of a session as JSON", format!("{error} ({source})"))
            })?;
            return Ok(SessionPlan { entries: info.entries, with_action: info.has_actions, as_it_was: true });
        }
        let engine = self.engine.flatten().filter(|_| !self.has_several_engines);
        let model = engine.map(|engine| ("model".to_owned(), Some(serde_json::json!({ "tag": engine }).to_string())));
        // A conversion adds no metadata here. Its runs count as having moves.
        let with_action = self.has_moves || self.num_runs == 0;
        Ok(SessionPlan { entries: model.into_iter().collect(), with_action, as_it_was: false })
    }
}
