//! The files of an ingest that may hold runs.

use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::format::{ContainerKind, Content, FoundFile, PREFIX_LEN, files_in, is_archive};
use crate::progress::Progress;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The given files and the files in the given folders, in order, each with the kind of its content.
pub(super) type CandidateFiles<'a> = Box<dyn Iterator<Item = Result<(FoundFile, Content)>> + Send + 'a>;

/// Returns the files of `paths`. Fails if a path does not exist.
pub(super) fn candidates(paths: &[PathBuf]) -> Result<CandidateFiles<'_>> {
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
pub(super) fn measure(paths: &[PathBuf], progress: &dyn Progress, cancel: &CancellationToken, done: &AtomicBool) {
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
