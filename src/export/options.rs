//! Options and results of an export.

use super::registry::ExportFormat;
use super::target::{ExpectedRuns, ExportOutput, FormatOptions, Holds};
use crate::archive::{Rejected, StoredMeta};
use crate::error::{Error, Result};
use crate::format::{Compression, JsonlOptions, PackOptions, SourceFormat};
use derive_setters::Setters;
use std::path::{Path, PathBuf};

/// Options of an export.
///
/// Set fields with the `with_*` methods: `ExportOptions::new(ExportFormat::Npy).with_workers(4)`.
#[derive(Clone, Debug, Default, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct ExportOptions {
    /// The format to write.
    pub format: ExportFormat,
    /// Number of threads; `None` = one per core.
    pub workers: Option<usize>,
    /// a2pack: the alignment of entries in bytes; `None` = 4096.
    pub align: Option<u32>,
    /// a2pack: the compression of entries.
    pub compression: Compression,
    /// Dataset, session or Macroxue pack: maximum rows per shard; `None` = one `steps.npy`, or the shards of the pack
    /// that all runs came from. Shards are `steps-000001.npy`, … in a session and `steps-00000.npy`, … in the others.
    /// Appending keeps the existing sharding. The format `original` rejects it.
    pub shard_rows: Option<u64>,
    /// Session: whether to write the moves. `None` = without moves, unless all runs come from one session that has
    /// them. If moves are written, a run with an unknown move is rejected.
    pub moves: Option<bool>,
    /// pack.dat, dataset and Macroxue pack: append to an existing one.
    pub append: bool,
    /// [`convert`](crate::convert): whether to skip runs and files that cannot be read, and runs that the format cannot
    /// hold, and to list them in [`ExportReport::errors`]. Otherwise `convert` returns the first error.
    pub skip_errors: bool,
    /// JSON Lines: one line per step instead of one per run.
    pub by_step: bool,
    /// JSON Lines: the compact layout, which DuckDB and other tools read directly.
    pub compact: bool,
}

impl ExportOptions {
    /// Returns options for this format, with defaults for the rest.
    #[must_use]
    pub fn new(format: ExportFormat) -> ExportOptions {
        ExportOptions { format, ..ExportOptions::default() }
    }

    /// Returns an error if the format cannot hold the run.
    pub(super) fn examine(&self, run: &StoredMeta) -> Result<()> {
        let (expected, found) = match ((self.format.target().holds)(&self.format_options()), run.format) {
            (Holds::All, _) | (Holds::Originals, Some(SourceFormat::File(_))) => return Ok(()),
            (Holds::WholeGames, _) if run.final_board.is_some() => return Ok(()),
            (Holds::WholeGames, _) => ("whole games", "which has no final board".into()),
            (Holds::Originals, Some(other)) => (ORIGINALS, format!("from {}", other.name())),
            (Holds::Originals, None) => (ORIGINALS, "from another format".into()),
        };
        let expected = format!("for {}, {expected}", self.format);
        Err(Error::argument("format", expected, format!("run {}, {found}", run.run_id)))
    }

    /// Opens the output.
    pub(super) fn open(&self, out: &Path, expected: &ExpectedRuns<'_>) -> Result<ExportOutput> {
        let target = self.format.target();
        if self.append && !target.can_append {
            let can_append = ExportFormat::ALL.into_iter().filter(|format| format.target().can_append);
            let names: Vec<&str> = can_append.map(ExportFormat::name).collect();
            return Err(Error::argument("format", format!("{} with append", names.join(" or ")), self.format));
        }
        (target.open)(out, &self.format_options(), expected)
    }

    fn format_options(&self) -> FormatOptions {
        let mut pack = PackOptions { compression: self.compression, ..PackOptions::default() };
        pack.align = self.align.unwrap_or(pack.align);
        let lines = JsonlOptions { by_step: self.by_step, compact: self.compact, ..JsonlOptions::default() };
        FormatOptions { append: self.append, pack, shard_rows: self.shard_rows, lines }
    }
}

const ORIGINALS: &str = "runs that came from run files, or from one Macroxue pack";

/// Returns what the format `original` expects of runs, for messages.
pub(super) fn expected_originals() -> String {
    format!("for {}, {ORIGINALS}", ExportFormat::Original)
}

/// The result of an export.
#[derive(Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct ExportReport {
    /// The path of the file or folder that was written.
    #[serde(serialize_with = "crate::error::serialize_path")]
    pub path: PathBuf,
    /// The number of runs.
    pub runs: u64,
    /// The number of steps of these runs.
    pub num_steps: u64,
    /// The number of run files; 1 for other formats.
    pub num_files: u64,
    /// The errors of the runs and files that were skipped, in order.
    pub errors: Vec<Rejected>,
}
