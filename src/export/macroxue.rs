//! Export to a Macroxue pack.

use super::losses::{DURATION, ENGINE, FINAL_BOARD, START_TIME};
use super::target::{Encoded, ExportOutput, ExportedRun, Holds, RunEncoder, RunSink, TargetFormat};
use crate::error::Result;
use crate::format::{MacroxuePackWriter, PackContents};

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "macroxue",
    can_append: true,
    is_run_files: false,
    uses_original: false,
    holds: |_| Holds::All,
    loses: |_, _| vec![FINAL_BOARD, START_TIME, DURATION, ENGINE],
    open: |out, options, expected| {
        let plan = expected.session;
        let (writer, as_it_was) = if options.append && out.join("metadata.db").exists() {
            (MacroxuePackWriter::append(out)?, false)
        } else {
            let (layout, shard_rows) = (plan.pack.as_ref(), options.shard_rows);
            let entries = if layout.is_some() { &plan.entries[..] } else { &[] };
            (MacroxuePackWriter::create_as(out, PackContents { entries, layout, shard_rows })?, layout.is_some())
        };
        let encoder = Box::new(AsPackRun { as_it_was });
        Ok(ExportOutput { path: out.to_path_buf(), encoder, sink: Box::new(PackSink { writer, as_it_was }) })
    },
};

/// An encoder that returns runs with their ids in the original pack.
struct AsPackRun {
    as_it_was: bool,
}

impl RunEncoder for AsPackRun {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        let id = run.source_id.filter(|_| self.as_it_was).unwrap_or(run.id);
        Ok(Encoded::Run { id, game_steps: None, run: Box::new(run.run) })
    }
}

struct PackSink {
    writer: MacroxuePackWriter,
    /// Whether runs keep their ids. Otherwise they are numbered in order.
    as_it_was: bool,
}

impl RunSink for PackSink {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run { id, run, .. } = encoded else { return Ok(()) };
        self.writer.push_as(self.as_it_was.then_some(id), &run)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.writer.finish()?;
        Ok(1)
    }
}
