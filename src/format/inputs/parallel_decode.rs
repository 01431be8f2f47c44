//! Runs of files and folders, decoded in parallel and returned in order.

use super::read_source::{RunAndFile, decode_alone};
use super::rejected::Rejected;
use super::run_discovery::{DiscoveredRun, RunDiscovery, RunInput, RunPlace};
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::workers::pool;
use rayon::prelude::*;
use std::path::PathBuf;

/// The number of input bytes per thread that are decoded at once.
const WINDOW_BYTES: u64 = 4 << 20;

/// Decodes the next runs on all threads. Returns none at the end.
pub(crate) fn decode_next<T: Send>(
    sources: &mut RunDiscovery<'_>,
    window_bytes: u64,
    progress: &dyn Progress,
    cancel: &CancellationToken,
    decode_one: impl Fn(&DiscoveredRun) -> Result<T> + Sync,
) -> Result<Vec<(DiscoveredRun, Result<T>)>> {
    let window = sources.window(window_bytes, cancel)?;
    sources.warnings.drain(..).for_each(|text| progress.warn(&text));
    let decode = |mut source: DiscoveredRun| {
        let outcome = cancel.check().and_then(|()| match &mut source.place {
            RunPlace::Failed(error) => {
                let error = error.take().unwrap_or_else(|| Error::other("a file that cannot be read"));
                Err(error.with_path(&source.path))
            }
            _ => decode_one(&source),
        });
        progress.advance(source.num_bytes);
        (source, outcome)
    };
    Ok(window.into_par_iter().map(decode).collect())
}

/// A run that was read.
pub(crate) struct ReadRun {
    /// The file or folder of the run.
    pub(crate) path: PathBuf,
    /// Its index in its container, if it has one.
    pub(crate) index: Option<usize>,
    /// The number of steps of the whole game, if its container states it.
    pub(crate) game_steps: Option<u32>,
    /// `None` for a run that was skipped.
    pub(crate) run: Option<RunAndFile>,
}

/// Reads runs and passes them to `take`, in order, as many at once as were decoded in parallel. `take` may use the same
/// threads.
///
/// Runs come with their file if `with_files` is set. If `skip_errors` is set, `take` gets no run for one that cannot be
/// read. Returns the errors of the skipped runs and files.
///
/// # Errors
/// The first error of `take`; unless `skip_errors` is set, the first error of a run or a file.
pub(crate) fn each_window(
    input: RunInput<'_>,
    workers: Option<usize>,
    with_files: bool,
    skip_errors: bool,
    progress: &dyn Progress,
    cancel: &CancellationToken,
    mut take: impl FnMut(Vec<ReadRun>) -> Result<()> + Send,
) -> Result<Vec<Rejected>> {
    let mut sources = input.sources()?;
    let threads = pool("read", workers)?;
    let mut errors = Vec::new();
    let outcome = input.report("read", progress, cancel, || {
        let window_bytes = WINDOW_BYTES * threads.current_num_threads() as u64;
        threads.install(|| {
            loop {
                let decode_one = |source: &DiscoveredRun| decode_alone(source, with_files);
                let decoded = decode_next(&mut sources, window_bytes, progress, cancel, decode_one)?;
                if decoded.is_empty() {
                    return Ok(());
                }
                let (mut window, mut failed) = (Vec::with_capacity(decoded.len()), Ok(()));
                for (source, run) in decoded {
                    let run = match run {
                        Ok(run) => Some(run),
                        Err(error) if !skip_errors || matches!(error.kind(), ErrorKind::Cancelled) => {
                            failed = Err(error);
                            break;
                        }
                        Err(error) => {
                            errors.push(Rejected::new(source.path.clone(), error));
                            None
                        }
                    };
                    let (index, game_steps) = (source.index(), source.game_steps());
                    window.push(ReadRun { path: source.path, index, game_steps, run });
                }
                take(window)?;
                failed?;
            }
        })
    });
    outcome.map(|()| errors)
}
