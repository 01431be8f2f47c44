//! The metadata of an exported session or Macroxue pack. If all runs come from one session or pack, its metadata is
//! kept. Otherwise the metadata fits runs of any origin.

use crate::archive::StoredMeta;
use crate::error::{Error, Result};
use crate::format::SessionInfo;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// The origins of the runs of an export.
#[derive(Default)]
pub(super) struct SessionOrigins {
    /// The id and source of the first run.
    first: Option<(u32, String)>,
    /// The source and description of the session that all runs so far belong to.
    one: Option<SessionOrigin>,
    /// The ids of the runs in that session.
    ids: HashSet<u64>,
    /// Whether the runs come from several sessions or none, or lack their id in the session.
    is_mixed: bool,
    /// Two runs with different origins, for messages.
    why_mixed: Option<String>,
    /// The engine that all runs so far share.
    engine: Option<Option<String>>,
    has_several_engines: bool,
    /// The description of the last run's session.
    last: Option<Arc<str>>,
    /// Whether a run comes from a session without moves.
    lacks_moves: bool,
}

/// The session or Macroxue pack that runs came from.
#[derive(Clone, Debug)]
pub(super) struct SessionOrigin {
    pub(super) source: String,
    /// `runs.session_info`.
    pub(super) info: Arc<str>,
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
    /// The session or pack that all runs came from.
    pub(super) origin: Option<SessionOrigin>,
    /// Two runs with different origins, for messages.
    pub(super) why_mixed: Option<String>,
}

impl SessionOrigins {
    pub(super) fn add(&mut self, run: &StoredMeta) {
        if let Some(info) = &run.session_info
            && self.last.as_ref() != Some(info)
        {
            self.lacks_moves |= serde_json::from_str(info).is_ok_and(|info: SessionInfo| !info.has_actions);
            self.last = Some(Arc::clone(info));
        }
        let own = run.session_info.as_ref().zip(run.source_id);
        // A source that was ingested again with other contents gives several runs one id.
        let is_other = match (&self.one, own) {
            (_, None) => true,
            (None, Some((info, id))) => {
                self.one = Some(SessionOrigin { source: run.source.clone(), info: Arc::clone(info) });
                !self.ids.insert(id)
            }
            (Some(one), Some((info, id))) => one.source != run.source || one.info != *info || !self.ids.insert(id),
        };
        self.is_mixed |= is_other;
        match &self.first {
            None => self.first = Some((run.run_id, run.source.clone())),
            Some((first, source)) if self.is_mixed && self.one.is_some() && self.why_mixed.is_none() => {
                let how = if *source == run.source { ", with other contents" } else { "" };
                let found = format!("run {first} from {source}, and run {} from {}{how}", run.run_id, run.source);
                self.why_mixed = Some(found);
            }
            _ => {}
        }
        match &self.engine {
            None => self.engine = Some(run.engine.clone()),
            Some(engine) => self.has_several_engines |= *engine != run.engine,
        }
    }

    /// Returns the plan for these options: `moves` is [`ExportOptions::moves`](super::ExportOptions::moves).
    pub(super) fn plan(self, moves: Option<bool>) -> Result<SessionPlan> {
        if let Some(origin) = self.one.filter(|_| !self.is_mixed) {
            let info: SessionInfo = serde_json::from_str(&origin.info).map_err(|error| {
                let found = format!("{error} ({})", origin.source);
                Error::argument("session_info", "the description of a session as JSON", found)
            })?;
            let (with_action, pack) = (moves.unwrap_or(info.has_actions), info.pack);
            let (origin, why_mixed) = (Some(origin), None);
            return Ok(SessionPlan { entries: info.entries, with_action, as_it_was: true, pack, origin, why_mixed });
        }
        let engine = self.engine.flatten().filter(|_| !self.has_several_engines);
        let model = engine.map(|engine| ("model".to_owned(), Some(serde_json::json!({ "tag": engine }).to_string())));
        let with_action = moves.unwrap_or(!self.lacks_moves);
        let (entries, why_mixed) = (model.into_iter().collect(), self.why_mixed);
        Ok(SessionPlan { entries, with_action, why_mixed, ..SessionPlan::default() })
    }
}
