//! The commit log: what an archive held at each of its versions.
//!
//! Version `n` is the file `_log/<n in 20 digits>.json`, one JSON object:
//!
//! ```text
//! {"version":2,"parent":"5a0c37ee", … ,"add":[{"table":"steps","path":"steps/4c….parquet", …}],"crc32c":"91e00b7d"}⏎
//!                                                                                          └─ the trailer ─┘
//! ```
//!
//! * The trailer is the last 24 bytes: `,"crc32c":"<8 digits>"}` and a newline. Its number is the CRC32C of every byte
//!   before the trailer, so a commit is valid JSON and can be checked without parsing it.
//! * `parent` is the trailer's number of the commit before, absent in the first: the log is a chain.
//! * A commit is published by put-if-absent of the next number, so of two writers one wins and the other knows.
//! * A version's files are those that commits up to it added and none removed since.

use super::TableName;
use super::publish::{Published, Staged};
use super::schema::{Phases, SCHEMA_VERSION};
use crate::error::{Error, ErrorKind, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a commit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Operation {
    /// Made the archive.
    Create,
    /// Added runs.
    Ingest,
}

/// One line of [`Archive::history`](super::Archive::history).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommitInfo {
    /// The version that it made.
    pub version: u64,
    /// When, in UTC, as in RFC 3339.
    pub time: String,
    /// What it did.
    pub operation: Operation,
    /// Runs that it added.
    pub added_runs: u64,
    /// Steps that it added.
    pub added_steps: u64,
    /// Runs in the archive since.
    pub num_runs: u64,
    /// Steps in the archive since.
    pub num_steps: u64,
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
    /// Ids below were given out.
    pub(crate) next_run_id: u64,
    pub(crate) num_runs: u64,
    pub(crate) num_steps: u64,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) add: Vec<DataFile>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) remove: Vec<String>,
}

/// What an archive holds at one version.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Never empty: the last one is the snapshot's version.
    commits: Vec<Commit>,
    newest: Commit,
    newest_crc: String,
    files: Vec<DataFile>,
}

/// The log of the archive in a folder.
pub(super) struct Log {
    root: PathBuf,
    folder: PathBuf,
}

const TRAILER_LEN: usize = r#","crc32c":"00000000"}"#.len() + 1;

impl Commit {
    pub(super) fn first(phases: Phases) -> Commit {
        Commit {
            version: 1,
            parent: None,
            schema_version: SCHEMA_VERSION,
            archive_id: random_id(),
            txn: random_id(),
            time: now(),
            operation: Operation::Create,
            phases,
            next_run_id: 0,
            num_runs: 0,
            num_steps: 0,
            add: Vec::new(),
            remove: Vec::new(),
        }
    }

    pub(super) fn info(&self) -> CommitInfo {
        let added = |table| self.add.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum();
        CommitInfo {
            version: self.version,
            time: self.time.clone(),
            operation: self.operation,
            added_runs: added(TableName::Runs),
            added_steps: added(TableName::Steps),
            num_runs: self.num_runs,
            num_steps: self.num_steps,
        }
    }

    /// The file's bytes, and the number in its trailer.
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(|error| Error::from(std::io::Error::other(error)))?;
        // The object's closing brace belongs to the trailer.
        bytes.pop();
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!(",\"crc32c\":\"{crc:08x}\"}}\n").as_bytes());
        Ok(bytes)
    }

    /// Checks a commit's file against its trailer and parses it; the trailer's number comes with it.
    fn from_bytes(bytes: &[u8], path: &Path) -> Result<(Commit, String)> {
        let damaged = |what, expected: String, found: String| {
            Error::from(ErrorKind::Damaged { path: path.to_path_buf(), what, expected, found })
        };
        let crc = bytes.len().checked_sub(TRAILER_LEN).and_then(|len| {
            let (body, trailer) = bytes.split_at(len);
            let digits = trailer.strip_prefix(b",\"crc32c\":\"")?.strip_suffix(b"\"}\n")?;
            Some((body, std::str::from_utf8(digits).ok()?))
        });
        let Some((body, stored)) = crc else {
            return Err(damaged(
                "end of the commit",
                "its checksum".into(),
                format!("{} bytes without one", bytes.len()),
            ));
        };
        let found = format!("{:08x}", crc32c::crc32c(body));
        if stored != found {
            return Err(damaged("CRC32C of the commit", stored.into(), found));
        }
        // The schema version is read first, as a newer one may change all the rest.
        #[derive(Deserialize)]
        struct Header {
            schema_version: u32,
        }
        let parse_error = |error: serde_json::Error| damaged("commit", "its fields".into(), error.to_string());
        let header: Header = serde_json::from_slice(bytes).map_err(parse_error)?;
        if header.schema_version > SCHEMA_VERSION {
            let (supported, found) = (SCHEMA_VERSION, header.schema_version);
            return Err(ErrorKind::SchemaVersion { path: path.to_path_buf(), supported, found }.into());
        }
        let commit = serde_json::from_slice(bytes).map_err(parse_error)?;
        Ok((commit, found))
    }
}

impl Snapshot {
    pub(crate) fn newest(&self) -> &Commit {
        &self.newest
    }

    pub(crate) fn commits(&self) -> &[Commit] {
        &self.commits
    }

    /// A table's files in the order of their run ids.
    pub(crate) fn files(&self, table: TableName) -> impl Iterator<Item = &DataFile> {
        self.files.iter().filter(move |file| file.table == table)
    }

    /// The commit that would follow.
    pub(super) fn next(&self, operation: Operation) -> Commit {
        Commit {
            version: self.newest.version + 1,
            parent: Some(self.newest_crc.clone()),
            txn: random_id(),
            time: now(),
            operation,
            add: Vec::new(),
            remove: Vec::new(),
            ..self.newest.clone()
        }
    }
}

impl Log {
    pub(super) const FOLDER: &str = "_log";

    pub(super) fn new(root: &Path) -> Log {
        Log { root: root.to_path_buf(), folder: root.join(Log::FOLDER) }
    }

    /// Publishes a commit, unless its version is taken.
    pub(super) fn append(&self, commit: &Commit) -> Result<()> {
        let name = self.commit_path(commit.version);
        let mut staged = Staged::new(&self.folder)?;
        staged.write_all(&commit.to_bytes()?).map_err(|source| Error::io(&name, source))?;
        match staged.publish(&name)? {
            Published::New => Ok(()),
            Published::Taken => {
                let what = format!("another writer committed version {} first", commit.version);
                Err(ErrorKind::Conflict { path: self.root.clone(), what }.into())
            }
        }
    }

    /// What the archive holds at a version, or at the newest.
    pub(super) fn replay(&self, version: Option<u64>) -> Result<Snapshot> {
        let newest = self.newest_version()?;
        let version = version.unwrap_or(newest);
        if !(1..=newest).contains(&version) {
            return Err(ErrorKind::VersionNotFound { path: self.root.clone(), version, newest }.into());
        }
        let mut commits: Vec<Commit> = Vec::new();
        let mut parent: Option<String> = None;
        let mut files: Vec<DataFile> = Vec::new();
        for number in 1..=version {
            let path = self.commit_path(number);
            let bytes = std::fs::read(&path).map_err(|source| Error::io(&path, source))?;
            let (commit, crc) = Commit::from_bytes(&bytes, &path)?;
            let damaged = |what, expected: String, found: String| {
                Error::from(ErrorKind::Damaged { path: path.clone(), what, expected, found })
            };
            if commit.version != number {
                return Err(damaged("version", number.to_string(), commit.version.to_string()));
            }
            if commit.parent != parent {
                let name = |parent: &Option<String>| parent.clone().unwrap_or_else(|| "none".into());
                return Err(damaged("CRC32C of the commit before", name(&parent), name(&commit.parent)));
            }
            files.retain(|file| !commit.remove.contains(&file.path));
            files.extend(commit.add.iter().cloned());
            parent = Some(crc);
            commits.push(commit);
        }
        files.sort_by_key(|file| file.first_run_id);
        match (commits.last().cloned(), parent) {
            (Some(newest), Some(newest_crc)) => Ok(Snapshot { commits, newest, newest_crc, files }),
            _ => Err(self.missing()),
        }
    }

    fn newest_version(&self) -> Result<u64> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(_) if self.root.is_dir() => return Err(self.missing()),
            Err(source) => return Err(Error::io(&self.root, source)),
        };
        let mut newest = None;
        for entry in entries {
            let name = entry.map_err(|source| Error::io(&self.folder, source))?.file_name();
            newest = newest.max(name.to_str().and_then(version_of));
        }
        newest.ok_or_else(|| self.missing())
    }

    fn missing(&self) -> Error {
        ErrorKind::NotAnArchive { path: self.root.clone(), missing: "_log/00000000000000000001.json" }.into()
    }

    fn commit_path(&self, version: u64) -> PathBuf {
        self.folder.join(format!("{version:020}.json"))
    }
}

/// The version that a file of the log is named for.
fn version_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json").filter(|digits| digits.len() == 20)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// 128 random bits in hexadecimal.
fn random_id() -> String {
    format!("{:032x}", uuid())
}

fn uuid() -> u128 {
    let mut bytes = [0; 16];
    // The system's generator fails only where there is none; the clock still tells writers apart there.
    if getrandom::fill(&mut bytes).is_err() {
        bytes = Utc::now().timestamp_nanos_opt().map_or(i128::from(std::process::id()), i128::from).to_le_bytes();
    }
    u128::from_le_bytes(bytes)
}

fn now() -> String {
    rfc3339(Utc::now())
}

fn rfc3339(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
