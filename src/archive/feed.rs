//! Runs from files and folders, decoded a window at a time.

use super::decode::{Outcome, RunAndFile, decode_alone};
use super::discover::{Part, Source, Sources, measure};
use crate::error::Result;
use crate::format::PackReader;
use crate::progress::{Progress, Unit, check};
use crate::workers::pool;
use rayon::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Input bytes per thread in a window.
const WINDOW_BYTES: u64 = 4 << 20;

/// Decodes the next sources on all threads; none if there are no more.
pub(super) fn decode<T: Send>(
    sources: &mut Sources<'_>,
    window_bytes: u64,
    progress: &dyn Progress,
    decode_one: impl Fn(&mut Source) -> Result<Outcome<T>> + Sync,
) -> Result<Vec<(Source, Result<T>)>> {
    loop {
        let window = sources.window(window_bytes, progress)?;
        let last = window.is_empty();
        let outcome_of = |mut source: Source| {
            let outcome = check(progress).and_then(|()| decode_one(&mut source));
            progress.advance(source.num_bytes);
            (source, outcome)
        };
        let outcomes: Vec<(Source, Result<Outcome<T>>)> = window.into_par_iter().map(outcome_of).collect();
        let mut decoded = Vec::with_capacity(outcomes.len());
        let mut outcomes = outcomes.into_iter();
        while let Some((source, outcome)) = outcomes.next() {
            match outcome {
                Ok(Outcome::Value(value)) => decoded.push((source, Ok(value))),
                Err(error) => decoded.push((source, Err(error))),
                Ok(Outcome::Container(kind)) => {
                    // Its runs come in its place, so what was read after it has to wait.
                    let rest: Vec<Source> = outcomes.by_ref().map(unread).collect();
                    progress.expect(source.num_bytes + rest.iter().map(|source| source.num_bytes).sum::<u64>());
                    sources.put_back(source, kind, rest);
                }
            }
        }
        if last || !decoded.is_empty() {
            return Ok(decoded);
        }
    }
}

/// A source as it was before it was read.
fn unread<T>((mut source, outcome): (Source, Result<T>)) -> Source {
    if let (Part::Failed(reason), Err(error)) = (&mut source.part, outcome) {
        *reason = Some(error);
    }
    source
}

/// Where runs are read from.
pub(crate) enum RunsOf<'a> {
    /// Files and folders, whatever their formats.
    Paths(&'a [PathBuf]),
    /// A pack that is open.
    Pack(&'a PackReader),
}

/// Reads runs and hands them on in order, each with its index in its source of many, and with its file if asked.
///
/// # Errors
/// The first of a run or of a file, and those of `take`.
pub(crate) fn each_run(
    runs: &RunsOf<'_>,
    workers: Option<usize>,
    with_files: bool,
    progress: &dyn Progress,
    mut take: impl FnMut(Option<usize>, RunAndFile) -> Result<()> + Send,
) -> Result<()> {
    let mut sources = match runs {
        RunsOf::Paths(paths) => Sources::new(paths, None)?,
        RunsOf::Pack(pack) => Sources::of_pack((*pack).clone()),
    };
    let threads = pool("read", workers)?;
    let finished = AtomicBool::new(false);
    progress.begin("read", Unit::Bytes, 0);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| match runs {
            RunsOf::Paths(paths) => measure(paths, None, progress, &finished),
            RunsOf::Pack(pack) => progress.expect(pack.num_bytes()),
        });
        let window_bytes = WINDOW_BYTES * threads.current_num_threads() as u64;
        let outcome = threads.install(|| {
            loop {
                let decode_one = |source: &mut Source| decode_alone(source, with_files);
                let decoded = decode(&mut sources, window_bytes, progress, decode_one)?;
                if decoded.is_empty() {
                    return Ok(());
                }
                decoded.into_iter().try_for_each(|(source, run)| take(source.index(), run?))?;
            }
        });
        finished.store(true, Ordering::Relaxed);
        outcome
    });
    progress.end();
    outcome
}
