//! Verification of an archive: its log, its data files, and the consistency of its tables.

use super::chain::Chain;
use super::data_file::DataFile;
use super::digests::Digests;
use super::log::Log;
use super::log_names::{LogNames, digests_path};
use super::problem::Problem;
use super::row_views::RunFacts;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use super::verify_log::{LogCheck, kept_files};
use super::verify_tables::TablesVerifier;
use crate::cancellation::CancellationToken;
use crate::error::{ErrorKind, Result};
use crate::progress::{Progress, Unit};
use crate::workers::pool;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// All problems, in the order in which they were found. Empty if the archive is sound.
    pub problems: Vec<Problem>,
    /// The newest readable version; 0 if no version is readable.
    pub version: u64,
    /// The number of commits in the log.
    pub num_commits: u64,
    /// The number of data files checked, including those of older versions.
    pub num_files: u64,
    /// The total size of these files.
    pub num_bytes: u64,
    /// The number of runs in the newest version.
    pub num_runs: u64,
    /// The number of steps in the newest version.
    pub num_steps: u64,
    /// The number of unreferenced data files. They are harmless, and `expire` removes them.
    pub unnamed_files: u64,
}

/// The maximum number of attempts when versions expire during a check.
const ATTEMPTS: usize = 5;

/// Verifies an archive. Repeats the check if the newest version expires meanwhile.
pub(super) fn verify(
    storage: &Storage,
    workers: Option<usize>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<VerifyReport> {
    let log = Log::new(storage);
    for _ in 0..ATTEMPTS {
        let names = log.settled_names()?;
        if names.newest_commit().is_none() && names.checkpoints.is_empty() {
            log.replay(None)?;
        }
        let LogCheck { mut problems, newest, files } = LogCheck::run(storage, &log, &names)?;
        let newest = newest.as_ref();
        let num_bytes = files.values().map(|file| file.num_bytes).sum();
        let threads = pool("verify", workers)?;
        progress.begin("verify", Unit::Bytes, num_bytes);
        let tables = TablesVerifier::new(storage, newest, &files, progress, cancel);
        let outcome = threads.install(|| tables.verify(&mut problems));
        progress.end();
        let runs = outcome?;
        problems.extend(check_digests(storage, &names, newest, &runs)?);
        let unnamed_files = count_unnamed(storage, &files)?;
        let gone = match problems.is_empty() {
            true => HashSet::new(),
            false => expired(storage, &log, &files)?,
        };
        // Files that `expire` removed meanwhile are not reported. The newest version loses files only if a
        // compaction also replaced them. Then its tables have not been compared with each other.
        if newest.into_iter().flat_map(|newest| &newest.files).all(|file| !gone.contains(&file.path)) {
            problems.retain(|problem| !gone.contains(&problem.path));
            let commit = newest.map(|newest| &newest.newest);
            return Ok(VerifyReport {
                problems,
                version: commit.map_or(0, |commit| commit.version),
                num_commits: names.commits.len() as u64,
                num_files: files.len() as u64,
                num_bytes,
                num_runs: commit.map_or(0, |commit| commit.num_runs),
                num_steps: commit.map_or(0, |commit| commit.num_steps),
                unnamed_files,
            });
        }
    }
    let what = format!("the newest version was replaced and expired while it was verified, {ATTEMPTS} times");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Returns the given files that no remaining version references.
fn expired(storage: &Storage, log: &Log, files: &BTreeMap<String, DataFile>) -> Result<HashSet<String>> {
    let chain = Chain::read(storage, log, &log.settled_names()?)?;
    let kept = kept_files(&chain);
    Ok(files.keys().filter(|path| !kept.contains_key(*path)).cloned().collect())
}

/// Checks the files of digests, which repeat the digests in `runs`.
fn check_digests(
    storage: &Storage,
    names: &LogNames,
    newest: Option<&Snapshot>,
    runs: &HashMap<u32, RunFacts>,
) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for &version in &names.digests {
        let path = digests_path(version);
        let beyond = newest.is_none_or(|newest| version > newest.newest.version);
        match Digests::read(storage, version) {
            // The file was pruned after the listing.
            Ok(None) => {}
            Ok(Some((digests, next_run_id, _))) => {
                let covered = runs.values().filter(|run| u64::from(run.run_id) < next_run_id);
                let covered: Vec<&RunFacts> = covered.collect();
                let expected: HashSet<&[u8; 32]> = covered.iter().map(|run| &run.digest).collect();
                let games: HashSet<i64> = covered.iter().filter_map(|run| run.game).collect();
                let missing = expected.iter().filter(|digest| !digests.contains(digest)).count()
                    + games.iter().filter(|game| !digests.contains_game(**game)).count();
                // The runs of a version that cannot be determined are not compared.
                if !beyond && (missing > 0 || digests.len() != expected.len() + games.len()) {
                    let found = format!("{} keys, {missing} missing", digests.len());
                    let expected = format!("the {} digests and {} games of the runs", expected.len(), games.len());
                    problems.push(Problem::new(&path, "digests", expected, found));
                }
            }
            Err(error) => problems.push(Problem::of_error(&path, &error)),
        }
    }
    Ok(problems)
}

/// Returns the number of data files that no version names.
fn count_unnamed(storage: &Storage, files: &BTreeMap<String, DataFile>) -> Result<u64> {
    let mut count = 0;
    for table in TableName::ALL {
        let names = storage.names(table.name())?.unwrap_or_default();
        let unnamed = |name: &&String| name.ends_with(".parquet") && !files.contains_key(&format!("{table}/{name}"));
        count += names.iter().filter(unnamed).count() as u64;
    }
    Ok(count)
}
