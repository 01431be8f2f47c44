//! Discovery of runs, in order. They come from run files, and from files and folders of
//! many runs.

use super::candidate_files::{CandidateFiles, candidates, measure};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{
    Container, ContainerKind, Content, FoundFile, PackReader, RunFormat, SourceFormat, fill_window, is_companion,
    is_named_as_unfinished, open_container,
};
use crate::progress::{Progress, Unit};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A run to be read.
pub(crate) struct DiscoveredRun {
    /// The file, or the folder of a dataset or session.
    pub(crate) path: PathBuf,
    /// The number of bytes that the run takes in its file.
    pub(crate) num_bytes: u64,
    pub(crate) place: RunPlace,
}

/// The place of a run in its file.
pub(crate) enum RunPlace {
    /// The run is the whole file.
    File,
    /// The run is one of several in a container.
    Of { runs: Arc<Container>, index: usize },
    /// The file of the run cannot be read.
    Failed(Option<Error>),
}

/// The source of runs.
#[derive(Clone, Copy)]
pub(crate) enum RunInput<'a> {
    /// Files and folders in any format.
    Paths(&'a [PathBuf]),
    /// Runs that are open already.
    Open {
        runs: &'a Arc<Container>,
        /// For the runs of a recording: the archive held none of them when it had assigned this many run ids.
        recorded_since: Option<u64>,
    },
}

impl<'a> RunInput<'a> {
    pub(crate) fn sources(self) -> Result<RunDiscovery<'a>> {
        match self {
            RunInput::Paths(paths) => Ok(RunDiscovery::over(candidates(paths)?, Vec::new())),
            RunInput::Open { runs, .. } => {
                Ok(RunDiscovery::over(Box::new(std::iter::empty()), vec![PendingRuns::Runs(Arc::clone(runs), 0)]))
            }
        }
    }

    /// Reports `work`, which reads the runs, to `progress`. Another thread meanwhile determines the total number of
    /// bytes.
    pub(crate) fn report<T>(
        self,
        what: &'static str,
        progress: &dyn Progress,
        cancel: &CancellationToken,
        work: impl FnOnce() -> T,
    ) -> T {
        let finished = AtomicBool::new(false);
        progress.begin(what, Unit::Bytes, 0);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| match self {
                RunInput::Paths(paths) => measure(paths, progress, cancel, &finished),
                RunInput::Open { runs, .. } => {
                    progress.expect((0..runs.source.num_runs()).map(|index| runs.source.num_bytes(index)).sum());
                }
            });
            let outcome = work();
            finished.store(true, Ordering::Relaxed);
            outcome
        });
        progress.end();
        outcome
    }
}

/// Returns the runs of a pack.
pub(crate) fn runs_of_pack(pack: &PackReader) -> Arc<Container> {
    let (source, path) = (Box::new(pack.clone()), pack.path().unwrap_or(Path::new("")).to_path_buf());
    Arc::new(Container { source, path, format: SourceFormat::File(RunFormat::A2run2), session: None })
}

/// The runs of the given files and folders, in order.
///
/// Runs are found on demand: memory holds only the names of one folder and of the folders above it. An entry of
/// a folder that cannot be read, such as a broken link, counts as a run too: reading it returns the error.
pub(crate) struct RunDiscovery<'a> {
    candidates: CandidateFiles<'a>,
    /// Runs that come before all candidates. The last element is next.
    pending: Vec<PendingRuns>,
    /// Containers of several files that were opened through one of the files.
    wholes: HashSet<PathBuf>,
    /// Problems in opened files that do not affect the files' runs.
    pub(crate) warnings: Vec<String>,
    /// The files skipped so far because their content is unknown.
    pub(crate) ignored: Vec<PathBuf>,
    /// Whether a file of unknown content is an error.
    pub(crate) is_strict: bool,
}

enum PendingRuns {
    Source(DiscoveredRun),
    /// The runs of a file, from an index on.
    Runs(Arc<Container>, usize),
}

impl PendingRuns {
    fn failed(path: PathBuf, error: Error) -> PendingRuns {
        let num_bytes = path.metadata().map_or(0, |metadata| metadata.len());
        PendingRuns::Source(DiscoveredRun { path, num_bytes, place: RunPlace::Failed(Some(error)) })
    }
}

impl DiscoveredRun {
    /// Returns the run's index in its container, if it has one.
    pub(crate) fn index(&self) -> Option<usize> {
        match self.place {
            RunPlace::Of { index, .. } => Some(index),
            _ => None,
        }
    }

    /// Returns the number of steps of the whole game, if the run's container states it.
    pub(crate) fn game_steps(&self) -> Option<u32> {
        match &self.place {
            RunPlace::Of { runs, index } => runs.source.facts(*index).num_steps,
            _ => None,
        }
    }
}

impl<'a> RunDiscovery<'a> {
    fn over(candidates: CandidateFiles<'a>, pending: Vec<PendingRuns>) -> Self {
        let (wholes, warnings, ignored) = (HashSet::new(), Vec::new(), Vec::new());
        RunDiscovery { candidates, pending, wholes, warnings, ignored, is_strict: false }
    }

    /// Returns the next runs, of about `num_bytes` bytes together; at least one, unless there are no more.
    pub(crate) fn window(&mut self, num_bytes: u64, cancel: &CancellationToken) -> Result<Vec<DiscoveredRun>> {
        let sources = std::iter::from_fn(|| self.next(cancel).transpose());
        // Opening and closing a file costs about as much as reading 4 KiB.
        fill_window(sources, usize::MAX, num_bytes, |source| source.num_bytes + 4096)
    }

    fn next(&mut self, cancel: &CancellationToken) -> Result<Option<DiscoveredRun>> {
        loop {
            cancel.check()?;
            match self.pending.pop() {
                Some(PendingRuns::Source(source)) => return Ok(Some(source)),
                Some(PendingRuns::Runs(runs, index)) => {
                    if index >= runs.source.num_runs() {
                        continue;
                    }
                    self.pending.push(PendingRuns::Runs(Arc::clone(&runs), index + 1));
                    if runs.source.is_absent(index) {
                        continue;
                    }
                    let (path, num_bytes) = (runs.path.clone(), runs.source.num_bytes(index));
                    return Ok(Some(DiscoveredRun { path, num_bytes, place: RunPlace::Of { runs, index } }));
                }
                None => {
                    let Some((file, content)) = self.candidates.next().transpose()? else { return Ok(None) };
                    let num_bytes = file.num_bytes();
                    let FoundFile { path, named, problem, .. } = file;
                    if problem.is_some() {
                        return Ok(Some(DiscoveredRun { path, num_bytes, place: RunPlace::Failed(problem) }));
                    }
                    match content {
                        Content::Container(kind) => self.open(path, kind, named, cancel),
                        Content::Other if !named => self.ignore(path),
                        Content::Run | Content::Other => {
                            return Ok(Some(DiscoveredRun { path, num_bytes, place: RunPlace::File }));
                        }
                    }
                }
            }
        }
    }

    /// Skips a file of unknown content.
    fn ignore(&mut self, path: PathBuf) {
        if is_companion(&path) {
            return;
        }
        if self.is_strict && !is_named_as_unfinished(&path) {
            let error = unknown(&path);
            return self.pending.push(PendingRuns::failed(path, error));
        }
        self.ignored.push(path);
    }

    /// Returns whether this container of several files was opened before, through another of the files. Marks it as
    /// opened.
    fn is_done(&mut self, whole: &Path) -> bool {
        !self.wholes.insert(whole.canonicalize().unwrap_or_else(|_| whole.to_path_buf()))
    }

    /// Makes the runs of the container that a file belongs to the next ones.
    fn open(&mut self, path: PathBuf, kind: ContainerKind, named: bool, cancel: &CancellationToken) {
        let opened = match kind.container_of(&path) {
            Some(container) if kind.has_parts() && self.is_done(&container) => return,
            Some(container) => open_container(&container, kind, cancel),
            None => Ok(None),
        };
        match opened {
            Ok(Some(container)) => {
                self.warnings.extend(container.source.warning());
                self.pending.push(PendingRuns::Runs(Arc::new(container), 0));
            }
            Ok(None) if named => {
                let error = unknown(&path);
                self.pending.push(PendingRuns::failed(path, error));
            }
            Ok(None) => self.ignore(path),
            Err(error) => self.pending.push(PendingRuns::failed(path, error)),
        }
    }
}

fn unknown(path: &Path) -> Error {
    Error::decode(0, "content", "runs in a known format", "none").with_path(path)
}
