//! Export to a NumPy dataset.

use super::losses::{CHOSEN_VALUES, DETAILS, FINAL_BOARD, RAW_VALUES, SEED};
use super::target::{AsRun, Encoded, ExportOutput, Holds, RunSink, TargetFormat};
use crate::error::Result;
use crate::format::{DatasetOptions, DatasetWriter};

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "npy",
    can_append: true,
    is_run_files: false,
    uses_original: false,
    holds: |_| Holds::All,
    loses: |_, _| vec![FINAL_BOARD, RAW_VALUES, CHOSEN_VALUES, SEED, DETAILS],
    open: |out, options, _| {
        let writer = if options.append && out.join("metadata.db").exists() {
            DatasetWriter::append(out)?
        } else {
            DatasetWriter::create(out, DatasetOptions { shard_rows: options.shard_rows, ..Default::default() })?
        };
        Ok(ExportOutput { path: out.to_path_buf(), encoder: Box::new(AsRun), sink: Box::new(writer) })
    },
};

impl RunSink for DatasetWriter {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run { run, .. } = encoded else { return Ok(()) };
        DatasetWriter::push(self, &run).map(drop)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        DatasetWriter::finish(*self)?;
        Ok(1)
    }
}
