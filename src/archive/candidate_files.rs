//! The files of an ingest that may hold runs.

use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{ContainerKind, Content, FoundFile, PREFIX_LEN, files_in, is_archive};
use crate::progress::Progress;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reports the total number of bytes to `progress`, while they are being read. Stops once `done` is set.
pub(super) fn measure(paths: &[PathBuf], progress: &dyn Progress, cancel: &CancellationToken, done: &AtomicBool) {
    let Ok(mut candidates) = CandidateFiles::new(paths) else { return };
    let mut sum = 0;
    while !done.load(Ordering::Relaxed) {
        // The reading thread reports errors of folders.
        let Ok(Some(CandidateFile { num_bytes, content, named, .. })) = candidates.next(cancel) else { break };
        if named || !matches!(content, Content::Other) {
            sum += num_bytes;
        }
        if sum >= 1 << 20 {
            progress.expect(std::mem::take(&mut sum));
        }
    }
    progress.expect(sum);
}

/// A file that may hold runs.
pub(super) struct CandidateFile {
    pub(super) path: PathBuf,
    pub(super) num_bytes: u64,
    pub(super) content: Content,
    /// Whether the caller named this file. Such a file must hold runs.
    pub(super) named: bool,
    /// The error that keeps the file from being read.
    pub(super) problem: Option<Error>,
}

/// The given files and the files in the given folders, in order.
pub(super) struct CandidateFiles<'a> {
    paths: &'a [PathBuf],
    walk: Option<Box<dyn Iterator<Item = Result<FoundFile>> + Send>>,
}

impl<'a> CandidateFiles<'a> {
    /// Returns a sequence without files.
    pub(super) fn none() -> CandidateFiles<'a> {
        CandidateFiles { paths: &[], walk: None }
    }

    /// Returns the files of `paths`. Fails if a path does not exist.
    pub(super) fn new(paths: &'a [PathBuf]) -> Result<CandidateFiles<'a>> {
        for path in paths {
            std::fs::metadata(path).map_err(|source| Error::io(path, source))?;
            if is_archive(path) {
                return Err(Error::argument(
                    "paths",
                    "files and folders of runs",
                    format!("an archive, {}", path.display()),
                ));
            }
        }
        Ok(CandidateFiles { paths, walk: None })
    }

    pub(super) fn next(&mut self, cancel: &CancellationToken) -> Result<Option<CandidateFile>> {
        loop {
            cancel.check()?;
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

fn look_at(found: FoundFile) -> CandidateFile {
    let is_file = found.metadata.as_ref().is_none_or(Metadata::is_file);
    let content = if found.unfinished {
        Content::Other
    } else if found.is_named_as_run() && !found.named || found.problem.is_some() || !is_file {
        // The content is checked when the file is read.
        Content::Run
    } else {
        match (content_of(&found.path), ContainerKind::of_name(&found.path)) {
            // The name belongs to a format, but the content is damaged. Opening the file reports the error.
            (Content::Other, Some(kind)) => Content::Container(kind),
            (content, _) => content,
        }
    };
    let num_bytes = found.num_bytes();
    CandidateFile { path: found.path, num_bytes, content, named: found.named, problem: found.problem }
}

/// Returns the type of a file by its first bytes.
///
/// An unreadable file counts as a run, so that reading it reports the error.
fn content_of(path: &Path) -> Content {
    let mut prefix = Vec::with_capacity(PREFIX_LEN);
    match File::open(path).and_then(|file| file.take(PREFIX_LEN as u64).read_to_end(&mut prefix)) {
        Ok(_) => Content::of(&prefix),
        Err(_) => Content::Run,
    }
}
