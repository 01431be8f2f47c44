//! `manifest.json`: the size of a dataset and the checksums of its files.

use crate::error::Result;
use crate::format::files::bytes::check_crc;
use crate::format::files::mapped::{header_error, read_json};
use crate::system::clock;
use chrono::SecondsFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

pub(super) const NAME: &str = "manifest.json";
const VERSION: u64 = 1;
/// Enough for the names and checksums of a hundred thousand shards.
const MAX_LEN: u64 = 4 << 20;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    version: u64,
    pub(super) num_steps: u64,
    pub(super) num_runs: u64,
    /// The creation time in RFC 3339. This crate never reads it, because other tools may write another form.
    #[serde(default, skip_deserializing)]
    created: String,
    /// The CRC32C of each file by name, as eight hexadecimal digits.
    #[serde(default)]
    pub(super) crc32c: BTreeMap<String, String>,
}

impl Manifest {
    pub(super) fn new(num_steps: u64, num_runs: u64, crc32c: BTreeMap<String, String>) -> Manifest {
        let created = clock::now().to_rfc3339_opts(SecondsFormat::Secs, true);
        Manifest { version: VERSION, num_steps, num_runs, created, crc32c }
    }

    /// Reads the manifest of a folder. Returns `None` if there is no manifest.
    pub(super) fn read(folder: &Path) -> Result<Option<Manifest>> {
        let path = folder.join(NAME);
        let manifest: Option<Manifest> = read_json(&path, MAX_LEN, "manifest", "version, num_steps and num_runs")?;
        match manifest.as_ref().map(|manifest| manifest.version).filter(|&version| version != VERSION) {
            Some(version) => Err(header_error("version of the manifest", "1", version.to_string(), &path)),
            None => Ok(manifest),
        }
    }

    /// Compares the counts with the actual counts. An interrupted append of another writer may have
    /// added rows after the last run since then, so `covered` rows are also accepted.
    pub(super) fn check(&self, num_rows: u64, covered: u64, num_runs: usize, folder: &Path) -> Result<()> {
        let path = folder.join(NAME);
        if self.num_steps != num_rows && self.num_steps != covered {
            let (expected, found) = (format!("{num_rows}, the number of rows"), self.num_steps.to_string());
            return Err(header_error("num_steps of the manifest", expected, found, &path));
        }
        if self.num_runs != num_runs as u64 {
            let (expected, found) = (format!("{num_runs}, the number of runs"), self.num_runs.to_string());
            return Err(header_error("num_runs of the manifest", expected, found, &path));
        }
        Ok(())
    }
}

/// Compares the stored checksum of a file with its bytes.
pub(super) fn check_file(path: &Path, stored: &str, bytes: &[u8]) -> Result<()> {
    let Some(expected) = u32::from_str_radix(stored, 16).ok().filter(|_| stored.len() == 8) else {
        let found = format!("{stored:?}");
        return Err(header_error("checksums of the manifest", "eight hexadecimal digits", found, path));
    };
    let checked = check_crc(0, "the file", expected, bytes);
    checked.map_err(|error| error.located(|location| location.offset = None).with_path(path))
}
