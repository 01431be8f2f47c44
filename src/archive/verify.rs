//! Verification of an archive: its log, its data files, and the consistency of its tables.

use super::TableName;
use super::chain::Chain;
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

/// Options of [`Archive::verify`](super::Archive::verify).
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Also rebuilds every run from its columns, and checks its digest and its moves.
    pub deep: bool,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

/// A problem of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The file, relative to the archive.
    pub path: String,
    /// The run with the problem, if it affects one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<u32>,
    /// The part of the file or run that is wrong.
    pub what: String,
    /// The value that the rest of the archive requires.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

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

/// The maximum number of attempts when versions expire during a check.
const ATTEMPTS: usize = 5;

pub(super) fn verify(storage: &Storage, options: &VerifyOptions, progress: &dyn Progress) -> Result<VerifyReport> {
    let log = Log::new(storage);
    for _ in 0..ATTEMPTS {
        let names = log.settled_names()?;
        if names.newest_commit().is_none() && names.checkpoints.is_empty() {
            log.replay(None)?;
        }
        let mut verifier = Verifier { storage, options, progress, report: VerifyReport::default() };
        let (newest, files) = verifier.commits(&log, &names)?;
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
        let mut report = verifier.report;
        let gone = match report.problems.is_empty() {
            true => HashSet::new(),
            false => expired(storage, &log, &files)?,
        };
        // Files that `expire` removed meanwhile are not reported. The newest version loses files only if a
        // compaction also replaced them. Then its tables have not been compared with each other.
        if newest.iter().flat_map(|newest| &newest.files).all(|file| !gone.contains(&file.path)) {
            report.problems.retain(|problem| !gone.contains(&problem.path));
            return Ok(report);
        }
    }
    let what = format!("the newest version was replaced and expired while it was verified, {ATTEMPTS} times");
    Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into())
}

/// Returns those of the given files that no remaining version names any more.
fn expired(storage: &Storage, log: &Log, files: &BTreeMap<String, DataFile>) -> Result<HashSet<String>> {
    let chain = Chain::read(storage, log, &log.settled_names()?)?;
    let kept = kept_files(&chain);
    Ok(files.keys().filter(|path| !kept.contains_key(*path)).cloned().collect())
}

/// Returns the files that the remaining versions name, and the files that commits outside the chain name.
fn kept_files(chain: &Chain) -> BTreeMap<String, DataFile> {
    let first_version = chain.links.last().map_or(1, |link| link.commit.first_version);
    let mut files: BTreeMap<String, DataFile> = BTreeMap::new();
    let archive_id = chain.links.last().map(|link| &link.commit.archive_id);
    let rest = chain.rest.values().flatten().map(|(commit, _)| commit);
    // The files of another archive's commit are elsewhere.
    let rest = rest.filter(|commit| archive_id.is_none_or(|archive_id| commit.archive_id == *archive_id));
    for commit in chain.links.iter().map(|link| &link.commit).chain(rest) {
        if commit.version <= first_version {
            commit.remove.iter().for_each(|path| drop(files.remove(path)));
        }
        files.extend(commit.add.iter().map(|file| (file.path.clone(), file.clone())));
    }
    files
}

struct Verifier<'a> {
    storage: &'a Storage,
    options: &'a VerifyOptions,
    progress: &'a dyn Progress,
    report: VerifyReport,
}

impl Verifier<'_> {
    fn problem(&mut self, problem: Problem) {
        self.report.problems.push(problem);
    }

    /// Checks every commit and checkpoint. Returns the newest version that can be determined, and the files of
    /// all remaining versions.
    fn commits(&mut self, log: &Log, names: &Names) -> Result<(Option<Snapshot>, BTreeMap<String, DataFile>)> {
        let chain = Chain::read(self.storage, log, names)?;
        self.report.num_commits = names.commits.len() as u64;
        let mut problems: Vec<Problem> = Vec::new();
        let mut sums = Sums::default();
        let first_version = chain.links.last().map_or(1, |link| link.commit.first_version);
        let mut incomplete = false;
        let newest = chain.replay(|link, state| {
            let version = link.commit.version;
            let path = commit_path(version);
            let wrong = sums.add(&path, &link.commit);
            problems.extend(link.rebuilt.iter().map(|(error, _)| Problem::of_error(&path, error)));
            let is_stand_in = link.rebuilt.is_some() || link.commit.stands_for.is_some();
            // A rebuilt commit may lack files. These are not reported for the sound commits after it. If its
            // version has expired, they are not reported for the commit itself either.
            if is_stand_in && link.rebuilt.is_none() && version >= first_version || !is_stand_in && !incomplete {
                problems.extend(wrong.iter().cloned());
            }
            incomplete = !wrong.is_empty() && (is_stand_in || incomplete);
            if names.checkpoints.binary_search(&version).is_ok() {
                problems.extend(self.checkpoint(&chain, version, Some(state)));
            }
        });
        problems.extend(self.rest(log, &chain, names));
        self.report.problems.extend(problems);
        Ok((newest, kept_files(&chain)))
    }

    /// Returns the problems after the end of the chain.
    fn rest(&self, log: &Log, chain: &Chain, names: &Names) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        let mut before = (chain.version(), chain.links.last().map(|link| link.crc.clone()));
        for (&number, commit) in &chain.rest {
            let path = commit_path(number);
            if number == 0 {
                problems.push(Problem::new(&path, "version", "at least 1", number));
                continue;
            }
            if number > before.0 + 1 {
                let (first, found) = (before.0 + 1, format!("none of {} to {}", before.0 + 1, number - 1));
                problems.push(Problem::new(&commit_path(first), "commits", "one of every version", found));
                before.1 = None;
            }
            match commit {
                Ok((commit, crc)) => {
                    let parent = before.1.or_else(|| commit.parent.clone().filter(|_| number > 1));
                    let link = check_link(commit, number, parent, &self.storage.path(&path));
                    // A commit that breaks the chain is one problem: the next commits are not compared with it.
                    before = (number.max(before.0), link.is_ok().then(|| crc.clone()));
                    problems.extend(link.err().map(|error| Problem::of_error(&path, &error)));
                }
                Err(error) => {
                    problems.push(Problem::of_error(&path, error));
                    before = (number.max(before.0), None);
                }
            }
        }
        for &version in names.checkpoints.iter().filter(|&&version| version > chain.version()) {
            problems.extend(self.checkpoint(chain, version, None));
        }
        if let Some(version) = names.newest_shortcut().filter(|&version| version > before.0) {
            problems.push(Problem::of_error(&commit_path(version), &log.gone(version, "the commit of its checkpoint")));
        }
        for path in &chain.leftovers {
            problems.push(Problem::new(path, "file", "none: a repair replaced it", "one; `repair` goes on"));
        }
        problems
    }

    /// Checks that a checkpoint agrees with the commits.
    fn checkpoint(&self, chain: &Chain, version: u64, state: Option<&Snapshot>) -> Option<Problem> {
        let path = Checkpoint::path(version);
        if chain.leftovers.contains(&path) {
            return None;
        }
        match Checkpoint::read(self.storage, version) {
            Ok(Some(checkpoint)) => {
                let part = checkpoint.difference(&state?.clone().sort())?;
                Some(Problem::new(&path, part, "as the commits have it", "other values"))
            }
            // The file was pruned after the listing.
            Ok(None) => None,
            Err(error) => Some(Problem::of_error(&path, &error)),
        }
    }

    /// Checks every data file, and whether `runs` and `steps` of the newest version agree. Returns the rows of
    /// its `runs`.
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
                        // Such a run was compared through its original file.
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

    /// Checks the newest version as a whole: ids, digests, version numbers and totals.
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
        // Recorded games may have equal content. Each has an id in its recording.
        type Identity<'a> = (&'a [u8; 32], Option<(&'a str, u64)>);
        let mut by_identity: HashMap<Identity<'_>, u32> = HashMap::new();
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

    /// Checks the files of digests, which repeat the digests in `runs`.
    fn digests(&mut self, names: &Names, newest: Option<&Snapshot>, known: &HashMap<u32, RunFacts>) -> Result<()> {
        for &version in &names.digests {
            let path = Digests::path(version);
            let beyond = newest.is_none_or(|newest| version > newest.newest.version);
            match Digests::read(self.storage, version) {
                // The file was pruned after the listing.
                Ok(None) => {}
                Ok(Some((digests, next_run_id, _))) => {
                    let covered = known.values().filter(|run| u64::from(run.run_id) < next_run_id);
                    let expected: HashSet<&[u8; 32]> = covered.map(|run| &run.digest).collect();
                    let missing = expected.iter().filter(|digest| !digests.contains(digest)).count();
                    // The runs of a version that cannot be determined are not compared.
                    if !beyond && (missing > 0 || digests.len() != expected.len()) {
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

/// The running totals of the commits.
#[derive(Default)]
struct Sums {
    /// The first and the previous commit.
    first: Option<Commit>,
    last: Option<Commit>,
    num_rows: HashMap<TableName, i128>,
    /// The number of rows of each current file.
    files: HashMap<String, (TableName, i128)>,
}

impl Sums {
    /// Adds a commit and returns the problems of its totals. Compares the totals with the files that were added
    /// and removed, so that one wrong commit does not make later ones look wrong.
    fn add(&mut self, path: &str, commit: &Commit) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut expect = |what: &str, expected: &dyn ToString, found: &dyn ToString| {
            if expected.to_string() != found.to_string() {
                problems.push(Problem::new(path, what, expected.to_string(), found.to_string()));
            }
        };
        for removed in &commit.remove {
            match self.files.remove(removed) {
                Some((table, num_rows)) => *self.num_rows.entry(table).or_default() -= num_rows,
                None => expect("removed file", &"one that was there", removed),
            }
        }
        for file in &commit.add {
            let num_rows = i128::from(file.num_rows);
            *self.num_rows.entry(file.table).or_default() += num_rows;
            if self.files.insert(file.path.clone(), (file.table, num_rows)).is_some() {
                expect("added file", &"a new one", &file.path);
            }
        }
        let rows = |table| self.num_rows.get(&table).copied().unwrap_or_default();
        expect("num_runs", &rows(TableName::Runs), &commit.num_runs);
        expect("num_steps", &rows(TableName::Steps), &commit.num_steps);
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            expect("archive_id", &first.archive_id, &commit.archive_id);
            expect("phases", &format!("{:?}", first.phases), &format!("{:?}", commit.phases));
            if commit.next_run_id < last.next_run_id {
                expect("next_run_id", &format!("at least {}", last.next_run_id), &commit.next_run_id);
            }
            if commit.first_version < last.first_version || commit.first_version > commit.version {
                let expected = format!("{}..={}", last.first_version, commit.version);
                expect("first_version", &expected, &commit.first_version);
            }
        }
        let plain = Commit { add: Vec::new(), remove: Vec::new(), replaces: Vec::new(), ..commit.clone() };
        self.first.get_or_insert_with(|| plain.clone());
        self.last = Some(plain);
        problems
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
