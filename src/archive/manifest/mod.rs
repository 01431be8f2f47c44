//! Manifests: the contents of an archive at one version, in one file.
//!
//! A manifest lists all data files of its version. It is one JSON object with a trailer, the last 22 bytes of the file:
//! `,"crc32c":"<8 digits>"}` and a newline. The trailer holds the CRC32C of all bytes before it. So a manifest is valid
//! JSON, and its bytes can be checked without parsing them.

pub(in crate::archive) mod data_file;
mod tagging;
pub(in crate::archive) mod tags;
pub(in crate::archive) mod transaction;
pub(in crate::archive) mod versions;

use self::data_file::DataFile;
use crate::archive::phases::Phases;
use crate::archive::schema::SCHEMA_VERSION;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::random;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// The kind of change that a version makes.
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
    /// Continued from an older version.
    Restore,
    /// Added, replaced or dropped the annotations of a model.
    Annotate,
}

/// A line of [`Archive::history`](crate::archive::Archive::history).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// The number of runs added.
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

/// The contents of an archive at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u64,
    pub(crate) schema_version: u32,
    pub(crate) archive_id: String,
    /// The unique id of the transaction that made this version. A writer whose answer was lost looks for it.
    pub(crate) txn: String,
    /// The transaction that made the version before.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) parent: Option<String>,
    /// Empty until the manifest is published.
    pub(crate) time: String,
    pub(crate) operation: Operation,
    pub(crate) phases: Phases,
    /// The oldest version that needs no tag. An older version exists while it is tagged, and until the expiry after that.
    pub(crate) first_version: u64,
    /// The older versions that the last expiry certainly kept, because they were tagged.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) kept_versions: Vec<u64>,
    /// Files that were written before this time, and that no earlier version lists, may be removed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) unlisted_before: Option<String>,
    /// The first run id that is not assigned.
    pub(crate) next_run_id: u64,
    pub(crate) num_runs: u64,
    pub(crate) num_steps: u64,
    /// The change since the version before.
    pub(crate) added_runs: u64,
    pub(crate) added_steps: u64,
    pub(crate) added_files: u64,
    pub(crate) removed_files: u64,
    /// The files of all tables, in the order of tables, models and first run ids.
    pub(crate) files: Vec<DataFile>,
}

impl Operation {
    /// Returns `"create"`, `"ingest"`, `"compact"`, `"expire"`, `"restore"` or `"annotate"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["create", "ingest", "compact", "expire", "restore", "annotate"][self as usize]
    }
}

impl Manifest {
    /// Returns the manifest of a new archive.
    pub(in crate::archive) fn first(phases: Phases) -> Manifest {
        Manifest {
            version: 1,
            schema_version: SCHEMA_VERSION,
            archive_id: random::id(),
            txn: random::id(),
            parent: None,
            time: String::new(),
            operation: Operation::Create,
            phases,
            first_version: 1,
            kept_versions: Vec::new(),
            unlisted_before: None,
            next_run_id: 0,
            num_runs: 0,
            num_steps: 0,
            added_runs: 0,
            added_steps: 0,
            added_files: 0,
            removed_files: 0,
            files: Vec::new(),
        }
    }

    /// Returns whether certainly no expiry up to this manifest has dropped `version`.
    pub(in crate::archive) fn keeps(&self, version: u64) -> bool {
        version >= self.first_version || self.kept_versions.contains(&version)
    }

    /// Returns the next version, without changes.
    pub(in crate::archive) fn next(&self, operation: Operation) -> Manifest {
        Manifest {
            version: self.version + 1,
            txn: random::id(),
            parent: Some(self.txn.clone()),
            time: String::new(),
            operation,
            added_runs: 0,
            added_steps: 0,
            added_files: 0,
            removed_files: 0,
            ..self.clone()
        }
    }

    /// Removes files from this version and adds others.
    pub(in crate::archive) fn replace(&mut self, removed: &HashSet<String>, added: Vec<DataFile>) {
        let (num_files, num_runs, num_steps) = (self.files.len(), self.num_runs, self.num_steps);
        self.files.retain(|file| !removed.contains(&file.path));
        self.removed_files = (num_files - self.files.len()) as u64;
        self.added_files = added.len() as u64;
        self.files.extend(added);
        self.files.sort_by(|a, b| a.order().cmp(&b.order()));
        (self.num_runs, self.num_steps) = (rows(&self.files, TableName::Runs), rows(&self.files, TableName::Steps));
        // A version that continues from an older one has fewer.
        self.added_runs = self.num_runs.saturating_sub(num_runs);
        self.added_steps = self.num_steps.saturating_sub(num_steps);
    }

    /// Returns a table's files in the order of their run ids. The files of `annotations` are ordered by model first.
    pub(crate) fn files(&self, table: TableName) -> impl Iterator<Item = &DataFile> {
        self.files.iter().filter(move |file| file.table == table)
    }

    /// Returns the paths of the files.
    pub(in crate::archive) fn paths(&self) -> HashSet<&str> {
        self.files.iter().map(|file| file.path.as_str()).collect()
    }

    /// Returns the paths of the files that the transaction of this version wrote.
    pub(in crate::archive) fn own_paths(&self) -> impl Iterator<Item = &str> {
        let suffix = DataFile::suffix(&self.txn);
        self.files.iter().map(|file| file.path.as_str()).filter(move |path| path.ends_with(&suffix))
    }

    /// Returns the line of the history.
    pub(in crate::archive) fn info(&self) -> CommitInfo {
        CommitInfo {
            version: self.version,
            time: self.time.clone(),
            operation: self.operation,
            txn: self.txn.clone(),
            added_runs: self.added_runs,
            added_steps: self.added_steps,
            next_run_id: self.next_run_id,
            num_runs: self.num_runs,
            num_steps: self.num_steps,
            added_files: self.added_files,
            removed_files: self.removed_files,
        }
    }

    /// Encodes the manifest with its checksum.
    pub(in crate::archive) fn seal(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self).map_err(Error::other)?;
        // The object's closing brace belongs to the trailer.
        bytes.pop();
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(format!(",\"crc32c\":\"{crc:08x}\"}}\n").as_bytes());
        Ok(bytes)
    }

    /// Checks and parses the manifest of a version.
    pub(in crate::archive) fn from_bytes(bytes: &[u8], version: u64, path: &Path) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Header {
            schema_version: u32,
        }
        check_seal(bytes, path)?;
        let parse_error = |error: serde_json::Error| Error::damaged(path, "manifest", "its fields", error);
        let parsed = serde_json::from_slice::<Manifest>(bytes);
        let found = match &parsed {
            Ok(manifest) => manifest.schema_version,
            // Another version may have other fields.
            Err(_) => serde_json::from_slice::<Header>(bytes).map_err(parse_error)?.schema_version,
        };
        if found != SCHEMA_VERSION {
            return Err(ErrorKind::SchemaVersion { path: path.to_path_buf(), supported: SCHEMA_VERSION, found }.into());
        }
        let manifest = parsed.map_err(parse_error)?;
        manifest.check(version, path)?;
        Ok(manifest)
    }

    /// Checks that the file has the name of its version, and that the numbers are in their ranges.
    fn check(&self, version: u64, path: &Path) -> Result<()> {
        const MAX_IDS: u64 = 1 << 32;
        if self.version != version {
            return Err(Error::damaged(path, "version", version, self.version));
        }
        if self.next_run_id > MAX_IDS {
            return Err(Error::damaged(path, "next_run_id", format!("at most {MAX_IDS}"), self.next_run_id));
        }
        if !(1..=self.version).contains(&self.first_version) {
            let expected = format!("1..={}", self.version);
            return Err(Error::damaged(path, "first_version", expected, self.first_version));
        }
        Ok(())
    }
}

/// Returns the number of rows of a table's files.
pub(in crate::archive) fn rows(files: &[DataFile], table: TableName) -> u64 {
    files.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum()
}

/// Checks the bytes before a trailer against its checksum.
fn check_seal(bytes: &[u8], path: &Path) -> Result<()> {
    const TRAILER_LEN: usize = r#","crc32c":"00000000"}"#.len() + 1;
    let crc = bytes.len().checked_sub(TRAILER_LEN).and_then(|len| {
        let (body, trailer) = bytes.split_at(len);
        let digits = trailer.strip_prefix(b",\"crc32c\":\"")?.strip_suffix(b"\"}\n")?;
        Some((body, std::str::from_utf8(digits).ok()?))
    });
    let Some((body, stored)) = crc else {
        let found = format!("{} bytes without a checksum", bytes.len());
        return Err(Error::damaged(path, "end of the file", "a checksum", found));
    };
    let found = format!("{:08x}", crc32c::crc32c(body));
    if stored != found {
        return Err(Error::damaged(path, "CRC32C of the manifest", stored, found));
    }
    Ok(())
}
