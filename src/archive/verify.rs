//! Everything that is wrong with an archive: its log, its files, and what the tables say of each other.

use super::TableName;
use super::check::check_file;
use super::checkpoint::{Checkpoint, Names};
use super::commit::{Commit, DataFile, Operation};
use super::decode::digest;
use super::digests::Digests;
use super::log::{Log, Snapshot, check_link, commit_path};
use super::rebuild::{RunFacts, StepRows, run_facts};
use super::schema::Phases;
use super::storage::Storage;
use crate::error::{Error, ErrorKind, Result};
use crate::format::decode_run;
use crate::progress::{Progress, Unit, check};
use crate::workers::pool;
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
    let (newest, files) = verifier.commits(&names);
    if let Some(newest) = &newest {
        verifier.report.version = newest.newest.version;
        (verifier.report.num_runs, verifier.report.num_steps) = (newest.newest.num_runs, newest.newest.num_steps);
    }
    let threads = pool("verify", options.workers)?;
    progress.begin("verify", Unit::Bytes, files.values().map(|file| file.num_bytes).sum());
    let outcome = threads.install(|| verifier.files(newest.as_ref(), &files));
    progress.end();
    let known = outcome?;
    verifier.digests(&names, newest.as_ref(), &known)?;
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

    /// Checks every commit and checkpoint: the newest version that can be read, and all files that a kept version names.
    fn commits(&mut self, names: &Names) -> (Option<Snapshot>, BTreeMap<String, DataFile>) {
        let mut state: Option<Snapshot> = None;
        let mut newest: Option<Snapshot> = None;
        // By version, what it named and what it added.
        let mut named: Vec<(u64, Vec<DataFile>)> = Vec::new();
        let mut expected = 1;
        for &number in &names.commits {
            let path = commit_path(number);
            let shown = self.storage.path(&path);
            if number != expected {
                let found = format!("none of {expected} to {}", number - 1);
                self.problem(Problem::new(&commit_path(expected), "commits", "one of every version", found));
                newest = state.take().or(newest);
            }
            expected = number.saturating_add(1);
            self.report.num_commits += 1;
            let (commit, crc) = match self.log.commit(number) {
                Ok(read) => read,
                Err(error) => {
                    self.problem(Problem::of_error(&path, &error));
                    newest = state.take().or(newest);
                    continue;
                }
            };
            let added = commit.add.clone();
            state = match state.take() {
                Some(mut before) => {
                    let link = check_link(&commit, number, Some(before.newest_crc.clone()), &shown);
                    self.report.problems.extend(link.err().map(|error| Problem::of_error(&path, &error)));
                    self.report.problems.extend(sums(&path, &before, &commit));
                    before.apply(commit, crc);
                    Some(before)
                }
                // After a gap the chain begins anew at a checkpoint.
                None if number > 1 => match Checkpoint::read(self.storage, number) {
                    Ok(Some(checkpoint)) if checkpoint.crc() == crc => Some(checkpoint.into_snapshot()),
                    _ => None,
                },
                None => {
                    let link = check_link(&commit, number, None, &shown);
                    self.report.problems.extend(link.err().map(|error| Problem::of_error(&path, &error)));
                    Some(Snapshot::first(commit, crc))
                }
            };
            named.push((number, added));
            if let Some(state) = &state
                && names.checkpoints.binary_search(&number).is_ok()
            {
                let problem = self.checkpoint(number, state);
                self.report.problems.extend(problem);
            }
        }
        let newest = state.or(newest).map(Snapshot::sort);
        for &version in &names.checkpoints {
            let path = Checkpoint::path(version);
            if names.commits.binary_search(&version).is_err() {
                self.problem(Problem::new(&commit_path(version), "commit", "that of its checkpoint", "no file"));
            }
            // Those of sound commits were compared above.
            if let Err(error) = Checkpoint::read(self.storage, version)
                && !self.report.problems.iter().any(|problem| problem.path == path)
            {
                self.problem(Problem::of_error(&path, &error));
            }
        }
        let first_version = newest.as_ref().map_or(1, |newest| newest.newest.first_version);
        let mut files: BTreeMap<String, DataFile> = BTreeMap::new();
        let first = self.log.replay(Some(first_version)).map(|first| first.files).unwrap_or_default();
        let after = named.into_iter().filter(|(version, _)| *version > first_version).flat_map(|(_, added)| added);
        files.extend(first.into_iter().chain(after).map(|file| (file.path.clone(), file)));
        (newest, files)
    }

    /// That a checkpoint says what the commits say.
    fn checkpoint(&self, version: u64, state: &Snapshot) -> Option<Problem> {
        let path = Checkpoint::path(version);
        let found = match Checkpoint::read(self.storage, version) {
            Ok(Some(checkpoint)) => checkpoint.into_snapshot(),
            // Pruned since it was listed.
            Ok(None) => return None,
            Err(error) => return Some(Problem::of_error(&path, &error)),
        };
        let expected = state.clone().sort();
        let plain = |commit: &Commit| Commit { add: Vec::new(), remove: Vec::new(), ..commit.clone() };
        let part = if found.newest_crc != expected.newest_crc || plain(&found.newest) != plain(&expected.newest) {
            "commit"
        } else if found.files != expected.files {
            "files"
        } else if found.history != expected.history {
            "history"
        } else {
            return None;
        };
        Some(Problem::new(&path, format!("{part} of the checkpoint"), "as the commits have it", "other values"))
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
                    if run.source_format().is_none() {
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
        // Recorded games may be equal; each has an id in its recording.
        let mut by_identity: HashMap<(&[u8; 32], Option<(&str, u64)>), u32> = HashMap::new();
        let mut ids: Vec<&u32> = facts.keys().collect();
        ids.sort_unstable();
        for run_id in ids {
            let run = &facts[run_id];
            let mut add = |what: &str, expected: String, found: String| {
                let problem = Problem::new(&file_of(TableName::Runs, *run_id), what, expected, found);
                problems.push(Problem { run_id: Some(*run_id), ..problem });
            };
            let recorded = run.session.as_deref().zip(run.source_id);
            if let Some(other) = by_identity.insert((&run.digest, recorded), *run_id) {
                let expected = match recorded {
                    Some((session, id)) => format!("one that no other run with id {id} in {session} has"),
                    None => "one that no other run has".into(),
                };
                add("digest", expected, format!("that of run {other}"));
            }
            if u64::from(*run_id) >= newest.newest.next_run_id {
                add("run id", format!("below {}", newest.newest.next_run_id), run_id.to_string());
            }
            let expected = u64::from(run.num_steps > 0);
            let found = seen.get(run_id).copied().unwrap_or_default();
            if expected != found {
                add("steps of the run", format!("in {expected} places"), format!("in {found}"));
            }
            let at = newest.history.partition_point(|commit| commit.next_run_id <= u64::from(*run_id));
            // A repair takes over runs that other commits added.
            if let (Some(version), Some(commit)) = (run.version, newest.history.get(at))
                && version != commit.version
                && commit.operation != Operation::Repair
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

    /// Checks the files of digests, which repeat what `runs` says.
    fn digests(&mut self, names: &Names, newest: Option<&Snapshot>, known: &HashMap<u32, RunFacts>) -> Result<()> {
        for &version in &names.digests {
            let path = Digests::path(version);
            let Some(bytes) = self.storage.read(&path)? else { continue };
            match Digests::from_bytes(&bytes, &self.storage.path(&path)) {
                Ok((digests, next_run_id, _)) => {
                    let covered = known.values().filter(|run| u64::from(run.run_id) < next_run_id);
                    let expected: HashSet<&[u8; 32]> = covered.map(|run| &run.digest).collect();
                    let missing = expected.iter().filter(|digest| !digests.contains(digest)).count();
                    if newest.is_some() && (missing > 0 || digests.len() != expected.len()) {
                        let found = format!("{} digests, {missing} missing", digests.len());
                        let expected = format!("{}, those of the runs", expected.len());
                        self.problem(Problem::new(&path, "digests", expected, found));
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
