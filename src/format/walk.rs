//! The files of a folder and of those in it, as everything that takes folders meets them.

use super::session::{RECORDING, journal_number};
use crate::error::{Error, Result};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::{self, ErrorKind::NotFound};
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

    /// Whether it has the extension of a run file and is not a recorder's journal.
    pub(crate) fn is_named_as_run(&self) -> bool {
        let extension = self.path.extension().and_then(OsStr::to_str);
        journal_number(&self.path).is_none() && extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
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
                        let gone = has_ended(&path);
                        let file = FoundFile { path, metadata: None, named: false, unfinished: false, problem };
                        (!gone).then_some(Ok(file))
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
    if metadata.is_none() && !named && has_ended(entry.path()) {
        return None;
    }
    Some(FoundFile { path: entry.into_path(), metadata, named, unfinished, problem: None })
}

/// Whether this was a recorder's file that was removed after the listing, because the recording ended. The session has
/// all its games.
pub(crate) fn has_ended(path: &Path) -> bool {
    let is_recorders = journal_number(path).is_some() || path.ends_with(RECORDING);
    is_recorders && path.symlink_metadata().is_err_and(|error| error.kind() == NotFound)
}

fn is_unfinished(entry: &DirEntry) -> bool {
    let name = entry.file_name().as_encoded_bytes();
    entry.depth() > 0 && (name.starts_with(b".") || name.ends_with(b".tmp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_recorder_may_go_while_they_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let all = ["a.a2run2", "journal-000001.bin", "recording.json", "z.a2run2"];
        for name in all {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let mut found = files_in(folder.path());
        let mut names = vec![found.next().unwrap().unwrap()];
        for name in &all[1..] {
            std::fs::remove_file(folder.path().join(name)).unwrap();
        }
        names.extend(found.map(Result::unwrap));
        let names: Vec<_> = names.iter().map(|file| file.path.strip_prefix(folder.path()).unwrap()).collect();
        // A removed run file is reported.
        assert_eq!(names, [Path::new("a.a2run2"), Path::new("z.a2run2")]);
    }
}
