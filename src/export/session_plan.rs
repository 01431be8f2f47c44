//! The metadata of an exported session or Macroxue pack. If all runs come from one session or pack, its metadata is
//! kept. Otherwise the metadata fits runs of any origin.

use crate::archive::StoredMeta;
use crate::error::{Error, Result};
use crate::format::SessionInfo;
use serde_json::Value;
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
}

/// The options and metadata of an exported session.
#[derive(Debug, Default)]
pub(super) struct SessionPlan {
    /// The rows of the table `session`.
    pub(super) entries: Vec<(String, Option<String>)>,
    pub(super) with_action: bool,
    /// Whether the runs keep the ids and lengths of their original session.
    pub(super) as_it_was: bool,
    /// The layout of the Macroxue pack that all runs came from.
    pub(super) pack: Option<Value>,
}

impl SessionOrigins {
    pub(super) fn add(&mut self, run: &StoredMeta) {
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
    }

    /// Returns the plan for these options: `moves` is [`ExportOptions::moves`](super::ExportOptions::moves).
    pub(super) fn plan(self, moves: Option<bool>) -> Result<SessionPlan> {
        if let Some((source, info)) = self.one.filter(|_| !self.is_mixed) {
            let info: SessionInfo = serde_json::from_str(&info).map_err(|error| {
                Error::argument("session_info", "the description of a session as JSON", format!("{error} ({source})"))
            })?;
            let with_action = moves.unwrap_or(info.has_actions);
            return Ok(SessionPlan { entries: info.entries, with_action, as_it_was: true, pack: info.pack });
        }
        let engine = self.engine.flatten().filter(|_| !self.has_several_engines);
        let model = engine.map(|engine| ("model".to_owned(), Some(serde_json::json!({ "tag": engine }).to_string())));
        // An existing Rust reader of sessions rejects rows with moves.
        let with_action = moves.unwrap_or(false);
        Ok(SessionPlan { entries: model.into_iter().collect(), with_action, as_it_was: false, pack: None })
    }
}
