//! Discovery of runs, in order: the files that may hold runs, by their content, and the runs in them.

use crate::error::{Error, Result};
use crate::format::macroxue::meta_of;
use crate::format::{
    Container, ContainerKind, Content, FoundFile, PREFIX_LEN, PackReader, RunFormat, SourceFormat, files_in,
    fill_window, is_archive, is_companion, is_named_as_unfinished, open_container,
};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
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
        let (candidates, pending): (CandidateFiles<'a>, Vec<PendingRuns>) = match self {
            RunInput::Paths(paths) => (candidates(paths)?, Vec::new()),
            RunInput::Open { runs, .. } => (Box::new(std::iter::empty()), vec![PendingRuns::Runs(Arc::clone(runs), 0)]),
        };
        let (wholes, warnings, ignored) = (HashSet::new(), Vec::new(), Vec::new());
        Ok(RunDiscovery { candidates, pending, wholes, warnings, ignored, is_strict: false })
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
        let _work = ReportedWork::begin(progress, what, Unit::Bytes, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| match self {
                RunInput::Paths(paths) => measure(paths, progress, cancel, &finished),
                RunInput::Open { runs, .. } => {
                    progress.expect((0..runs.source.num_runs()).map(|index| runs.source.num_bytes(index)).sum());
                }
            });
            let outcome = work();
            finished.store(true, Ordering::Relaxed);
            outcome
        })
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

impl RunDiscovery<'_> {
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
        // The meta file identifies the rows of a log, so their first bytes may be anything.
        let name = path.to_string_lossy();
        let is_log = (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
            && matches!(first_content(&meta_of(&path)), Content::Container(ContainerKind::LogMeta));
        if is_companion(&path) || is_log {
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

/// The given files and the files in the given folders, in order, each with the kind of its content.
type CandidateFiles<'a> = Box<dyn Iterator<Item = Result<(FoundFile, Content)>> + Send + 'a>;

/// Returns the files of `paths`. Fails if a path does not exist.
fn candidates(paths: &[PathBuf]) -> Result<CandidateFiles<'_>> {
    for path in paths {
        std::fs::metadata(path).map_err(|source| Error::io(path, source))?;
        if is_archive(path) {
            let found = format!("an archive, {}", path.display());
            return Err(Error::argument("paths", "files and folders of runs", found));
        }
    }
    let files = paths.iter().flat_map(|path| files_in(path));
    Ok(Box::new(files.map(|file| {
        let file = file?;
        let content = content_of(&file);
        Ok((file, content))
    })))
}

/// Reports the total number of bytes to `progress`, while they are being read. Stops once `done` is set.
fn measure(paths: &[PathBuf], progress: &dyn Progress, cancel: &CancellationToken, done: &AtomicBool) {
    let Ok(mut files) = candidates(paths) else { return };
    let mut sum = 0;
    while !done.load(Ordering::Relaxed) && cancel.check().is_ok() {
        // The reading thread reports errors of folders.
        let Some(Ok((file, content))) = files.next() else { break };
        if file.named || !matches!(content, Content::Other) {
            sum += file.num_bytes();
        }
        if sum >= 1 << 20 {
            progress.expect(std::mem::take(&mut sum));
        }
    }
    progress.expect(sum);
}

fn content_of(file: &FoundFile) -> Content {
    if file.unfinished {
        return Content::Other;
    }
    if file.is_named_as_run() && !file.named
        || file.problem.is_some()
        || file.metadata.as_ref().is_some_and(|metadata| !metadata.is_file())
    {
        // The content is checked when the file is read.
        return Content::Run;
    }
    match (first_content(&file.path), ContainerKind::of_name(&file.path)) {
        // The name belongs to a format, but the content is damaged. Opening the file reports the error.
        (Content::Other, Some(kind)) => Content::Container(kind),
        (content, _) => content,
    }
}

/// Returns the type of a file by its first bytes.
///
/// An unreadable file counts as a run, so that reading it reports the error.
fn first_content(path: &Path) -> Content {
    let mut prefix = Vec::with_capacity(PREFIX_LEN);
    match File::open(path).and_then(|file| file.take(PREFIX_LEN as u64).read_to_end(&mut prefix)) {
        Ok(_) => Content::of(&prefix),
        Err(_) => Content::Run,
    }
}
