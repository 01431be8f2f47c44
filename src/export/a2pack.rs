//! Export to an a2pack.

use super::losses::{DETAILS, RAW_VALUES, SEED};
use super::target::{AsFile, Encoded, ExportOutput, Holds, RunSink, TargetFormat, file_at};
use crate::error::Result;
use crate::format::PackBuilder;

pub(super) const TARGET: TargetFormat = TargetFormat {
    name: "a2pack",
    can_append: false,
    is_run_files: false,
    uses_original: true,
    holds: |_| Holds::WholeGames,
    loses: |_, _| vec![RAW_VALUES, SEED, DETAILS],
    open: |out, options, _| {
        let path = file_at(out, "runs.a2pack")?;
        let builder = PackBuilder::create(&path, options.pack)?;
        Ok(ExportOutput { path, encoder: Box::new(AsFile), sink: Box::new(builder) })
    },
};

impl RunSink for PackBuilder {
    fn push(&mut self, encoded: Encoded) -> Result<()> {
        let Encoded::Bytes(bytes) = encoded else { return Ok(()) };
        self.add_run_bytes(&bytes)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        PackBuilder::finish(*self)?;
        Ok(1)
    }
}
