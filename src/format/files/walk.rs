//! Listing the files of a folder and its subfolders.

use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Extensions of run files. A file with one of these is an error if it holds no readable run. Other files are
/// detected by their content.
const EXTENSIONS: [&str; 3] = ["a2run2", "bin", "a2t1"];

/// A file that was found or named.
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// `None` if the file has vanished. Reading the file then returns the error.
    pub(crate) metadata: Option<Metadata>,
    /// Whether the caller named this path. A named path may be a pipe.
    pub(crate) named: bool,
    /// Whether the file is hidden or being written: its name begins with a dot or ends with `.tmp`.
    pub(crate) unfinished: bool,
    /// The reason why the file's metadata cannot be read, such as a dangling link.
    pub(crate) problem: Option<Error>,
}

impl FoundFile {
    pub(crate) fn num_bytes(&self) -> u64 {
        self.metadata.as_ref().map_or(0, Metadata::len)
    }

    /// Returns whether the file has the extension of a run file.
    pub(crate) fn is_named_as_run(&self) -> bool {
        let extension = self.path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
    }
}

/// Lists the files below `root` in the order of their names, or `root` itself if it is a file. Follows links and
/// skips hidden folders. Memory holds the names of one folder and its ancestors.
///
/// An item is an error if `root` itself cannot be read.
pub(crate) fn files_in(root: &Path) -> impl Iterator<Item = Result<FoundFile>> + Send + use<> {
    let root = root.to_path_buf();
    WalkDir::new(&root)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let is_other_folder = || is_unfinished(entry) || entry.depth() > 0 && is_archive(entry.path());
            !(entry.file_type().is_dir() && is_other_folder())
        })
        .filter_map(move |entry| match entry {
            Ok(entry) => found(entry).map(Ok),
            Err(error) => {
                let (path, depth) = (error.path().unwrap_or(&root).to_path_buf(), error.depth());
                let source = error.into_io_error().unwrap_or_else(|| io::Error::other("a loop of links"));
                let problem = Error::io(&path, source);
                Some(match depth {
                    0 => Err(problem),
                    _ => {
                        Ok(FoundFile { path, metadata: None, named: false, unfinished: false, problem: Some(problem) })
                    }
                })
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

/// Returns whether a folder is an archive. Its files are no runs to ingest.
#[must_use]
pub fn is_archive(folder: &Path) -> bool {
    folder.join("_versions").is_dir() && folder.join("steps").is_dir()
}

fn is_unfinished(entry: &DirEntry) -> bool {
    entry.depth() > 0 && is_named_as_unfinished(entry.path())
}

/// Returns whether a name begins with a dot or ends in `.tmp`. In a folder, such files are skipped.
///
/// ```
/// assert!(a2store::format::is_named_as_unfinished("runs/.copy.a2run2".as_ref()));
/// ```
#[must_use]
pub fn is_named_as_unfinished(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b".") || name.ends_with(b".tmp")
}
