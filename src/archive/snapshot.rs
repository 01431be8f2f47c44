//! The contents of an archive at one version.

use super::commit::{Commit, CommitInfo, Operation};
use super::data_file::DataFile;
use super::table_name::TableName;
use std::collections::HashSet;

/// The contents of an archive at one version.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(super) newest: Commit,
    pub(super) newest_crc: String,
    /// The files of all tables, in the order of their models and first run ids.
    pub(super) files: Vec<DataFile>,
    /// One line for each commit up to the newest, including those of expired versions.
    pub(super) history: Vec<CommitInfo>,
    /// The newest checkpoint at the time of reading, or the checkpoint that was read; 0 = none.
    pub(super) checkpoint: u64,
    /// The newest digests at the time of reading; 0 = none.
    pub(super) digests: u64,
}

impl Snapshot {
    pub(crate) fn newest(&self) -> &Commit {
        &self.newest
    }

    /// Returns the checksum of the newest commit. It covers all commits, because each commit contains its parent's
    /// checksum.
    pub(crate) fn crc(&self) -> &str {
        &self.newest_crc
    }

    /// Returns a table's files in the order of their run ids. The files of `annotations` are ordered by model first.
    pub(crate) fn files(&self, table: TableName) -> impl Iterator<Item = &DataFile> {
        self.files.iter().filter(move |file| file.table == table)
    }

    /// Returns a commit of the next version, without changes.
    pub(super) fn next(&self, operation: Operation) -> Commit {
        self.newest.next(&self.newest_crc, operation)
    }

    /// Returns the contents after the next commit. `before` is `None` for an archive's first commit. The files
    /// are unordered until [`sort`](Self::sort) is called.
    pub(super) fn after(before: Option<Snapshot>, commit: Commit, crc: String) -> Snapshot {
        let empty = || Snapshot {
            newest: commit.clone(),
            newest_crc: crc.clone(),
            files: Vec::new(),
            history: Vec::new(),
            checkpoint: 0,
            digests: 0,
        };
        let mut snapshot = before.unwrap_or_else(empty);
        snapshot.apply(commit, crc);
        snapshot
    }

    /// Applies the next commit. The files are unordered until [`sort`](Self::sort) is called.
    pub(super) fn apply(&mut self, mut commit: Commit, crc: String) {
        self.history.push(commit.info());
        if !commit.remove.is_empty() {
            let gone: HashSet<&str> = commit.remove.iter().map(String::as_str).collect();
            self.files.retain(|file| !gone.contains(file.path.as_str()));
        }
        self.files.append(&mut commit.add);
        (commit.remove, commit.replaces) = (Vec::new(), Vec::new());
        (commit.stands_for, commit.line) = (None, None);
        (self.newest, self.newest_crc) = (commit, crc);
    }

    /// Puts the files in the order of their models and first run ids.
    pub(super) fn sort(mut self) -> Snapshot {
        self.files.sort_by(|a, b| (&a.model, a.first_run_id).cmp(&(&b.model, b.first_run_id)));
        self
    }
}
