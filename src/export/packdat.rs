//! Export to pack.dat.

use super::losses::{DETAILS, EXACT_VALUES, FINAL_BOARD, RAW_VALUES, SEED};
use super::target::{AsRun, Encoded, ExportOutput, Holds, RunSink, TargetFormat, file_at};
use crate::error::Result;
use crate::format::PackDatWriter;

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "packdat",
    can_append: true,
    is_run_files: false,
    uses_original: false,
    holds: |_| Holds::All,
    loses: |_, _| vec![FINAL_BOARD, RAW_VALUES, EXACT_VALUES, SEED, DETAILS],
    open: |out, options, _| {
        let existing = if out.is_dir() { out.join("pack.dat") } else { out.to_path_buf() };
        let (path, writer) = if options.append && existing.exists() {
            let writer = PackDatWriter::append(&existing)?;
            (existing, writer)
        } else {
            let path = file_at(out, "pack.dat")?;
            let writer = PackDatWriter::create(&path)?;
            (path, writer)
        };
        Ok(ExportOutput { path, encoder: Box::new(AsRun), sink: Box::new(writer) })
    },
};

impl RunSink for PackDatWriter {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Run { run, .. } = encoded else { return Ok(()) };
        PackDatWriter::push(self, &run)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        PackDatWriter::finish(*self)?;
        Ok(1)
    }
}
