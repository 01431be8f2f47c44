//! Conversion of a pack to JSON Lines.

use super::PackReader;
use crate::error::{Error, Result};
use crate::format::files::ordered::{fill_window, in_order};
use crate::format::jsonl::{JsonlOptions, lines_of};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::publish::{Output, is_same_file};
use crate::system::workers;
use std::io::Write;
use std::path::Path;

/// The result of writing JSON Lines.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct JsonlReport {
    /// The number of runs that were written.
    pub num_runs: u64,
    /// The number of their steps.
    pub num_steps: u64,
    /// The number of bytes that were written.
    pub num_bytes: u64,
    /// Errors of runs that could not be read and were skipped. Tombstones are not errors.
    pub errors: Vec<Error>,
}

/// Bytes of run files per window, which give some megabytes of text.
const WINDOW_BYTES: u64 = 1 << 20;
/// The maximum runs per window.
const WINDOW_RUNS: usize = 256;

impl PackReader {
    /// Writes the runs in order as JSON Lines. [`JsonlOptions`] chooses the layout. Memory holds the lines of a few
    /// megabytes of run files, regardless of the pack's size.
    ///
    /// The file appears completely or not at all, and replaces an existing file. Follows a link. Writes
    /// directly to a pipe or a device.
    ///
    /// Damaged runs are skipped and reported. Other runs keep their indices.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io); [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an
    /// invalid number of workers; [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn to_jsonl(
        &self,
        path: impl AsRef<Path>,
        options: &JsonlOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<JsonlReport> {
        let path = path.as_ref();
        if self.path().is_some_and(|own| is_same_file(own, path)) {
            return Err(Error::argument("path", "a file other than the pack", path.display()));
        }
        let output = Output::create(path)?;
        let report = self.write_jsonl(&mut output.file(), options, progress, cancel);
        let report = report.map_err(|error| error.with_path(path))?;
        output.publish()?;
        Ok(report)
    }

    /// Does the same as [`PackReader::to_jsonl`], but writes to a writer.
    ///
    /// # Errors
    /// The errors of [`PackReader::to_jsonl`]. Some lines may have been written by then.
    pub fn write_jsonl(
        &self,
        out: &mut dyn Write,
        options: &JsonlOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<JsonlReport> {
        let pool = workers::pool("jsonl", options.workers)?;
        let _work = ReportedWork::begin(progress, "writing lines", Unit::Runs, self.len() as u64);
        let JsonlOptions { by_step, compact, .. } = *options;
        let is_compressed = |index: usize| self.entry(index).is_ok_and(|entry| entry.flags != 0);
        let mut indices = (0..self.len()).map(Ok);
        // A small compressed entry can hold many steps, and a decoded step takes ten times the memory of an
        // encoded one.
        let size = |&index: &usize| self.payload_len(index) * if is_compressed(index) { 10 } else { 1 };
        let next_window = || {
            cancel.check()?;
            fill_window(&mut indices, WINDOW_RUNS, WINDOW_BYTES, size)
        };
        // Returns the lines of a run and the number of its steps; `None` for a tombstone.
        let work = |index: usize| -> Result<Option<(Vec<u8>, u64)>> {
            let entry = self.entry(index)?;
            if entry.is_tombstone() {
                return Ok(None);
            }
            let file = self.get_slice(index)?;
            let run = file.decode().map_err(|error| self.about(error, index, &entry))?;
            let text = lines_of(&run, index as u64, crc32c::crc32c(&file.bytes), by_step, compact)?;
            Ok(Some((text, run.num_steps() as u64)))
        };
        let mut report = JsonlReport::default();
        let take = |lines: Result<Option<(Vec<u8>, u64)>>| {
            match lines {
                Ok(None) => {}
                Ok(Some((text, num_steps))) => {
                    out.write_all(&text)?;
                    report.num_runs += 1;
                    report.num_steps += num_steps;
                    report.num_bytes += text.len() as u64;
                }
                Err(error) => report.errors.push(error),
            }
            progress.advance(1);
            cancel.check()
        };
        in_order(&pool, next_window, work, take)?;
        out.flush()?;
        Ok(report)
    }
}
