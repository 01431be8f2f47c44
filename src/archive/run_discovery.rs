//! Discovery of the runs that an ingest reads, in order. They come from run files, and from files and folders of
//! many runs.

use super::candidate_files::{CandidateFile, CandidateFiles, FileState, SeenFiles, measure};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{
    Container, ContainerKind, Content, Opened, PackReader, RunFormat, SourceFormat, fill_window, is_companion,
    is_named_as_unfinished, open_container, open_folder,
};
use crate::progress::Progress;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A run to be read.
pub(super) struct DiscoveredRun {
    /// The file, or the folder of a dataset or session.
    pub(super) path: PathBuf,
    /// The number of bytes that the run takes in its file.
    pub(super) num_bytes: u64,
    pub(super) place: RunPlace,
    /// The file, if this is its last run.
    pub(super) last_of: Option<FileState>,
}

/// The place of a run in its file.
pub(super) enum RunPlace {
    /// The run is the whole file.
    File,
    /// The run is one of several in a container.
    Of { runs: Arc<Container>, index: usize },
    /// The file of the run cannot be read.
    Failed(Option<Error>),
}

/// The input of an ingest.
#[derive(Clone, Copy)]
pub(super) enum IngestInput<'a> {
    /// Files and folders in any format.
    Paths(&'a [PathBuf]),
    /// Runs of a recording. The archive held none of them when it had assigned `since` run ids.
    Recorded { runs: &'a Arc<Container>, since: u64 },
}

impl<'a> IngestInput<'a> {
    pub(super) fn sources(self, seen: Option<&'a SeenFiles>) -> Result<RunDiscovery<'a>> {
        match self {
            IngestInput::Paths(paths) => RunDiscovery::new(paths, seen),
            IngestInput::Recorded { runs, .. } => Ok(RunDiscovery::of_many(Arc::clone(runs), self.num_bytes())),
        }
    }

    /// Reports the total number of bytes to `progress`, while they are being read.
    pub(super) fn measure(
        self,
        seen: Option<&SeenFiles>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
        done: &AtomicBool,
    ) {
        match self {
            IngestInput::Paths(paths) => measure(paths, seen, progress, cancel, done),
            IngestInput::Recorded { .. } => progress.expect(self.num_bytes()),
        }
    }

    fn num_bytes(self) -> u64 {
        match self {
            IngestInput::Paths(_) => 0,
            IngestInput::Recorded { runs, .. } => {
                (0..runs.source.num_runs()).map(|index| runs.source.num_bytes(index)).sum()
            }
        }
    }
}

/// The runs of the given files and folders, in order.
///
/// Runs are found on demand: memory holds only the names of one folder and of the folders above it. An entry of
/// a folder that cannot be read, such as a broken link, counts as a run too: reading it returns the error.
pub(super) struct RunDiscovery<'a> {
    candidates: CandidateFiles<'a>,
    seen: Option<&'a SeenFiles>,
    /// Runs that come before all candidates. The last element is next.
    pending: Vec<PendingRuns>,
    /// Runs of several files that were opened through one of these files.
    wholes: HashSet<PathBuf>,
    /// A folder, and the names of the row files to which its logs refer.
    logs: Option<(PathBuf, HashSet<OsString>)>,
    /// Files that need not be read: other files of runs in `wholes`, and files without runs.
    pub(super) passed: Vec<FileState>,
    /// Problems in opened files that do not affect the files' runs.
    pub(super) warnings: Vec<String>,
    /// The files skipped so far because their content is unknown.
    pub(super) ignored: Vec<PathBuf>,
    /// Whether a file of unknown content is an error.
    is_strict: bool,
    /// The number of files skipped so far because they have not changed since they were last read.
    pub(super) unchanged: u64,
}

enum PendingRuns {
    Source(DiscoveredRun),
    /// The runs of a file, from an index on.
    Runs(FileState, Arc<Container>, usize),
    /// A file whose content does not match its name.
    Renamed(FileState, ContainerKind),
}

impl PendingRuns {
    fn failed(file: FileState, error: Error) -> PendingRuns {
        PendingRuns::Source(DiscoveredRun::file(file, RunPlace::Failed(Some(error))))
    }
}

impl DiscoveredRun {
    /// Returns the run's index in its container, if it has one.
    pub(super) fn index(&self) -> Option<usize> {
        match self.place {
            RunPlace::Of { index, .. } => Some(index),
            _ => None,
        }
    }

    /// Returns the number of steps of the whole game, if the run's container states it.
    pub(super) fn game_steps(&self) -> Option<u32> {
        match &self.place {
            RunPlace::Of { runs, index } => runs.source.facts(*index).num_steps,
            _ => None,
        }
    }

    fn file(file: FileState, place: RunPlace) -> DiscoveredRun {
        DiscoveredRun { path: file.path.clone(), num_bytes: file.num_bytes, place, last_of: Some(file) }
    }
}

impl<'a> RunDiscovery<'a> {
    /// Returns the runs in `paths`. Fails if a path does not exist.
    pub(super) fn new(paths: &'a [PathBuf], seen: Option<&'a SeenFiles>) -> Result<RunDiscovery<'a>> {
        let candidates = CandidateFiles::new(paths)?;
        Ok(RunDiscovery::over(candidates, seen, Vec::new()))
    }

    /// Returns the runs of a pack.
    pub(super) fn of_pack(pack: PackReader) -> RunDiscovery<'a> {
        let (path, num_bytes) = (pack.path().unwrap_or(Path::new("")).to_path_buf(), pack.num_bytes());
        let format = SourceFormat::File(RunFormat::A2run2);
        RunDiscovery::of_many(Container { source: Box::new(pack), path, format, session: None }.into(), num_bytes)
    }

    /// Sets whether a file of unknown content is an error.
    pub(super) fn strict(mut self, is_strict: bool) -> Self {
        self.is_strict = is_strict;
        self
    }

    /// Returns runs that are open already, of about `num_bytes` bytes together.
    pub(super) fn of_many(runs: Arc<Container>, num_bytes: u64) -> RunDiscovery<'a> {
        let file = FileState { path: runs.path.clone(), num_bytes, modified: None };
        let pending = vec![PendingRuns::Runs(file, runs, 0)];
        RunDiscovery::over(CandidateFiles::none(), None, pending)
    }

    fn over(candidates: CandidateFiles<'a>, seen: Option<&'a SeenFiles>, pending: Vec<PendingRuns>) -> Self {
        let (wholes, passed, warnings) = (HashSet::new(), Vec::new(), Vec::new());
        RunDiscovery {
            candidates,
            seen,
            pending,
            wholes,
            logs: None,
            passed,
            warnings,
            ignored: Vec::new(),
            is_strict: false,
            unchanged: 0,
        }
    }

    /// Returns the next runs, of about `num_bytes` bytes together; at least one, unless there are no more.
    pub(super) fn window(&mut self, num_bytes: u64, cancel: &CancellationToken) -> Result<Vec<DiscoveredRun>> {
        let sources = std::iter::from_fn(|| self.next(cancel).transpose());
        // Opening and closing a file costs about as much as reading 4 KiB.
        fill_window(sources, usize::MAX, num_bytes, |source| source.num_bytes + 4096)
    }

    /// Puts unused runs back, to be returned next. The runs of the renamed file come first, then the others.
    pub(super) fn put_back(&mut self, renamed: DiscoveredRun, kind: ContainerKind, rest: Vec<DiscoveredRun>) {
        self.pending.extend(rest.into_iter().rev().map(PendingRuns::Source));
        if let Some(file) = renamed.last_of {
            self.pending.push(PendingRuns::Renamed(file, kind));
        }
    }

    fn next(&mut self, cancel: &CancellationToken) -> Result<Option<DiscoveredRun>> {
        loop {
            cancel.check()?;
            match self.pending.pop() {
                Some(PendingRuns::Source(source)) => return Ok(Some(source)),
                Some(PendingRuns::Runs(file, runs, index)) => {
                    let num_runs = runs.source.num_runs();
                    let last = index + 1 >= num_runs;
                    if index >= num_runs {
                        self.passed.push(file);
                        continue;
                    }
                    if runs.source.is_absent(index) {
                        self.pending.push(PendingRuns::Runs(file, runs, index + 1));
                        continue;
                    }
                    let path = runs.path.clone();
                    let num_bytes = runs.source.num_bytes(index);
                    let place = RunPlace::Of { runs: Arc::clone(&runs), index };
                    let last_of = last.then(|| file.clone());
                    if !last {
                        self.pending.push(PendingRuns::Runs(file, runs, index + 1));
                    }
                    return Ok(Some(DiscoveredRun { path, num_bytes, place, last_of }));
                }
                Some(PendingRuns::Renamed(file, kind)) => self.open(file, kind, true, cancel),
                None => {
                    let Some(CandidateFile { file, content, named, problem }) = self.candidates.next(cancel)? else {
                        return Ok(None);
                    };
                    if self.seen.is_some_and(|seen| seen.has(&file)) {
                        self.unchanged += 1;
                        continue;
                    }
                    if problem.is_some() {
                        return Ok(Some(DiscoveredRun::file(file, RunPlace::Failed(problem))));
                    }
                    match content {
                        Content::Container(kind) => self.open(file, kind, named, cancel),
                        Content::Other if !named => self.ignore(file),
                        Content::Run | Content::Other => return Ok(Some(DiscoveredRun::file(file, RunPlace::File))),
                    }
                }
            }
        }
    }

    /// Skips a file of unknown content.
    fn ignore(&mut self, file: FileState) {
        if is_companion(&file.path) {
            return self.passed.push(file);
        }
        if self.is_strict && !is_named_as_unfinished(&file.path) {
            let error = unknown(&file.path);
            return self.pending.push(PendingRuns::failed(file, error));
        }
        self.ignored.push(file.path.clone());
        self.passed.push(file);
    }

    /// Returns whether a log in the same folder names this file of rows.
    fn is_named_by_a_log(&mut self, rows: &Path, kind: ContainerKind) -> bool {
        let (Some(folder), Some(name)) = (rows.parent(), rows.file_name()) else { return false };
        if self.logs.as_ref().is_none_or(|(of, _)| of != folder) {
            self.logs = Some((folder.to_path_buf(), kind.parts_named_in(folder)));
        }
        self.logs.as_ref().is_some_and(|(_, names)| names.contains(name))
    }

    /// Returns whether these runs of several files were opened before, through another of the files. Marks them
    /// as opened.
    fn is_done(&mut self, whole: &Path) -> bool {
        !self.wholes.insert(whole.canonicalize().unwrap_or_else(|_| whole.to_path_buf()))
    }

    /// Makes the runs of a container the next ones.
    fn open(&mut self, file: FileState, kind: ContainerKind, named: bool, cancel: &CancellationToken) {
        let opened = match open_container(&file.path, kind, cancel) {
            Ok(Opened::Folder(folder)) if self.is_done(&folder) => return self.passed.push(file),
            Ok(Opened::Folder(folder)) => open_folder(&folder),
            // The main file lies in the same folder and opens this one. In repeated ingests it may have been
            // read before this file existed.
            Ok(Opened::Part(_)) if !named && self.seen.is_none() => return self.passed.push(file),
            Ok(Opened::Part(whole)) if self.is_done(&whole) => return self.passed.push(file),
            Ok(Opened::Part(whole)) => match open_container(&whole, kind.main().unwrap_or(kind), cancel) {
                Ok(Opened::Container(container)) => Ok(Some(container)),
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            },
            Ok(Opened::Container(_))
                if (named || self.seen.is_some()) && kind.has_parts() && self.is_done(&file.path) =>
            {
                return self.passed.push(file);
            }
            Ok(Opened::Container(container)) => Ok(Some(container)),
            Err(_) if !named && kind.main().is_some() && self.is_named_by_a_log(&file.path, kind) => {
                return self.passed.push(file);
            }
            Ok(Opened::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        match opened {
            Ok(Some(container)) => {
                self.warnings.extend(container.source.warning());
                self.pending.push(PendingRuns::Runs(file, Arc::new(container), 0));
            }
            Ok(None) if named => {
                let error = unknown(&file.path);
                self.pending.push(PendingRuns::failed(file, error));
            }
            Ok(None) => self.ignore(file),
            Err(error) => self.pending.push(PendingRuns::failed(file, error)),
        }
    }
}

fn unknown(path: &Path) -> Error {
    Error::decode(0, "content", "runs in a known format", "none").with_path(path)
}
