//! Commits: the changes of one version, as a JSON file with a checksum (`checksummed_json.rs`).
//!
//! ```text
//! {"version":2,"parent":"5a0c37ee", … ,"add":[{"table":"steps","path":"steps/4c….parquet", …}],"crc32c":"91e00b7d"}⏎
//!                                                                                          └─ the trailer ─┘
//! ```
//!
//! `parent` is the checksum in the trailer of the commit before, so the log is a chain. The first commit has no
//! parent.

use super::checksummed_json::{Sealed, seal, unseal};
use super::data_file::DataFile;
use super::phases::Phases;
use super::problem::damaged;
use super::schema::SCHEMA_VERSION;
use super::table_name::TableName;
use crate::clock;
use crate::error::Result;
use crate::random;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The kind of change that a commit makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Operation {
    /// Created the archive.
    Create,
    /// Added runs.
    Ingest,
    /// Merged small files into larger ones; the rows are the same.
    Compact,
    /// Dropped old versions, so that their files can be removed.
    Expire,
    /// Continued from a version whose successor was damaged.
    Repair,
    /// Added, replaced or dropped the annotations of a model.
    Annotate,
}

/// A line of [`Archive::history`](super::Archive::history).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommitInfo {
    /// The version that the commit made.
    pub version: u64,
    /// The time of the commit in UTC, in the format of RFC 3339.
    pub time: String,
    /// The kind of change.
    pub operation: Operation,
    /// The unique id of the commit, 32 hexadecimal digits.
    pub txn: String,
    /// The number of runs added. Their ids are `next_run_id - added_runs .. next_run_id`.
    pub added_runs: u64,
    /// The number of steps added.
    pub added_steps: u64,
    /// The first run id that is not assigned after this commit.
    pub next_run_id: u64,
    /// The number of runs in the archive after this commit.
    pub num_runs: u64,
    /// The number of steps in the archive after this commit.
    pub num_steps: u64,
    /// The number of files added.
    pub added_files: u64,
    /// The number of files removed from the version. Earlier versions still have them.
    pub removed_files: u64,
}

/// A version's commit, without its trailer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) parent: Option<String>,
    pub(crate) schema_version: u32,
    pub(crate) archive_id: String,
    /// The unique id of the commit. A writer whose answer was lost searches the log for it.
    pub(crate) txn: String,
    pub(crate) time: String,
    pub(crate) operation: Operation,
    pub(crate) phases: Phases,
    /// The oldest version that has not expired.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) first_version: u64,
    /// The first run id that is not assigned.
    pub(crate) next_run_id: u64,
    pub(crate) num_runs: u64,
    pub(crate) num_steps: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) add: Vec<DataFile>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) remove: Vec<String>,
    /// The checksum of the lost commit that this rebuilt commit replaces; the next version names it. Absent if
    /// both checksums are equal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) stands_for: Option<String>,
    /// The history line of a rebuilt commit, if some of its files are lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) line: Option<CommitInfo>,
    /// The log files that this commit replaces. A repair sets them aside once this commit is durable.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) replaces: Vec<Replaced>,
}

/// A log file that a repair replaces, identified by its content. Another file may get the same name later.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Replaced {
    /// The path relative to the archive.
    pub(crate) path: String,
    /// The hash of its content, 64 hexadecimal digits.
    pub(crate) blake3: String,
}

impl Replaced {
    pub(super) fn new(path: &str, bytes: &[u8]) -> Replaced {
        Replaced { path: path.to_owned(), blake3: blake3::hash(bytes).to_hex().to_string() }
    }
}

fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference.
fn is_one(version: &u64) -> bool {
    *version == 1
}

impl Operation {
    /// Returns `"create"`, `"ingest"`, `"compact"`, `"expire"`, `"repair"` or `"annotate"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Ingest => "ingest",
            Operation::Compact => "compact",
            Operation::Expire => "expire",
            Operation::Repair => "repair",
            Operation::Annotate => "annotate",
        }
    }
}

impl Commit {
    pub(super) fn first(phases: Phases) -> Commit {
        Commit {
            version: 1,
            parent: None,
            schema_version: SCHEMA_VERSION,
            archive_id: random::id(),
            txn: random::id(),
            time: clock::text(),
            operation: Operation::Create,
            phases,
            first_version: 1,
            next_run_id: 0,
            num_runs: 0,
            num_steps: 0,
            add: Vec::new(),
            remove: Vec::new(),
            stands_for: None,
            line: None,
            replaces: Vec::new(),
        }
    }

    /// Returns a commit of the next version, without changes. `crc` is the checksum of this commit.
    pub(super) fn next(&self, crc: &str, operation: Operation) -> Commit {
        Commit {
            version: self.version + 1,
            parent: Some(crc.to_owned()),
            schema_version: SCHEMA_VERSION,
            txn: random::id(),
            time: clock::text(),
            operation,
            add: Vec::new(),
            remove: Vec::new(),
            stands_for: None,
            line: None,
            replaces: Vec::new(),
            ..self.clone()
        }
    }

    /// Returns the commit's line in the history.
    pub(super) fn info(&self) -> CommitInfo {
        if let Some(line) = &self.line {
            return line.clone();
        }
        // Compaction adds no rows: it rewrites existing ones.
        let added = |table| match self.operation {
            Operation::Compact => 0,
            _ => self.add.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum(),
        };
        CommitInfo {
            version: self.version,
            time: self.time.clone(),
            operation: self.operation,
            txn: self.txn.clone(),
            added_runs: added(TableName::Runs),
            added_steps: added(TableName::Steps),
            next_run_id: self.next_run_id,
            num_runs: self.num_runs,
            num_steps: self.num_steps,
            added_files: self.add.len() as u64,
            removed_files: self.remove.len() as u64,
        }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        seal(self)
    }

    /// Checks a commit's file and parses it. Also returns the checksum that the next commit has as its `parent`: the
    /// checksum in the trailer, or the one in `stands_for`.
    pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<(Commit, String)> {
        let (commit, crc): (Commit, _) = unseal(bytes, path)?;
        commit.check(path)?;
        let crc = commit.stands_for.clone().unwrap_or(crc);
        Ok((commit, crc))
    }

    /// Checks that the numbers are in their ranges.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        const MAX_IDS: u64 = 1 << 32;
        if self.next_run_id > MAX_IDS {
            return Err(damaged(path, "next_run_id", format!("at most {MAX_IDS}"), self.next_run_id.to_string()));
        }
        if !(1..=self.version).contains(&self.first_version) {
            let expected = format!("1..={}", self.version);
            return Err(damaged(path, "first_version", expected, self.first_version.to_string()));
        }
        Ok(())
    }
}

impl Sealed for Commit {
    fn schema_version(&self) -> u32 {
        self.schema_version
    }
}
