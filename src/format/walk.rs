//! The files of a folder and of those in it, as everything that takes folders meets them.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Files of these extensions call themselves runs: it is an error if they hold nothing that can be read. What others hold is
/// told by their content.
const EXTENSIONS: [&str; 3] = ["a2run2", "bin", "a2t1"];

/// A file.
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// `None` for one that vanishes: it is reported when it cannot be read.
    pub(crate) metadata: Option<Metadata>,
    /// Whether it was named itself, rather than found in a folder. It may be a pipe then.
    pub(crate) named: bool,
    /// Whether it seems to be written just now, or is hidden: its name begins with a dot, or ends in `.tmp`.
    pub(crate) unfinished: bool,
    /// Why it cannot even be looked at: a link that leads nowhere, for example.
    pub(crate) problem: Option<Error>,
}

impl FoundFile {
    pub(crate) fn num_bytes(&self) -> u64 {
        self.metadata.as_ref().map_or(0, Metadata::len)
    }

    /// Whether its extension is that of a run file.
    pub(crate) fn is_named_as_run(&self) -> bool {
        let extension = self.path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
    }
}

/// The files of a folder in the order of their names, links followed, hidden folders passed over; or the one file that `root`
/// is. No more names are in memory than those of one folder and of the folders above it.
///
/// An item is an error when `root` itself cannot be looked at.
pub(crate) fn files_in(root: &Path) -> impl Iterator<Item = Result<FoundFile>> + Send + use<> {
    let root = root.to_path_buf();
    WalkDir::new(&root)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| !(entry.file_type().is_dir() && is_unfinished(entry)))
        .filter_map(move |entry| match entry {
            Ok(entry) => found(entry).map(Ok),
            Err(error) => {
                let (path, depth) = (error.path().unwrap_or(&root).to_path_buf(), error.depth());
                let source = error.into_io_error().unwrap_or_else(|| io::Error::other("a loop of links"));
                let problem = Error::io(&path, source);
                match depth {
                    0 => Some(Err(problem)),
                    _ => {
                        let problem = Some(problem);
                        Some(Ok(FoundFile { path, metadata: None, named: false, unfinished: false, problem }))
                    }
                }
            }
        })
}

fn found(entry: DirEntry) -> Option<FoundFile> {
    let named = entry.depth() == 0 && !entry.file_type().is_dir();
    if !named && !entry.file_type().is_file() {
        return None;
    }
    let (metadata, unfinished) = (entry.metadata().ok(), is_unfinished(&entry));
    Some(FoundFile { path: entry.into_path(), metadata, named, unfinished, problem: None })
}

fn is_unfinished(entry: &DirEntry) -> bool {
    let name = entry.file_name().as_encoded_bytes();
    entry.depth() > 0 && (name.starts_with(b".") || name.ends_with(b".tmp"))
}
