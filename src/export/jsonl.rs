//! Export to JSON Lines.

use super::losses::{DETAILS, DURATION, ENGINE, FINAL_BOARD, SCORE, SEED, START_TIME, VALUES};
use super::target::{Encoded, ExportOutput, ExportedRun, Holds, RunEncoder, RunSink, TargetFormat, file_at};
use crate::error::{Error, Result};
use crate::format::{JsonlOptions, put_run, put_steps, run_uuid};
use crate::publish::{Staged, parent};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "jsonl",
    can_append: false,
    is_run_files: false,
    uses_original: true,
    holds: |options| if options.lines.by_step { Holds::All } else { Holds::WholeGames },
    loses: |options, _| match options.lines {
        JsonlOptions { by_step: true, .. } => vec![FINAL_BOARD, START_TIME, DURATION, SCORE, ENGINE, SEED, DETAILS],
        JsonlOptions { compact: true, .. } => vec![VALUES, SEED, DETAILS],
        _ => vec![VALUES, ENGINE, SEED, DETAILS],
    },
    open: |out, options, _| {
        let path = file_at(out, if options.lines.by_step { "steps.jsonl" } else { "runs.jsonl" })?;
        let staged = Staged::new(parent(&path))?;
        let sink = Box::new(LinesFile { out: BufWriter::with_capacity(1 << 20, staged), path: path.clone() });
        Ok(ExportOutput { path, encoder: Box::new(AsLines(options.lines)), sink })
    },
};

struct AsLines(JsonlOptions);

struct LinesFile {
    out: BufWriter<Staged>,
    path: PathBuf,
}

impl RunEncoder for AsLines {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        // A run that no run file can hold gets the identifier of an empty file.
        let whole = run.original.is_some() || run.run.missing().is_none();
        let crc = if whole { crc32c::crc32c(&run.file(None)?.1) } else { 0 };
        let mut lines = Vec::new();
        let (id, uuid, compact) = (run.id, run_uuid(crc, run.id), self.0.compact);
        if self.0.by_step {
            put_steps(&mut lines, &run.run, 0..run.run.num_steps(), id, &uuid, compact)?;
        } else {
            put_run(&mut lines, &run.run, id, &uuid, compact)?;
        }
        Ok(Encoded::Bytes(lines))
    }
}

impl RunSink for LinesFile {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Bytes(lines) = encoded else { return Ok(()) };
        self.out.write_all(&lines).map_err(|source| Error::io(&self.path, source))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let LinesFile { out, path } = *self;
        let staged = out.into_inner().map_err(|error| Error::io(&path, error.into_error()))?;
        staged.replace(&path)?;
        Ok(1)
    }
}
