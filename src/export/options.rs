//! Options and results of an export.

use super::format::{ExportFormat, Needs};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Compression, Rejected};
use derive_setters::Setters;
use std::path::{Path, PathBuf};

/// Options of an export. An export rejects options that its format does not have.
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
    /// Dataset, session or Macroxue pack: maximum rows per shard; `None` = one `steps.npy`. Shards are
    /// `steps-000001.npy`, … in a session and `steps-00000.npy`, … in the others.
    pub shard_rows: Option<u64>,
    /// Session: whether to write the moves. `None` = with moves if the first run has all of its moves. If moves are
    /// written, a run with an unknown move is rejected.
    pub moves: Option<bool>,
    /// Whether to skip runs that the format cannot hold, and to list them in [`ExportReport::errors`].
    /// [`convert`](crate::export::convert) then also skips runs and files that cannot be read. Otherwise the first error is
    /// returned.
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

    /// Returns an error if the format does not have an option.
    pub(super) fn check(&self) -> Result<()> {
        if self.shard_rows == Some(0) {
            return Err(Error::argument("shard_rows", "at least 1", 0));
        }
        let (pack, lines) = (&[ExportFormat::A2pack][..], &[ExportFormat::Jsonl][..]);
        let options = [
            ("align", self.align.is_some(), pack),
            ("compress", self.compression != Compression::None, pack),
            (
                "shard_rows",
                self.shard_rows.is_some(),
                &[ExportFormat::Npy, ExportFormat::Session, ExportFormat::Macroxue],
            ),
            ("moves", self.moves.is_some(), &[ExportFormat::Session]),
            ("by_step", self.by_step, lines),
            ("compact", self.compact, lines),
        ];
        match options.into_iter().find(|(_, is_set, formats)| *is_set && !formats.contains(&self.format)) {
            Some((name, _, formats)) => {
                let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
                Err(Error::argument("format", format!("{} with {name}", names.join(" or ")), self.format))
            }
            None => Ok(()),
        }
    }

    /// Returns what the format needs of every run.
    pub(super) fn needs(&self) -> Needs {
        match self.format {
            ExportFormat::Original => Needs::RunFile,
            ExportFormat::Jsonl if self.by_step => Needs::Nothing,
            ExportFormat::A2t1 | ExportFormat::A2run2 | ExportFormat::A2pack | ExportFormat::Jsonl => Needs::WholeGame,
            ExportFormat::PackDat | ExportFormat::Npy | ExportFormat::Session | ExportFormat::Macroxue => {
                Needs::Nothing
            }
        }
    }

    /// Returns the name of the layout, for messages.
    pub(super) fn layout(&self) -> String {
        let by_step = if self.format == ExportFormat::Jsonl && self.by_step { " by step" } else { "" };
        format!("{}{by_step}", self.format)
    }

    /// Returns an error about runs without a final board.
    pub(super) fn without_final_board(&self, run_ids: &[u32]) -> Error {
        let ids: Vec<String> = run_ids.iter().take(MAX_SHOWN_RUNS).map(u32::to_string).collect();
        let (runs, more) = match run_ids.len() {
            1 => ("run", ""),
            len if len > MAX_SHOWN_RUNS => ("runs", ", …"),
            _ => ("runs", ""),
        };
        let found = format!(
            "{} {runs} without a final board, which the score does not determine: {runs} {}{more}; the condition \
             final_board IS NOT NULL selects runs that have it",
            run_ids.len(),
            ids.join(", ")
        );
        Error::argument("format", format!("whole games for {}", self.layout()), found)
    }
}

/// The maximum number of runs that a message lists.
const MAX_SHOWN_RUNS: usize = 10;

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

impl ExportReport {
    /// Counts a written run, and returns true. If the format cannot hold the run and `skip_errors` is set, lists the
    /// error and returns false. Returns any other error.
    pub(super) fn add(
        &mut self,
        num_steps: u64,
        written: Result<()>,
        source: &Path,
        skip_errors: bool,
    ) -> Result<bool> {
        match written {
            Ok(()) => {
                self.runs += 1;
                self.num_steps += num_steps;
                Ok(true)
            }
            // Nothing of the run was written.
            Err(error) if skip_errors && matches!(error.kind(), ErrorKind::Argument { .. }) => {
                self.errors.push(Rejected::new(source.to_owned(), error));
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
