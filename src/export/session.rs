//! Export to a self-play session.

use super::losses::{DETAILS, DURATION, ENGINE, FINAL_BOARD, MOVES, START_TIME, VALUES};
use super::target::{Encoded, ExportOutput, ExportedRun, Holds, RunEncoder, RunSink, TargetFormat};
use crate::error::Result;
use crate::format::{SessionOptions, SessionWriter};

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "session",
    can_append: false,
    is_run_files: false,
    uses_original: false,
    holds: |_| Holds::All,
    loses: |_, plan| {
        let mut parts = vec![FINAL_BOARD, VALUES, START_TIME, DURATION, DETAILS];
        parts.extend((!plan.with_action).then_some(MOVES));
        // A new session has one engine.
        parts.extend((!plan.as_it_was && plan.entries.is_empty()).then_some(ENGINE));
        parts
    },
    open: |out, options, expected| {
        let plan = expected.session;
        let session = SessionOptions { with_action: plan.with_action, rotate_rows: options.shard_rows };
        let writer = SessionWriter::create_as(out, &plan.entries, session)?;
        let encoder = Box::new(AsSessionRun { as_it_was: plan.as_it_was });
        Ok(ExportOutput { path: out.to_path_buf(), encoder, sink: Box::new(writer) })
    },
};

/// An encoder that returns runs with their ids in the original session, or else in the archive.
struct AsSessionRun {
    as_it_was: bool,
}

impl RunEncoder for AsSessionRun {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        let (id, game_steps) = match (self.as_it_was, run.source_id) {
            (true, Some(id)) => (id, run.game_steps),
            _ => {
                let last = run.run.num_steps().checked_sub(1).and_then(|last| run.run.step(last));
                (run.id, Some(last.map_or(0, |step| step.index.saturating_add(1))))
            }
        };
        Ok(Encoded::Run { id, game_steps, run: Box::new(run.run) })
    }
}

impl RunSink for SessionWriter {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run { id, game_steps, run } = encoded else { return Ok(()) };
        self.push_part(id, &run, game_steps)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        SessionWriter::finish(*self)?;
        Ok(1)
    }
}
