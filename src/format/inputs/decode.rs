//! Runs of files and folders: reading one, and reading many in parallel, in order.

use super::run_discovery::{DiscoveredRun, RunDiscovery, RunInput, RunPlace};
use crate::error::{Error, ErrorKind, Result};
use crate::format::detect::ContainerKind;
use crate::format::run_file::{MAX_RUN_BYTES, RunFormat, decode_file, decode_run};
use crate::format::source::SourceRun;
use crate::run::Run;
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use crate::system::workers::pool;
use rayon::prelude::*;
use serde::{Serialize, Serializer};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The number of input bytes per thread that are decoded at once.
const WINDOW_BYTES: u64 = 4 << 20;

/// A run, with the bytes of its run file if it has one and the caller asked for it.
type RunAndFile = (Run, Option<(RunFormat, Vec<u8>)>);

/// Reads a run without an archive.
fn decode_alone(source: &DiscoveredRun, with_file: bool) -> Result<RunAndFile> {
    let decoded = read_source(source).and_then(|run| match run {
        SourceRun::File(bytes) => {
            let (run, format) = decode_bytes(&bytes, source)?;
            Ok((run, with_file.then(|| (format, bytes.into_owned()))))
        }
        SourceRun::Run(run) => Ok((run, None)),
    });
    decoded.map_err(|error| error.with_path(&source.path))
}

/// Reads the bytes of a run file, or a run of a container.
pub(crate) fn read_source(source: &DiscoveredRun) -> Result<SourceRun<'_>> {
    if let RunPlace::Of { runs, index } = &source.place {
        return runs.source.read(*index);
    }
    let mut bytes = Vec::with_capacity(source.num_bytes.min(MAX_RUN_BYTES) as usize + 1);
    File::open(&source.path).and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))?;
    Ok(SourceRun::File(bytes.into()))
}

/// Decodes the bytes of a run file.
pub(crate) fn decode_bytes(bytes: &[u8], source: &DiscoveredRun) -> Result<(Run, RunFormat)> {
    let decoded = match source.place {
        RunPlace::File => decode_file(bytes),
        _ => decode_run(bytes),
    };
    decoded.map_err(|error| match &source.place {
        RunPlace::File if ContainerKind::of(bytes).is_some() => {
            let expected = "one run, as the extension says";
            Error::decode(0, "content", expected, "a file of many runs; rename it")
        }
        _ => in_source(error, source),
    })
}

/// Adds the place of the run to an error, if the run is in a container.
pub(crate) fn in_source(error: Error, source: &DiscoveredRun) -> Error {
    match &source.place {
        RunPlace::Of { index, runs } => runs.source.locate(*index, error),
        _ => error,
    }
}

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

/// A run or a whole file that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The file; the folder of a dataset, a session or a pack if no single file is wrong.
    pub path: PathBuf,
    /// The reason.
    pub error: Error,
}

impl Rejected {
    /// Takes the path of the error. `source` is the path of the run, if the error has none.
    pub fn new(source: PathBuf, error: Error) -> Rejected {
        Rejected { path: error.path().map_or(source, Path::to_path_buf), error }
    }

    /// Returns the reason in one line, without the path.
    #[must_use]
    pub fn message(&self) -> String {
        self.error.message()
    }
}

impl Serialize for Rejected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.error.serialize_with(Some(&self.path), serializer)
    }
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
                    let (index, game_steps) = match &source.place {
                        RunPlace::Of { runs, index } => (Some(*index), runs.source.facts(*index).num_steps),
                        _ => (None, None),
                    };
                    window.push(ReadRun { path: source.path, index, game_steps, run });
                }
                take(window)?;
                failed?;
            }
        })
    });
    outcome.map(|()| errors)
}
