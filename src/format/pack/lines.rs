//! Conversion of a pack to JSON Lines.

use super::PackReader;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::jsonl::{JsonlOptions, put_run, put_steps, run_uuid};
use crate::format::ordered::{fill_window, in_order};
use crate::progress::{Progress, Unit};
use crate::publish::{Destination, Staged, is_same_file};
use crate::run::Run;
use crate::workers;
use rayon::prelude::*;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::vec;

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

/// Bytes of run files that are decoded per window.
const DECODE_BYTES: u64 = 4 << 20;
const DECODE_RUNS: usize = 256;
/// The maximum steps per piece of work.
const PIECE_STEPS: usize = 1024;
/// Steps per window, which give some megabytes of text.
const WINDOW_STEPS: u64 = 1 << 14;
/// Longer buffers are not reused.
const SPARE_BYTES: usize = 1 << 20;

/// A range of steps of a run, formatted as one piece of work.
struct Piece {
    run: Arc<Decoded>,
    steps: Range<usize>,
}

struct Decoded {
    run: Run,
    index: u64,
    uuid: String,
}

/// The text of a piece of work.
struct PieceText {
    text: Vec<u8>,
    num_steps: u64,
    /// Whether the text ends with the run's last line.
    ends_run: bool,
}

impl PackReader {
    /// Writes the runs in order as JSON Lines. [`JsonlOptions`] chooses the layout. Memory is bounded, regardless
    /// of the pack's size.
    ///
    /// The file appears completely or not at all, and replaces an existing one. A link is followed. If `path` is
    /// a pipe or a device, the lines are written into it.
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
        match Destination::of(path.as_ref())? {
            Destination::File { path, folder } => {
                if self.path().is_some_and(|own| is_same_file(own, &path)) {
                    return Err(Error::argument("path", "a file other than the pack", path.display()));
                }
                let mut staged = Staged::new(&folder)?;
                let report =
                    self.write_jsonl(&mut staged, options, progress, cancel).map_err(|error| error.with_path(&path))?;
                staged.replace(&path)?;
                Ok(report)
            }
            Destination::Stream(path) => {
                let mut stream = File::options().write(true).open(&path).map_err(|source| Error::io(&path, source))?;
                self.write_jsonl(&mut stream, options, progress, cancel).map_err(|error| error.with_path(path))
            }
        }
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
        let workers = if options.parallel { options.workers } else { Some(1) };
        let pool = workers::pool("jsonl", workers)?;
        progress.begin("writing lines", Unit::Runs, self.len() as u64);
        let report = self.write_lines(out, options, &pool, progress, cancel);
        progress.end();
        report
    }

    fn write_lines(
        &self,
        out: &mut dyn Write,
        options: &JsonlOptions,
        pool: &rayon::ThreadPool,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<JsonlReport> {
        let JsonlOptions { by_step, compact, .. } = *options;
        let mut errors = Vec::new();
        let mut pieces =
            Pieces { reader: self, indices: 0..self.len(), by_step, decoded: Vec::new().into_iter(), rest: None };
        let next_window = || {
            cancel.check()?;
            let pieces = std::iter::from_fn(|| pieces.next(pool, &mut errors, progress, cancel).transpose());
            // A run without steps still costs time.
            fill_window(pieces, usize::MAX, WINDOW_STEPS, |piece| piece.steps.len() as u64 + 1)
        };
        let spare = Mutex::new(Vec::new());
        let work = |Piece { run, steps }: Piece| {
            let Decoded { run, index, uuid } = &*run;
            // Reuses buffers that were written: allocating fresh memory costs as much as the formatting.
            let mut text: Vec<u8> = spare.lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default();
            let (num_steps, ends_run) = (steps.len() as u64, steps.end == run.num_steps());
            if by_step {
                put_steps(&mut text, run, steps, *index, uuid, compact)?;
            } else {
                put_run(&mut text, run, *index, uuid, compact)?;
            }
            Ok(PieceText { text, num_steps, ends_run })
        };
        let mut report = JsonlReport::default();
        let take = |lines: Result<PieceText>| {
            let mut lines = lines?;
            out.write_all(&lines.text)?;
            report.num_runs += u64::from(lines.ends_run);
            report.num_steps += lines.num_steps;
            report.num_bytes += lines.text.len() as u64;
            progress.advance(u64::from(lines.ends_run));
            if lines.text.capacity() <= SPARE_BYTES
                && let Ok(mut spare) = spare.lock()
            {
                lines.text.clear();
                spare.push(lines.text);
            }
            cancel.check()
        };
        in_order(pool, next_window, work, take)?;
        out.flush()?;
        report.errors = errors;
        Ok(report)
    }
}

/// Splits the runs of a pack into pieces of similar size.
struct Pieces<'a> {
    reader: &'a PackReader,
    indices: Range<usize>,
    by_step: bool,
    decoded: vec::IntoIter<Arc<Decoded>>,
    /// The rest of a run that is being split.
    rest: Option<Piece>,
}

impl Pieces<'_> {
    fn next(
        &mut self,
        pool: &rayon::ThreadPool,
        errors: &mut Vec<Error>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Option<Piece>> {
        let piece = match self.rest.take() {
            Some(piece) => piece,
            None => loop {
                match self.decoded.next() {
                    Some(run) => break Piece { steps: 0..run.run.num_steps(), run },
                    None if !self.decode(pool, errors, progress, cancel)? => return Ok(None),
                    None => {}
                }
            },
        };
        let Piece { run, steps } = piece;
        if !self.by_step || steps.len() <= PIECE_STEPS {
            return Ok(Some(Piece { run, steps }));
        }
        let middle = steps.start + PIECE_STEPS;
        self.rest = Some(Piece { run: Arc::clone(&run), steps: middle..steps.end });
        Ok(Some(Piece { run, steps: steps.start..middle }))
    }

    /// Decodes the next runs. Returns `false` after the last one.
    fn decode(
        &mut self,
        pool: &rayon::ThreadPool,
        errors: &mut Vec<Error>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<bool> {
        cancel.check()?;
        let window = self.reader.window(&mut self.indices, DECODE_BYTES, DECODE_RUNS);
        if window.is_empty() {
            return Ok(false);
        }
        let decode = |&index: &usize| {
            if self.reader.entry(index).is_ok_and(|entry| entry.is_tombstone()) {
                return None;
            }
            let decoded = self.reader.decode_with_crc(index).map(|(run, crc32c)| {
                let index = index as u64;
                Arc::new(Decoded { run, index, uuid: run_uuid(crc32c, index) })
            });
            Some(decoded)
        };
        let results: Vec<_> = pool.install(|| window.par_iter().map(decode).collect());
        let mut decoded = Vec::with_capacity(results.len());
        for result in results {
            match result {
                Some(Ok(run)) => decoded.push(run),
                Some(Err(error)) => {
                    errors.push(error);
                    progress.advance(1);
                }
                None => progress.advance(1),
            }
        }
        self.decoded = decoded.into_iter();
        Ok(true)
    }
}
