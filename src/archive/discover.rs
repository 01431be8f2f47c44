//! Which runs an ingest reads, in which order: those of run files, and those of files and folders of many.

use crate::error::{Error, Result};
use crate::format::{
    Container, ContainerKind, Content, FoundFile, Opened, PREFIX_LEN, PackReader, RunFormat, SourceFormat, files_in,
    has_ended, open_container, open_folder,
};
use crate::progress::{Progress, check};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// A run to read.
pub(super) struct Source {
    /// The file, or the folder of a dataset or session.
    pub(super) path: PathBuf,
    /// What it takes of its file.
    pub(super) num_bytes: u64,
    pub(super) part: Part,
    /// The file that has been read when this run has.
    pub(super) last_of: Option<FileState>,
}

/// Where in its file a run is.
pub(super) enum Part {
    /// It is the file.
    File,
    /// One of many.
    Of { runs: Arc<Container>, index: usize },
    /// Nowhere: what was to hold runs cannot be read.
    Failed(Option<Error>),
}

/// What to ingest.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// Files and folders, whatever their formats.
    Paths(&'a [PathBuf]),
    /// Runs of a recording. None of them was in the archive when it had given out `since` run ids.
    Recorded { runs: &'a Arc<Container>, since: u64 },
}

impl<'a> Input<'a> {
    pub(super) fn sources(self, seen: Option<&'a Seen>) -> Result<Sources<'a>> {
        match self {
            Input::Paths(paths) => Sources::new(paths, seen),
            Input::Recorded { runs, .. } => Ok(Sources::of_many(Arc::clone(runs), self.num_bytes())),
        }
    }

    /// Tells how much there is to read, while it is being read.
    pub(super) fn measure(self, seen: Option<&Seen>, progress: &dyn Progress, done: &AtomicBool) {
        match self {
            Input::Paths(paths) => measure(paths, seen, progress, done),
            Input::Recorded { .. } => progress.expect(self.num_bytes()),
        }
    }

    fn num_bytes(self) -> u64 {
        match self {
            Input::Paths(_) => 0,
            Input::Recorded { runs, .. } => (0..runs.source.num_runs()).map(|index| runs.source.num_bytes(index)).sum(),
        }
    }
}

/// The runs in paths and in the folders among them, in order, found as they are asked for: no more names are in memory than
/// those of one folder and of the folders above it.
///
/// What a folder holds and cannot be looked at, such as a link that leads nowhere, is a source too: reading it says why.
pub(super) struct Sources<'a> {
    candidates: Candidates<'a>,
    seen: Option<&'a Seen>,
    /// What comes before all other candidates, the next at the end.
    pending: Vec<Pending>,
    /// What consists of several files, and has been opened by one of them.
    wholes: HashSet<PathBuf>,
    /// The rows that logs in the folder asked for last name.
    logs: Option<(PathBuf, HashSet<OsString>)>,
    /// Files of such folders, and files of no runs, which nobody reads by themselves.
    pub(super) passed: Vec<FileState>,
    /// Files passed over so far because they hold nothing that is known.
    pub(super) ignored: u64,
    /// Files passed over so far because they are as they were when they were read last.
    pub(super) unchanged: u64,
}

enum Pending {
    Source(Source),
    /// The runs of a file from an index on.
    Runs(FileState, Arc<Container>, usize),
    /// A file that turned out not to be what its name says.
    Renamed(FileState, ContainerKind),
}

/// Files that were read before, as they were then: for whoever looks at the same folder again and again.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<PathBuf, (u64, Option<SystemTime>)>);

/// A file as it was when it was found.
#[derive(Clone)]
pub(super) struct FileState {
    path: PathBuf,
    num_bytes: u64,
    modified: Option<SystemTime>,
}

impl Seen {
    fn has(&self, file: &FileState) -> bool {
        self.0.get(&file.path) == Some(&(file.num_bytes, file.modified))
    }

    pub(super) fn add(&mut self, file: FileState) {
        self.0.insert(file.path, (file.num_bytes, file.modified));
    }
}

impl Source {
    /// The run's index, if it is one of many.
    pub(super) fn index(&self) -> Option<usize> {
        match self.part {
            Part::Of { index, .. } => Some(index),
            _ => None,
        }
    }

    fn file(file: FileState, part: Part) -> Source {
        Source { path: file.path.clone(), num_bytes: file.num_bytes, part, last_of: Some(file) }
    }
}

impl<'a> Sources<'a> {
    /// Fails for a path that is not there.
    pub(super) fn new(paths: &'a [PathBuf], seen: Option<&'a Seen>) -> Result<Sources<'a>> {
        let candidates = Candidates::new(paths)?;
        let (pending, wholes, passed) = (Vec::new(), HashSet::new(), Vec::new());
        Ok(Sources { candidates, seen, pending, wholes, logs: None, passed, ignored: 0, unchanged: 0 })
    }

    /// The runs of a pack.
    pub(super) fn of_pack(pack: PackReader) -> Sources<'a> {
        let (path, num_bytes) = (pack.path().unwrap_or(Path::new("")).to_path_buf(), pack.num_bytes());
        let format = SourceFormat::File(RunFormat::A2run2);
        Sources::of_many(
            Container { source: Box::new(pack), path, format, session: None, session_info: None }.into(),
            num_bytes,
        )
    }

    /// Runs that are open already, of about so many bytes.
    pub(super) fn of_many(runs: Arc<Container>, num_bytes: u64) -> Sources<'a> {
        let file = FileState { path: runs.path.clone(), num_bytes, modified: None };
        let pending = vec![Pending::Runs(file, runs, 0)];
        let candidates = Candidates { paths: &[], walk: None };
        let (wholes, passed) = (HashSet::new(), Vec::new());
        Sources { candidates, seen: None, pending, wholes, logs: None, passed, ignored: 0, unchanged: 0 }
    }

    /// The next runs, of about so many bytes together and at least one.
    pub(super) fn window(&mut self, num_bytes: u64, progress: &dyn Progress) -> Result<Vec<Source>> {
        let mut window = Vec::new();
        let mut sum = 0;
        while sum < num_bytes
            && let Some(source) = self.next(progress)?
        {
            // An open and a close cost as much as some bytes.
            sum += source.num_bytes + 4096;
            window.push(source);
        }
        Ok(window)
    }

    /// Takes back sources that were not used, to give them out again: first the runs of the file that was taken for a run
    /// file, then the others.
    pub(super) fn put_back(&mut self, renamed: Source, kind: ContainerKind, rest: Vec<Source>) {
        self.pending.extend(rest.into_iter().rev().map(Pending::Source));
        if let Some(file) = renamed.last_of {
            self.pending.push(Pending::Renamed(file, kind));
        }
    }

    fn next(&mut self, progress: &dyn Progress) -> Result<Option<Source>> {
        loop {
            check(progress)?;
            match self.pending.pop() {
                Some(Pending::Source(source)) => return Ok(Some(source)),
                Some(Pending::Runs(file, runs, index)) => {
                    let num_runs = runs.source.num_runs();
                    let last = index + 1 >= num_runs;
                    if index >= num_runs {
                        self.passed.push(file);
                        continue;
                    }
                    if runs.source.is_absent(index) {
                        self.pending.push(Pending::Runs(file, runs, index + 1));
                        continue;
                    }
                    let path = runs.path.clone();
                    let num_bytes = runs.source.num_bytes(index);
                    let part = Part::Of { runs: Arc::clone(&runs), index };
                    let last_of = last.then(|| file.clone());
                    if !last {
                        self.pending.push(Pending::Runs(file, runs, index + 1));
                    }
                    return Ok(Some(Source { path, num_bytes, part, last_of }));
                }
                Some(Pending::Renamed(file, kind)) => self.open(file, kind, true, progress),
                None => {
                    let Some(Candidate { file, content, named, problem }) = self.candidates.next(progress)? else {
                        return Ok(None);
                    };
                    if self.seen.is_some_and(|seen| seen.has(&file)) {
                        self.unchanged += 1;
                        continue;
                    }
                    if problem.is_some() {
                        return Ok(Some(Source::file(file, Part::Failed(problem))));
                    }
                    match content {
                        Content::Container(kind) => self.open(file, kind, named, progress),
                        Content::Other if !named => self.ignored += 1,
                        Content::Run | Content::Other => return Ok(Some(Source::file(file, Part::File))),
                    }
                }
            }
        }
    }

    /// Whether a meta file of another name names these rows.
    fn is_named_by_a_log(&mut self, rows: &Path, kind: ContainerKind) -> bool {
        let (Some(folder), Some(name)) = (rows.parent(), rows.file_name()) else { return false };
        if self.logs.as_ref().is_none_or(|(of, _)| of != folder) {
            self.logs = Some((folder.to_path_buf(), kind.parts_named_in(folder)));
        }
        self.logs.as_ref().is_some_and(|(_, names)| names.contains(name))
    }

    /// Whether what consists of several files has been opened already, by one of the others.
    fn is_done(&mut self, whole: &Path) -> bool {
        !self.wholes.insert(whole.canonicalize().unwrap_or_else(|_| whole.to_path_buf()))
    }

    /// Puts the runs of a file of many next.
    fn open(&mut self, file: FileState, kind: ContainerKind, named: bool, progress: &dyn Progress) {
        let opened = match open_container(&file.path, kind, progress) {
            Ok(Opened::Folder(folder)) if self.is_done(&folder) => return self.passed.push(file),
            Ok(Opened::Folder(folder)) => open_folder(&folder),
            // The file by which it is opened lies in the same folder, and comes by itself. Who looks again and again may have
            // seen that before this one was there.
            Ok(Opened::Part(_)) if !named && self.seen.is_none() => return self.passed.push(file),
            Ok(Opened::Part(whole)) if self.is_done(&whole) => return self.passed.push(file),
            Ok(Opened::Part(whole)) => match open_container(&whole, kind.main().unwrap_or(kind), progress) {
                Ok(Opened::Container(container)) => Ok(Some(*container)),
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            },
            Ok(Opened::Container(_))
                if (named || self.seen.is_some()) && kind.has_parts() && self.is_done(&file.path) =>
            {
                return self.passed.push(file);
            }
            Ok(Opened::Container(container)) => Ok(Some(*container)),
            Err(_) if !named && kind.main().is_some() && self.is_named_by_a_log(&file.path, kind) => {
                return self.passed.push(file);
            }
            Ok(Opened::Nothing) => Ok(None),
            Err(error) => Err(error),
        };
        match opened {
            Ok(Some(container)) => self.pending.push(Pending::Runs(file, Arc::new(container), 0)),
            Ok(None) if named => {
                let error = Error::decode(0, "content", "runs in a known format", "none").with_path(&file.path);
                self.pending.push(Pending::Source(Source::file(file, Part::Failed(Some(error)))));
            }
            Ok(None) => {
                self.ignored += 1;
                self.passed.push(file);
            }
            Err(error) => self.pending.push(Pending::Source(Source::file(file, Part::Failed(Some(error))))),
        }
    }
}

/// Tells `progress` how many bytes there will be to read, while the reading goes on already.
pub(super) fn measure(paths: &[PathBuf], seen: Option<&Seen>, progress: &dyn Progress, done: &AtomicBool) {
    let Ok(mut candidates) = Candidates::new(paths) else { return };
    let mut sum = 0;
    while !done.load(Ordering::Relaxed) {
        // What is wrong with a folder is said by whoever reads it.
        let Ok(Some(Candidate { file, content, named, .. })) = candidates.next(progress) else { break };
        if (named || !matches!(content, Content::Other)) && !seen.is_some_and(|seen| seen.has(&file)) {
            sum += file.num_bytes;
        }
        if sum >= 1 << 20 {
            progress.expect(std::mem::take(&mut sum));
        }
    }
    progress.expect(sum);
}

/// A file that may hold runs.
struct Candidate {
    file: FileState,
    content: Content,
    /// Whether it was named itself, so that it must hold something.
    named: bool,
    /// Why it cannot be looked at.
    problem: Option<Error>,
}

/// The files among paths and in the folders among them, in order.
struct Candidates<'a> {
    paths: &'a [PathBuf],
    walk: Option<Box<dyn Iterator<Item = Result<FoundFile>> + Send>>,
}

impl<'a> Candidates<'a> {
    fn new(paths: &'a [PathBuf]) -> Result<Candidates<'a>> {
        for path in paths {
            std::fs::metadata(path).map_err(|source| Error::io(path, source))?;
        }
        Ok(Candidates { paths, walk: None })
    }

    fn next(&mut self, progress: &dyn Progress) -> Result<Option<Candidate>> {
        loop {
            check(progress)?;
            let Some(walk) = &mut self.walk else {
                let Some((first, rest)) = self.paths.split_first() else { return Ok(None) };
                self.paths = rest;
                self.walk = Some(Box::new(files_in(first)));
                continue;
            };
            match walk.next() {
                None => self.walk = None,
                Some(found) => return found.map(|found| Some(look_at(found))),
            }
        }
    }
}

fn look_at(found: FoundFile) -> Candidate {
    let is_file = found.metadata.as_ref().is_none_or(Metadata::is_file);
    let content = if found.unfinished {
        Content::Other
    } else if found.is_named_as_run() || found.problem.is_some() || !is_file {
        // Whether its content agrees is seen when it is read.
        Content::Run
    } else {
        content_of(&found.path)
    };
    let num_bytes = found.num_bytes();
    let modified = found.metadata.and_then(|metadata| metadata.modified().ok());
    let file = FileState { path: found.path, num_bytes, modified };
    Candidate { file, content, named: found.named, problem: found.problem }
}

/// The type of a file by its first bytes. An unreadable file counts as a run, so that reading it reports the error,
/// unless it was a recorder's file that was removed.
fn content_of(path: &Path) -> Content {
    let mut prefix = Vec::with_capacity(PREFIX_LEN);
    match File::open(path).and_then(|file| file.take(PREFIX_LEN as u64).read_to_end(&mut prefix)) {
        Ok(_) => Content::of(&prefix),
        Err(_) if has_ended(path) => Content::Other,
        Err(_) => Content::Run,
    }
}
