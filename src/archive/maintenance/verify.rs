//! Verification of an archive: its manifests, its data files, and the consistency of its tables.

use super::verify_tables::TablesVerifier;
use super::verify_versions::VersionsCheck;
use crate::archive::archive::Archive;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::versions::VERSIONS_FOLDER;
use crate::archive::problem::Problem;
use crate::archive::storage::Storage;
use crate::archive::storage::storage_options::StorageOptions;
use crate::archive::table_name::TableName;
use crate::error::{ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers::pool;
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// All problems, in the order in which they were found. Empty if the archive is sound.
    pub problems: Vec<Problem>,
    /// The newest readable version; 0 if no version is readable.
    pub version: u64,
    /// The number of versions that have not expired.
    pub num_versions: u64,
    /// The number of data files checked, including those of older versions.
    pub num_files: u64,
    /// The total size of these files.
    pub num_bytes: u64,
    /// The number of runs in the newest version.
    pub num_runs: u64,
    /// The number of steps in the newest version.
    pub num_steps: u64,
    /// The number of unreferenced data files. They are harmless. `expire` removes them, except the one with the highest run ids.
    pub unnamed_files: u64,
}

/// The maximum number of attempts when versions expire during a check.
const ATTEMPTS: usize = 5;

impl Archive {
    /// Checks an archive and reports every problem, including damage that keeps the archive from being opened.
    ///
    /// Checks the manifest of every version that has not expired, and every data file of these versions:
    /// presence, length, checksum, number of rows and ids. Builds every run of the newest version that has a row in
    /// `runs`, and compares it with its digest, with `runs.verified`, and with the rows that an ingest would write.
    ///
    /// `workers` is the number of threads; `None` = one per core.
    ///
    /// # Errors
    /// [`ErrorKind::NotAnArchive`], [`ErrorKind::Cancelled`]. [`ErrorKind::Io`] if the location cannot be read.
    /// [`ErrorKind::Argument`] for an unknown option of the object store. [`ErrorKind::Conflict`] if other processes
    /// repeatedly replace and expire the newest version during the check. Problems of the archive are no error: the
    /// report lists them.
    pub fn verify(
        location: impl AsRef<Path>,
        workers: Option<usize>,
        options: &StorageOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<VerifyReport> {
        let storage = Storage::new(location.as_ref(), options)?;
        // The check is repeated if the newest version expires meanwhile.
        for _ in 0..ATTEMPTS {
            let VersionsCheck { mut problems, newest, files, num_versions } = VersionsCheck::run(&storage)?;
            let newest = newest.as_ref();
            let num_bytes = files.values().map(|file| file.num_bytes).sum();
            let threads = pool("verify", workers)?;
            let work = ReportedWork::begin(progress, "verify", Unit::Bytes, num_bytes);
            let current = newest.map(Manifest::paths).unwrap_or_default();
            let tables = TablesVerifier { storage: &storage, newest, files: &files, current, progress, cancel };
            threads.install(|| tables.verify(&mut problems))?;
            drop(work);
            let mut unnamed_files = 0;
            for table in TableName::ALL {
                let paths = storage.data_files(table)?;
                unnamed_files += paths.iter().filter(|path| !files.contains_key(*path)).count() as u64;
            }
            let gone: HashSet<String> = match problems.is_empty() {
                true => HashSet::new(),
                false => {
                    let again = VersionsCheck::run(&storage)?;
                    problems.retain(|problem| {
                        !problem.path.starts_with(VERSIONS_FOLDER) || again.problems.contains(problem)
                    });
                    files.keys().filter(|path| !again.files.contains_key(*path)).cloned().collect()
                }
            };
            // Files that `expire` removed meanwhile are not reported. The newest version loses files only if a
            // compaction also replaced them. Then its tables have not been compared with each other.
            if newest.into_iter().flat_map(|newest| &newest.files).all(|file| !gone.contains(&file.path)) {
                problems.retain(|problem| !gone.contains(&problem.path));
                return Ok(VerifyReport {
                    problems,
                    version: newest.map_or(0, |newest| newest.version),
                    num_versions,
                    num_files: files.len() as u64,
                    num_bytes,
                    num_runs: newest.map_or(0, |newest| newest.num_runs),
                    num_steps: newest.map_or(0, |newest| newest.num_steps),
                    unnamed_files,
                });
            }
        }
        let what = format!("the newest version was replaced and expired while it was verified, {ATTEMPTS} times");
        Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
    }
}
