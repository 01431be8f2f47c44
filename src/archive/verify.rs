//! Everything that is wrong with an archive: its log, its files, and what the tables say of each other.

use super::TableName;
use super::check::check_file;
use super::checkpoint::{Checkpoint, Names};
use super::commit::{Commit, DataFile};
use super::decode::digest;
use super::digests::Digests;
use super::log::{Log, Snapshot, check_link, commit_path};
use super::rebuild::{RunFacts, StepRows, run_facts};
use super::schema::Phases;
use super::storage::Storage;
use super::transaction::pool;
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode_run;
use crate::progress::{Progress, Unit, check};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// How closely to look.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Also rebuilds every run from its columns: its digest, and every transition against the rules.
    pub deep: bool,
    /// Threads; `None` = one per core.
    pub workers: Option<usize>,
}

/// Something that is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file, relative to the archive.
    pub path: String,
    /// The run, where one is to blame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u32>,
    /// What about it.
    pub what: String,
    /// What the rest of the archive demands.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// What was looked at, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Everything that is wrong, by file. Empty: the archive is sound.
    pub problems: Vec<Problem>,
    /// The newest version that could be read; 0 if none could.
    pub version: u64,
    /// Commits that were read.
    pub num_commits: u64,
    /// Data files that were read, those of older versions included.
    pub num_files: u64,
    /// Bytes of them.
    pub num_bytes: u64,
    /// Runs of the newest version.
    pub num_runs: u64,
    /// Steps of the newest version.
    pub num_steps: u64,
    /// Data files that no kept version names; they do no harm, and `expire` removes them.
    pub unnamed_files: u64,
}

impl Problem {
    #[allow(clippy::needless_pass_by_value)] // Numbers and text alike, without a borrow at every call.
    pub(super) fn new(path: &str, what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Problem {
        let (what, expected, found) = (what.into(), expected.to_string(), found.to_string());
        Problem { path: path.to_owned(), run_id: None, what, expected, found }
    }

    fn of_error(path: &str, error: &Error) -> Problem {
        match error.kind() {
            ErrorKind::Damaged { what, expected, found, .. } => Problem::new(path, *what, expected, found),
            _ => Problem::new(path, "file", "one that can be read", error.message()),
        }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: ", self.path)?;
        if let Some(run_id) = self.run_id {
            write!(f, "run {run_id}: ")?;
        }
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

pub(super) fn verify(storage: &Storage, options: &VerifyOptions, progress: &dyn Progress) -> Result<VerifyReport> {
    let log = Log::new(storage);
    let names = log.names()?;
    if names.newest_commit().is_none() && names.checkpoints.is_empty() {
        log.replay(None)?;
    }
    let mut verifier = Verifier { storage, log, options, progress, report: VerifyReport::default() };
    let (newest, files) = verifier.commits(&names)?;
    if let Some(newest) = &newest {
        verifier.report.version = newest.newest.version;
        (verifier.report.num_runs, verifier.report.num_steps) = (newest.newest.num_runs, newest.newest.num_steps);
    }
    let threads = pool("verify", options.workers)?;
    progress.begin("verify", Unit::Bytes, files.values().map(|file| file.num_bytes).sum());
    let outcome = threads.install(|| verifier.files(newest.as_ref(), &files));
    progress.end();
    let known = outcome?;
    verifier.shortcuts(&names, newest.as_ref(), &known)?;
    verifier.unnamed(&files)?;
    Ok(verifier.report)
}

struct Verifier<'a> {
    storage: &'a Storage,
    log: Log,
    options: &'a VerifyOptions,
    progress: &'a dyn Progress,
    report: VerifyReport,
}

impl Verifier<'_> {
    fn problem(&mut self, problem: Problem) {
        self.report.problems.push(problem);
    }

    /// Checks every kept commit: the newest version that can be read, and all files that any kept version names.
    fn commits(&mut self, names: &Names) -> Result<(Option<Snapshot>, BTreeMap<String, DataFile>)> {
        let newest_number = names.newest_commit().unwrap_or_default();
        let newest = self.log.replay(None).ok();
        let first_version = match &newest {
            Some(newest) => newest.newest.first_version,
            None => {
                names.commits.iter().rev().find_map(|&n| self.log.commit(n).ok()).map_or(1, |(c, _)| c.first_version)
            }
        };
        let mut files = BTreeMap::new();
        let mut state: Option<Snapshot> = None;
        if first_version > 1 {
            let path = Checkpoint::path(first_version);
            match Checkpoint::read(self.storage, first_version) {
                Ok(Some(checkpoint)) => state = Some(checkpoint.into_snapshot()),
                Ok(None) => self.problem(Problem::new(&path, "checkpoint of the oldest version", "one", "no file")),
                Err(error) => self.problem(Problem::of_error(&path, &error)),
            }
            files.extend(state.iter().flat_map(|state| &state.files).map(|file| (file.path.clone(), file.clone())));
        }
        for number in first_version..=newest_number.max(names.checkpoints.last().copied().unwrap_or_default()) {
            check(self.progress)?;
            let path = commit_path(number);
            let shown = self.storage.path(&path);
            let read = match self.storage.read(&path) {
                Ok(Some(bytes)) => Commit::from_bytes(&bytes, &shown),
                Ok(None) => {
                    self.problem(Problem::new(&path, "commit", "one in every version's place", "no file"));
                    state = None;
                    continue;
                }
                Err(error) => Err(error),
            };
            self.report.num_commits += 1;
            let (commit, crc) = match read {
                Ok(read) => read,
                Err(error) => {
                    self.problem(Problem::of_error(&path, &error));
                    state = None;
                    continue;
                }
            };
            files.extend(commit.add.iter().map(|file| (file.path.clone(), file.clone())));
            // The first of them is what its checkpoint says.
            if first_version > 1 && number == first_version {
                if let Some(base) = &state
                    && base.newest_crc != crc
                {
                    self.problem(Problem::new(&path, "CRC32C of the commit", &base.newest_crc, crc));
                }
                continue;
            }
            match &mut state {
                Some(before) => {
                    let link = check_link(&commit, number, Some(before.newest_crc.clone()), &shown);
                    self.report.problems.extend(link.err().map(|error| Problem::of_error(&path, &error)));
                    self.report.problems.extend(sums(&path, before, &commit));
                    before.apply(commit, crc);
                }
                // After a gap the chain begins anew.
                None if number > 1 => state = self.log.replay(Some(number)).ok(),
                None => state = Some(Snapshot::first(commit, crc)),
            }
        }
        Ok((newest, files))
    }

    /// Checks every file, and for the newest version that `runs` and `steps` agree; the digests of its runs.
    fn files(
        &mut self,
        newest: Option<&Snapshot>,
        files: &BTreeMap<String, DataFile>,
    ) -> Result<HashMap<u32, RunFacts>> {
        let current: HashSet<&str> =
            newest.iter().flat_map(|newest| &newest.files).map(|file| file.path.as_str()).collect();
        let phases = newest.map_or_else(Phases::default, |newest| newest.newest.phases);
        let of = |table| files.values().filter(move |file| file.table == table).collect::<Vec<_>>();
        let (storage, progress, deep) = (self.storage, self.progress, self.options.deep);

        let facts: Mutex<HashMap<u32, RunFacts>> = Mutex::default();
        let originals = |facts: &RunFacts, original: Option<&[u8]>| -> Option<(String, String)> {
            let original = original.filter(|_| deep)?;
            let found = decode_run(original).and_then(|(run, _)| digest(&run));
            match found {
                Ok(found) if found == facts.digest => None,
                Ok(found) => Some((hex(&facts.digest), hex(&found))),
                Err(error) => Some(("a run".into(), error.message())),
            }
        };
        let check_runs = |file: &DataFile| {
            let problems = check_file(storage, file, progress, &mut |batch, findings| {
                for (run, original) in run_facts(batch)? {
                    if let Some((expected, found)) = originals(&run, original) {
                        findings.add_for_run(run.run_id, "digest of the original", expected, found);
                    }
                    if !run.known_format() {
                        findings.add_for_run(run.run_id, "format", "one that is known", &run.format);
                    }
                    if current.contains(file.path.as_str()) {
                        facts.lock().unwrap_or_else(PoisonError::into_inner).insert(run.run_id, run);
                    }
                }
                Ok(())
            });
            progress.advance(file.num_bytes);
            problems
        };
        let problems: Vec<Vec<Problem>> = of(TableName::Runs).into_par_iter().map(check_runs).collect::<Result<_>>()?;
        self.report.problems.extend(problems.into_iter().flatten());
        let facts = facts.into_inner().unwrap_or_else(PoisonError::into_inner);

        let seen: Mutex<HashMap<u32, u64>> = Mutex::default();
        let check_steps = |file: &DataFile| {
            let is_current = current.contains(file.path.as_str());
            let problems = check_file(storage, file, progress, &mut |batch, findings| {
                let rows = StepRows::new(batch)?;
                for run in rows.runs() {
                    let run_id = rows.run_id[run.start];
                    let run_facts = facts.get(&run_id).filter(|_| is_current);
                    if is_current {
                        *seen.lock().unwrap_or_else(PoisonError::into_inner).entry(run_id).or_default() += 1;
                        if run_facts.is_none() {
                            findings.add_for_run(run_id, "run", "a row of `runs`", "none");
                        }
                    }
                    let wrong = rows.check_derived(run.clone(), run_facts, phases);
                    let damaged = !wrong.is_empty();
                    for (what, expected, found) in wrong {
                        findings.add_for_run(run_id, what, expected, found);
                    }
                    if let (true, false, Some(facts)) = (deep, damaged, run_facts) {
                        check(progress)?;
                        let run = rows.run(run, facts.meta.clone(), facts.final_board)?;
                        let violation = run.verify().err();
                        if violation.is_none() != facts.verified {
                            let found = violation.map_or("none".into(), |violation| violation.to_string());
                            let expected =
                                if facts.verified { "a game by the rules" } else { "a violation of the rules" };
                            findings.add_for_run(run_id, "trajectory", expected, found);
                        }
                        let found = digest(&run)?;
                        // What the columns cannot give back is checked against the file that is kept.
                        if found != facts.digest && !facts.has_original {
                            findings.add_for_run(run_id, "digest", hex(&facts.digest), hex(&found));
                        }
                    }
                }
                Ok(())
            });
            progress.advance(file.num_bytes);
            problems
        };
        let problems: Vec<Vec<Problem>> =
            of(TableName::Steps).into_par_iter().map(check_steps).collect::<Result<_>>()?;
        self.report.problems.extend(problems.into_iter().flatten());
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);

        self.report.num_files = files.len() as u64;
        self.report.num_bytes = files.values().map(|file| file.num_bytes).sum();
        if let Some(newest) = newest {
            self.tables(newest, &facts, &seen);
        }
        Ok(facts)
    }

    /// What the newest version says as a whole.
    fn tables(&mut self, newest: &Snapshot, facts: &HashMap<u32, RunFacts>, seen: &HashMap<u32, u64>) {
        let path = commit_path(newest.newest.version);
        let file_of = |table, run_id: u32| {
            let has = |file: &&DataFile| (file.first_run_id..=file.last_run_id).contains(&run_id);
            newest.files(table).find(has).map_or_else(|| path.clone(), |file| file.path.clone())
        };
        let mut problems = Vec::new();
        for table in TableName::ALL {
            let files: Vec<&DataFile> = newest.files(table).collect();
            for pair in files.windows(2) {
                if pair[0].last_run_id >= pair[1].first_run_id {
                    let expected = format!("above {}", pair[0].last_run_id);
                    problems.push(Problem::new(&pair[1].path, "first run id", expected, pair[1].first_run_id));
                }
            }
        }
        let mut by_digest: HashMap<[u8; 32], u32> = HashMap::new();
        let mut ids: Vec<&u32> = facts.keys().collect();
        ids.sort_unstable();
        for run_id in ids {
            let run = &facts[run_id];
            let mut add = |what: &str, expected: String, found: String| {
                let problem = Problem::new(&file_of(TableName::Runs, *run_id), what, expected, found);
                problems.push(Problem { run_id: Some(*run_id), ..problem });
            };
            if let Some(other) = by_digest.insert(run.digest, *run_id) {
                add("digest", "one that no other run has".into(), format!("that of run {other}"));
            }
            if u64::from(*run_id) >= newest.newest.next_run_id {
                add("run id", format!("below {}", newest.newest.next_run_id), run_id.to_string());
            }
            let expected = u64::from(run.num_steps > 0);
            let found = seen.get(run_id).copied().unwrap_or_default();
            if expected != found {
                add("steps of the run", format!("in {expected} places"), format!("in {found}"));
            }
            let commit = newest.history.iter().find(|commit| commit.next_run_id > u64::from(*run_id));
            if let (Some(version), Some(commit)) = (run.version, commit)
                && version != commit.version
            {
                add("version", commit.version.to_string(), version.to_string());
            }
        }
        if facts.len() as u64 != newest.newest.num_runs {
            problems.push(Problem::new(&path, "number of runs", newest.newest.num_runs, facts.len()));
        }
        let num_steps: u64 = newest.files(TableName::Steps).map(|file| file.num_rows).sum();
        if num_steps != newest.newest.num_steps {
            problems.push(Problem::new(&path, "number of steps", newest.newest.num_steps, num_steps));
        }
        self.report.problems.extend(problems);
    }

    /// Checks checkpoints and digests, which repeat what the commits and `runs` say.
    fn shortcuts(&mut self, names: &Names, newest: Option<&Snapshot>, known: &HashMap<u32, RunFacts>) -> Result<()> {
        for &version in &names.checkpoints {
            check(self.progress)?;
            let path = Checkpoint::path(version);
            match Checkpoint::read(self.storage, version) {
                Ok(Some(checkpoint)) => {
                    if !self.log.has_crc(version, checkpoint.crc())? {
                        self.problem(Problem::new(
                            &path,
                            "CRC32C of its commit",
                            "that of the commit",
                            checkpoint.crc(),
                        ));
                    }
                }
                // Pruned since it was listed.
                Ok(None) => {}
                Err(error) => self.problem(Problem::of_error(&path, &error)),
            }
        }
        for &version in &names.digests {
            let path = Digests::path(version);
            let Some(bytes) = self.storage.read(&path)? else { continue };
            match Digests::from_bytes(&bytes, &self.storage.path(&path)) {
                Ok((digests, next_run_id, _)) => {
                    let covered = known.values().filter(|run| u64::from(run.run_id) < next_run_id);
                    let (mut num_runs, mut missing) = (0, 0);
                    for run in covered {
                        num_runs += 1;
                        missing += usize::from(!digests.contains(&run.digest));
                    }
                    if newest.is_some() && (missing > 0 || digests.len() != num_runs) {
                        let found = format!("{} digests, {missing} missing", digests.len());
                        self.problem(Problem::new(&path, "digests", format!("those of {num_runs} runs"), found));
                    }
                }
                Err(error) => self.problem(Problem::of_error(&path, &error)),
            }
        }
        Ok(())
    }

    fn unnamed(&mut self, files: &BTreeMap<String, DataFile>) -> Result<()> {
        for table in TableName::ALL {
            let names = self.storage.names(table.name())?.unwrap_or_default();
            let unnamed =
                |name: &&String| name.ends_with(".parquet") && !files.contains_key(&format!("{}/{name}", table.name()));
            self.report.unnamed_files += names.iter().filter(unnamed).count() as u64;
        }
        Ok(())
    }
}

/// What is wrong with the numbers that a commit carries on.
fn sums(path: &str, before: &Snapshot, commit: &Commit) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut expect = |what: &str, expected: &dyn ToString, found: &dyn ToString| {
        if expected.to_string() != found.to_string() {
            problems.push(Problem::new(path, what, expected.to_string(), found.to_string()));
        }
    };
    let old = &before.newest;
    let rows = |table| -> i128 {
        let added: u64 = commit.add.iter().filter(|file| file.table == table).map(|file| file.num_rows).sum();
        let removed = before.files(table).filter(|file| commit.remove.contains(&file.path));
        i128::from(added) - i128::from(removed.map(|file| file.num_rows).sum::<u64>())
    };
    expect("num_runs", &(i128::from(old.num_runs) + rows(TableName::Runs)), &commit.num_runs);
    expect("num_steps", &(i128::from(old.num_steps) + rows(TableName::Steps)), &commit.num_steps);
    expect("archive_id", &old.archive_id, &commit.archive_id);
    expect("phases", &format!("{:?}", old.phases), &format!("{:?}", commit.phases));
    if commit.next_run_id < old.next_run_id {
        expect("next_run_id", &format!("at least {}", old.next_run_id), &commit.next_run_id);
    }
    if commit.first_version < old.first_version || commit.first_version > commit.version {
        let expected = format!("{}..={}", old.first_version, commit.version);
        expect("first_version", &expected, &commit.first_version);
    }
    let there: HashSet<&str> = before.files.iter().map(|file| file.path.as_str()).collect();
    for removed in commit.remove.iter().filter(|path| !there.contains(path.as_str())) {
        expect("removed file", &"one that was there", removed);
    }
    for added in commit.add.iter().filter(|file| there.contains(file.path.as_str())) {
        expect("added file", &"a new one", &added.path);
    }
    problems
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
