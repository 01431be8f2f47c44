//! Commits: one version's change to an archive, as a JSON file that carries its own checksum.
//!
//! ```text
//! {"version":2,"parent":"5a0c37ee", … ,"add":[{"table":"steps","path":"steps/4c….parquet", …}],"crc32c":"91e00b7d"}⏎
//!                                                                                          └─ the trailer ─┘
//! ```
//!
//! The trailer is the last 24 bytes: `,"crc32c":"<8 digits>"}` and a newline. Its number is the CRC32C of every byte
//! before the trailer, so a file is valid JSON and can be checked without parsing it. `parent` is the trailer's number
//! of the commit before, absent in the first: the log is a chain.

use super::TableName;
use super::schema::{Phases, SCHEMA_VERSION};
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::random;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Operation {
    /// Made the archive.
    Create,
    /// Added runs.
    Ingest,
    /// Rewrote small files as larger ones; the rows are the same.
    Compact,
    /// Gave up old versions, so that their files could go.
    Expire,
    /// Followed on a version whose successor was damaged.
    Repair,
}

/// One line of [`Archive::history`](super::Archive::history).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CommitInfo {
    /// The version that it made.
    pub version: u64,
    /// When, in UTC, as in RFC 3339.
    pub time: String,
    /// What it did.
    pub operation: Operation,
    /// Names this commit among all, 32 hexadecimal digits.
    pub txn: String,
    /// Runs that it added: those with the ids `next_run_id - added_runs .. next_run_id`.
    pub added_runs: u64,
    /// Steps that it added.
    pub added_steps: u64,
    /// Ids below were given out by then.
    pub next_run_id: u64,
    /// Runs in the archive since.
    pub num_runs: u64,
    /// Steps in the archive since.
    pub num_steps: u64,
    /// Files that it added.
    pub added_files: u64,
    /// Files that are not of this version any more.
    pub removed_files: u64,
}

/// A Parquet file of the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DataFile {
    pub(crate) table: TableName,
    /// Relative to the archive, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) num_rows: u64,
    pub(crate) num_bytes: u64,
    /// Of the whole file, eight hexadecimal digits.
    pub(crate) crc32c: String,
    pub(crate) first_run_id: u32,
    pub(crate) last_run_id: u32,
}

/// One version's commit, without its trailer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Commit {
    pub(crate) version: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) parent: Option<String>,
    pub(crate) schema_version: u32,
    pub(crate) archive_id: String,
    /// Names this commit among all: a writer that is not told whether it succeeded looks for it.
    pub(crate) txn: String,
    pub(crate) time: String,
    pub(crate) operation: Operation,
    pub(crate) phases: Phases,
    /// Versions below were given up.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(crate) first_version: u64,
    /// Ids below were given out.
    pub(crate) next_run_id: u64,
    pub(crate) num_runs: u64,
    pub(crate) num_steps: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) add: Vec<DataFile>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) remove: Vec<String>,
    /// The checksum of the commit that this one replaces; the next version names it. Absent if the rebuilt commit has
    /// the same checksum.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) stands_for: Option<String>,
    /// The history line of a rebuilt commit, if some of its files are lost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) line: Option<CommitInfo>,
    /// Files of the log that this commit replaces. A repair sets them aside once this commit is durable.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) replaces: Vec<Replaced>,
}

/// A file of the log that a repair replaces, identified by its content: another file may later get the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Replaced {
    /// Relative to the archive.
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

#[allow(clippy::trivially_copy_pass_by_ref)] // What serde asks for.
fn is_one(version: &u64) -> bool {
    *version == 1
}

impl Operation {
    /// `"create"`, `"ingest"`, `"compact"`, `"expire"` or `"repair"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Ingest => "ingest",
            Operation::Compact => "compact",
            Operation::Expire => "expire",
            Operation::Repair => "repair",
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

    /// The commit that would follow.
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

    /// Its line in the history.
    pub(super) fn info(&self) -> CommitInfo {
        if let Some(line) = &self.line {
            return line.clone();
        }
        // Compaction writes rows that were there before.
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

    /// Checks a commit's file and parses it. Also returns the checksum by which the next commit names it: the
    /// trailer's, or that in `stands_for`.
    pub(super) fn from_bytes(bytes: &[u8], path: &Path) -> Result<(Commit, String)> {
        let (commit, crc): (Commit, _) = unseal(bytes, path)?;
        commit.check(path)?;
        let crc = commit.stands_for.clone().unwrap_or(crc);
        Ok((commit, crc))
    }

    /// That its numbers are in their ranges.
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

/// A value as JSON with a trailer.
pub(super) fn seal(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).map_err(Error::other)?;
    // The object's closing brace belongs to the trailer.
    bytes.pop();
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(format!(",\"crc32c\":\"{crc:08x}\"}}\n").as_bytes());
    Ok(bytes)
}

/// The number in a trailer, once it fits the bytes before it.
pub(super) fn check_seal(bytes: &[u8], path: &Path) -> Result<String> {
    const TRAILER_LEN: usize = r#","crc32c":"00000000"}"#.len() + 1;
    let crc = bytes.len().checked_sub(TRAILER_LEN).and_then(|len| {
        let (body, trailer) = bytes.split_at(len);
        let digits = trailer.strip_prefix(b",\"crc32c\":\"")?.strip_suffix(b"\"}\n")?;
        Some((body, std::str::from_utf8(digits).ok()?))
    });
    let Some((body, stored)) = crc else {
        let found = format!("{} bytes without one", bytes.len());
        return Err(damaged(path, "end of the commit", "its checksum", found));
    };
    let found = format!("{:08x}", crc32c::crc32c(body));
    if stored != found {
        return Err(damaged(path, "CRC32C of the commit", stored, found));
    }
    Ok(found)
}

/// The content of a log file.
pub(super) trait Sealed: DeserializeOwned {
    fn schema_version(&self) -> u32;
}

impl Sealed for Commit {
    fn schema_version(&self) -> u32 {
        self.schema_version
    }
}

/// A value from JSON with a trailer, and the trailer's number.
pub(super) fn unseal<T: Sealed>(bytes: &[u8], path: &Path) -> Result<(T, String)> {
    #[derive(Deserialize)]
    struct Header {
        schema_version: u32,
    }
    let crc = check_seal(bytes, path)?;
    let parse_error = |error: serde_json::Error| damaged(path, "commit", "its fields", error.to_string());
    let parsed = serde_json::from_slice::<T>(bytes);
    let found = match &parsed {
        Ok(value) => value.schema_version(),
        // A newer version may have changed all other fields.
        Err(_) => serde_json::from_slice::<Header>(bytes).map_err(parse_error)?.schema_version,
    };
    if found > SCHEMA_VERSION {
        return Err(ErrorKind::SchemaVersion { path: path.to_path_buf(), supported: SCHEMA_VERSION, found }.into());
    }
    Ok((parsed.map_err(parse_error)?, crc))
}

/// An error about a file that contradicts the rest of the archive.
pub(super) fn damaged(path: &Path, what: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Error {
    ErrorKind::Damaged { path: path.to_path_buf(), what, expected: expected.into(), found: found.into() }.into()
}
