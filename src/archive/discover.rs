//! Which files an ingest reads, in which order.

use crate::error::{Error, Result};
use crate::progress::{Progress, check};
use std::collections::HashMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use walkdir::{DirEntry, WalkDir};

/// Extensions of the files that are taken from folders; a file that is named itself is always read.
const EXTENSIONS: [&str; 3] = ["a2run2", "bin", "a2t1"];

/// A file to read.
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) num_bytes: u64,
    pub(super) modified: Option<SystemTime>,
}

/// What folders hold.
enum Found {
    Source(Source),
    /// A file whose extension is not that of a run file.
    Other,
}

/// The run files among paths and in the folders among them, in order, found as they are asked for: no more names are in
/// memory than those of one folder and of the folders above it.
///
/// What a folder holds and cannot be looked at, such as a link that leads nowhere, is a source too: reading it says why.
pub(super) struct Sources<'a> {
    paths: &'a [PathBuf],
    seen: Option<&'a Seen>,
    walk: Option<(PathBuf, walkdir::IntoIter)>,
    /// Files passed over so far because of their extension.
    pub(super) ignored: u64,
    /// Files passed over so far because they are as they were when they were read last.
    pub(super) unchanged: u64,
}

/// Files that were read before, as they were then: for whoever looks at the same folder again and again.
#[derive(Debug, Default)]
pub(super) struct Seen(HashMap<PathBuf, (u64, Option<SystemTime>)>);

impl Seen {
    fn has(&self, source: &Source) -> bool {
        self.0.get(&source.path) == Some(&(source.num_bytes, source.modified))
    }

    pub(super) fn add(&mut self, source: Source) {
        self.0.insert(source.path, (source.num_bytes, source.modified));
    }
}

impl<'a> Sources<'a> {
    /// Fails for a path that is not there.
    pub(super) fn new(paths: &'a [PathBuf], seen: Option<&'a Seen>) -> Result<Sources<'a>> {
        for path in paths {
            std::fs::metadata(path).map_err(|source| Error::io(path, source))?;
        }
        Ok(Sources { paths, seen, walk: None, ignored: 0, unchanged: 0 })
    }

    /// The next files, of about so many bytes together and at least one.
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

    fn next(&mut self, progress: &dyn Progress) -> Result<Option<Source>> {
        loop {
            check(progress)?;
            let Some((root, walk)) = &mut self.walk else {
                let Some((first, rest)) = self.paths.split_first() else { return Ok(None) };
                self.paths = rest;
                self.walk = Some((first.clone(), walk_files(first)));
                continue;
            };
            match walk.next() {
                None => self.walk = None,
                Some(entry) => match look_at(root, entry)? {
                    None => {}
                    Some(Found::Other) => self.ignored += 1,
                    Some(Found::Source(source)) if self.seen.is_some_and(|seen| seen.has(&source)) => {
                        self.unchanged += 1;
                    }
                    Some(Found::Source(source)) => return Ok(Some(source)),
                },
            }
        }
    }
}

/// Tells `progress` how many bytes there will be to read, while the reading goes on already.
pub(super) fn measure(paths: &[PathBuf], seen: Option<&Seen>, progress: &dyn Progress, done: &AtomicBool) {
    let Ok(mut sources) = Sources::new(paths, seen) else { return };
    let mut sum = 0;
    while !done.load(Ordering::Relaxed) {
        // What is wrong with a folder is said by whoever reads it.
        let Ok(Some(source)) = sources.next(progress) else { break };
        sum += source.num_bytes;
        if sum >= 1 << 20 {
            progress.expect(std::mem::take(&mut sum));
        }
    }
    progress.expect(sum);
}

fn walk_files(root: &Path) -> walkdir::IntoIter {
    WalkDir::new(root).follow_links(true).sort_by_file_name().into_iter()
}

fn look_at(root: &Path, entry: walkdir::Result<DirEntry>) -> Result<Option<Found>> {
    let as_io = |error: walkdir::Error| {
        let path = error.path().unwrap_or(root).to_path_buf();
        Error::io(path, error.into_io_error().unwrap_or_else(|| std::io::Error::other("a loop of links")))
    };
    let entry = match entry {
        Ok(entry) => entry,
        Err(error) if error.depth() > 0 => {
            let path = error.path().unwrap_or(root).to_path_buf();
            return Ok(Some(Found::Source(Source { path, num_bytes: 0, modified: None })));
        }
        Err(error) => return Err(as_io(error)),
    };
    // A pipe that is named itself can be read as well as a file.
    let named_itself = entry.depth() == 0 && !entry.file_type().is_dir();
    if !named_itself && !entry.file_type().is_file() {
        return Ok(None);
    }
    let extension = entry.path().extension().and_then(|extension| extension.to_str());
    if !named_itself && !extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
        return Ok(Some(Found::Other));
    }
    // A file that vanishes now is reported when it cannot be read.
    let metadata = entry.metadata().ok();
    let num_bytes = metadata.as_ref().map_or(0, Metadata::len);
    let modified = metadata.and_then(|metadata| metadata.modified().ok());
    Ok(Some(Found::Source(Source { path: entry.into_path(), num_bytes, modified })))
}
