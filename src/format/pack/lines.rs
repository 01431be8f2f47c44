//! A pack → JSON Lines.

use super::PackReader;
use crate::error::{Error, Result};
use crate::format::jsonl::{JsonlOptions, put_run, put_steps, run_uuid};
use crate::format::ordered::in_order;
use crate::progress::{Progress, Unit, check};
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

/// What became lines.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct JsonlReport {
    /// Runs that were written.
    pub num_runs: u64,
    /// Their steps.
    pub num_steps: u64,
    /// Bytes that were written.
    pub num_bytes: u64,
    /// Runs that could not be read and are left out. Tombstones are none.
    pub errors: Vec<Error>,
}

/// Bytes of run files that are decoded at a time.
const DECODE_BYTES: u64 = 4 << 20;
const DECODE_RUNS: usize = 256;
/// Steps whose lines are made in one piece.
const SHARD_STEPS: usize = 1024;
/// Steps whose lines are made at a time: some megabytes of text.
const WINDOW_STEPS: usize = 1 << 14;
/// A longer text is not kept to be filled again.
const SPARE_BYTES: usize = 1 << 20;

/// Steps of a run that become lines in one piece.
struct Shard {
    run: Arc<Decoded>,
    steps: Range<usize>,
}

struct Decoded {
    run: Run,
    index: u64,
    uuid: String,
}

/// The text of a shard.
struct Lines {
    text: Vec<u8>,
    num_steps: u64,
    /// Whether it has the last line of its run.
    ends_run: bool,
}

impl PackReader {
    /// Writes the runs as JSON Lines, in order, to a file that appears whole or not at all, in place of another of that name, or
    /// where a link of that name leads; or into the pipe or device that is there. [`JsonlOptions`] has the shapes. Memory is
    /// bounded, whatever the pack's size.
    ///
    /// A damaged run is left out and reported; the others keep their indices.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a bad number of workers,
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn to_jsonl(
        &self,
        path: impl AsRef<Path>,
        options: &JsonlOptions,
        progress: &dyn Progress,
    ) -> Result<JsonlReport> {
        match Destination::of(path.as_ref())? {
            Destination::File { path, folder } => {
                if self.path().is_some_and(|own| is_same_file(own, &path)) {
                    return Err(Error::argument("path", "another file than the pack", path.display()));
                }
                let mut staged = Staged::new(&folder)?;
                let report =
                    self.write_jsonl(&mut staged, options, progress).map_err(|error| error.with_path(&path))?;
                staged.replace(&path)?;
                Ok(report)
            }
            Destination::Stream(path) => {
                let mut stream = File::options().write(true).open(&path).map_err(|source| Error::io(&path, source))?;
                self.write_jsonl(&mut stream, options, progress).map_err(|error| error.with_path(path))
            }
        }
    }

    /// As [`PackReader::to_jsonl`], to anything that takes bytes.
    ///
    /// # Errors
    /// As there; lines may have been written then.
    pub fn write_jsonl(
        &self,
        out: &mut dyn Write,
        options: &JsonlOptions,
        progress: &dyn Progress,
    ) -> Result<JsonlReport> {
        let workers = if options.parallel { options.workers } else { Some(1) };
        let pool = workers::pool("jsonl", workers)?;
        progress.begin("writing lines", Unit::Runs, self.len() as u64);
        let report = self.write_lines(out, options, &pool, progress);
        progress.end();
        report
    }

    fn write_lines(
        &self,
        out: &mut dyn Write,
        options: &JsonlOptions,
        pool: &rayon::ThreadPool,
        progress: &dyn Progress,
    ) -> Result<JsonlReport> {
        let JsonlOptions { by_step, compact, .. } = *options;
        let mut errors = Vec::new();
        let mut shards =
            Shards { reader: self, indices: 0..self.len(), by_step, decoded: Vec::new().into_iter(), rest: None };
        let next_window = || {
            check(progress)?;
            shards.window(pool, &mut errors, progress)
        };
        let spare = Mutex::new(Vec::new());
        let work = |Shard { run, steps }: Shard| {
            let Decoded { run, index, uuid } = &*run;
            // Text that has been written makes room for more: fresh memory costs as much as the formatting.
            let mut text: Vec<u8> = spare.lock().ok().and_then(|mut spare| spare.pop()).unwrap_or_default();
            let (num_steps, ends_run) = (steps.len() as u64, steps.end == run.num_steps());
            if by_step {
                put_steps(&mut text, run, steps, *index, uuid, compact);
            } else {
                put_run(&mut text, run, *index, uuid, compact)?;
            }
            Ok(Lines { text, num_steps, ends_run })
        };
        let mut report = JsonlReport::default();
        let take = |lines: Result<Lines>| {
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
            check(progress)
        };
        in_order(pool, next_window, work, take)?;
        out.flush()?;
        report.errors = errors;
        Ok(report)
    }
}

/// A pack's runs in pieces of similar size.
struct Shards<'a> {
    reader: &'a PackReader,
    indices: Range<usize>,
    by_step: bool,
    decoded: vec::IntoIter<Arc<Decoded>>,
    /// What is left of a run.
    rest: Option<Shard>,
}

impl Shards<'_> {
    fn window(
        &mut self,
        pool: &rayon::ThreadPool,
        errors: &mut Vec<Error>,
        progress: &dyn Progress,
    ) -> Result<Vec<Shard>> {
        let mut window = Vec::new();
        let mut num_steps = 0;
        while num_steps < WINDOW_STEPS {
            let Some(shard) = self.next(pool, errors, progress)? else { break };
            // A run without steps takes time too.
            num_steps += shard.steps.len() + 1;
            window.push(shard);
        }
        Ok(window)
    }

    fn next(
        &mut self,
        pool: &rayon::ThreadPool,
        errors: &mut Vec<Error>,
        progress: &dyn Progress,
    ) -> Result<Option<Shard>> {
        let shard = match self.rest.take() {
            Some(shard) => shard,
            None => loop {
                match self.decoded.next() {
                    Some(run) => break Shard { steps: 0..run.run.num_steps(), run },
                    None if !self.decode(pool, errors, progress)? => return Ok(None),
                    None => {}
                }
            },
        };
        let Shard { run, steps } = shard;
        if !self.by_step || steps.len() <= SHARD_STEPS {
            return Ok(Some(Shard { run, steps }));
        }
        let middle = steps.start + SHARD_STEPS;
        self.rest = Some(Shard { run: Arc::clone(&run), steps: middle..steps.end });
        Ok(Some(Shard { run, steps: steps.start..middle }))
    }

    /// Decodes the next runs; `false` beyond the last.
    fn decode(&mut self, pool: &rayon::ThreadPool, errors: &mut Vec<Error>, progress: &dyn Progress) -> Result<bool> {
        check(progress)?;
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
