//! The verification of the data files, and whether the tables agree.

use super::verify_file::check_file;
use crate::archive::ingest::run_digest::run_digest;
use crate::archive::ingest::steps_batch::steps_batch;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::manifest_path;
use crate::archive::parquet::row_views::{StepRows, at, words};
use crate::archive::parquet::run_rows::{RunRow, run_rows};
use crate::archive::phases::Phases;
use crate::archive::problem::Problem;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{SourceFormat, decode_run};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::Progress;
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use blake3::Hash;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

/// A verifier of the data files of an archive.
pub(in crate::archive) struct TablesVerifier<'a> {
    pub(super) storage: &'a Storage,
    pub(super) newest: Option<&'a Manifest>,
    pub(super) files: &'a BTreeMap<String, DataFile>,
    /// The paths of the newest version's files.
    pub(super) current: HashSet<&'a str>,
    pub(super) progress: &'a dyn Progress,
    pub(super) cancel: &'a CancellationToken,
}

impl TablesVerifier<'_> {
    /// Checks every data file, and whether `runs` and `steps` of the newest version agree. Adds to `problems`.
    pub(in crate::archive) fn verify(&self, problems: &mut Vec<Problem>) -> Result<()> {
        let facts: Mutex<HashMap<u32, RunRow>> = Mutex::default();
        self.check_files(TableName::Runs, |file| self.check_runs(file, &facts), problems)?;
        let facts = facts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let seen: Mutex<HashMap<u32, u64>> = Mutex::default();
        self.check_files(TableName::Steps, |file| self.check_steps(file, &facts, &seen), problems)?;
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.check_files(TableName::Annotations, |file| self.check_annotations(file, &facts), problems)?;
        if let Some(newest) = self.newest {
            problems.extend(check_version(newest, &facts, &seen));
        }
        Ok(())
    }

    /// Checks the files of a table in parallel.
    fn check_files(
        &self,
        table: TableName,
        check: impl Fn(&DataFile) -> Result<Vec<Problem>> + Sync,
        problems: &mut Vec<Problem>,
    ) -> Result<()> {
        let files: Vec<&DataFile> = self.files.values().filter(|file| file.table == table).collect();
        let check_one = |file: &DataFile| {
            let found = check(file);
            self.progress.advance(file.num_bytes);
            found
        };
        let found: Vec<Vec<Problem>> = files.into_par_iter().map(check_one).collect::<Result<_>>()?;
        problems.extend(found.into_iter().flatten());
        Ok(())
    }

    /// Checks a file of `runs`. Adds its rows to `facts` if it is of the newest version.
    fn check_runs(&self, file: &DataFile, facts: &Mutex<HashMap<u32, RunRow>>) -> Result<Vec<Problem>> {
        let is_current = self.current.contains(file.path.as_str());
        check_file(self.storage, file, self.cancel, &mut |batch, findings| {
            for run in run_rows(batch)? {
                let mut run = run?;
                // The rows of all runs are in memory, so they go without texts and bytes that no check needs. A row still
                // says that its run has an original.
                run.source = String::new();
                let original = run.original.as_mut().map(std::mem::take);
                if let Some((expected, found)) = original.and_then(|it| original_differs(&run, &it)) {
                    findings.add_for_run(run.run_id, "digest of the original", expected, found);
                }
                if run.source_format().is_none() {
                    findings.add_for_run(run.run_id, "format", "a known format", &run.format);
                }
                if is_current {
                    facts.lock().unwrap_or_else(PoisonError::into_inner).insert(run.run_id, run);
                }
            }
            Ok(())
        })
    }

    /// Checks a file of `steps`: builds each run from its rows, and compares the rows with those that an ingest of the
    /// run makes. If the file is of the newest version, counts the places of each run in `seen`.
    fn check_steps(
        &self,
        file: &DataFile,
        facts: &HashMap<u32, RunRow>,
        seen: &Mutex<HashMap<u32, u64>>,
    ) -> Result<Vec<Problem>> {
        let phases = self.newest.map_or_else(Phases::default, |newest| newest.phases);
        let is_current = self.current.contains(file.path.as_str());
        check_file(self.storage, file, self.cancel, &mut |batch, findings| {
            let rows = StepRows::new(batch)?;
            for run in rows.runs() {
                let run_id = rows.run_id[run.start];
                if is_current {
                    *seen.lock().unwrap_or_else(PoisonError::into_inner).entry(run_id).or_default() += 1;
                }
                let Some(facts) = facts.get(&run_id) else {
                    if is_current {
                        findings.add_for_run(run_id, "run", "a row of `runs`", "none");
                    }
                    continue;
                };
                self.cancel.check()?;
                let problems_before = findings.problems.len();
                if run.len() != facts.num_steps as usize {
                    findings.add_for_run(run_id, "number of steps", facts.num_steps, run.len());
                }
                let indices = &rows.step_index[run.clone()];
                let gap = (0..).zip(indices).find(|(place, index)| place != *index);
                if let Some((place, index)) = gap.filter(|_| !SourceFormat::may_be_sampled(&facts.format)) {
                    findings.add_for_run(run_id, "step_index", place, index);
                }
                let found = batch.slice(run.start, run.len());
                let run = match rows.run(run, facts.meta.clone(), facts.final_board) {
                    Ok(run) => run,
                    Err(error) => {
                        match error.kind() {
                            ErrorKind::Argument { name, expected, found } => {
                                findings.add_for_run(run_id, *name, expected, found);
                            }
                            _ => findings.add_for_run(run_id, "steps of the run", "a run", error.message()),
                        }
                        continue;
                    }
                };
                let expected = steps_batch(&[(run_id, &run)], phases)?;
                for (what, expected, found) in differences(&expected, &found)? {
                    findings.add_for_run(run_id, what, expected, found);
                }
                if is_current && findings.problems.len() == problems_before {
                    let violation = run.verify().err();
                    if violation.is_none() != facts.verified {
                        let found = violation.map_or("none".into(), |violation| violation.to_string());
                        let expected = if facts.verified { "a valid game" } else { "a violation of the rules" };
                        findings.add_for_run(run_id, "trajectory", expected, found);
                    }
                    let found = run_digest(&run)?;
                    // Such a run was compared through its original file.
                    if found != facts.digest && facts.original.is_none() {
                        findings.add_for_run(run_id, "digest", Hash::from(facts.digest), Hash::from(found));
                    }
                    if run.game() != facts.game {
                        let text = |game: Option<i64>| game.map_or("null".into(), |game| game.to_string());
                        findings.add_for_run(run_id, "game", text(facts.game), text(run.game()));
                    }
                }
            }
            Ok(())
        })
    }

    /// Checks a file of `annotations`. If it is of the newest version, compares its runs with `facts`.
    fn check_annotations(&self, file: &DataFile, facts: &HashMap<u32, RunRow>) -> Result<Vec<Problem>> {
        let is_current = self.current.contains(file.path.as_str());
        check_file(self.storage, file, self.cancel, &mut |batch, findings| {
            let models = words(batch, "model")?;
            if let Some(row) = (0..batch.num_rows()).find(|&row| at(models, row) != file.model.as_deref()) {
                let expected = file.model.as_deref().unwrap_or("a model");
                findings.add("model", expected, at(models, row).unwrap_or("none"));
            }
            let ids = batch.column(0).as_primitive::<UInt32Type>().values();
            for run in ids.chunk_by(|a, b| a == b).filter(|_| is_current) {
                match facts.get(&run[0]) {
                    None => findings.add_for_run(run[0], "run", "a row of `runs`", "none"),
                    Some(facts) if run.len() > facts.num_steps as usize => {
                        let expected = format!("at most {}", facts.num_steps);
                        findings.add_for_run(run[0], "annotated steps", expected, run.len());
                    }
                    Some(_) => {}
                }
            }
            Ok(())
        })
    }
}

/// Compares the columns of a run's rows. Returns the name, the expected and the found value of each column that
/// differs, at the first step with a difference.
fn differences(expected: &RecordBatch, found: &RecordBatch) -> Result<Vec<(String, String, String)>> {
    let mut differences = Vec::new();
    for ((field, expected), found) in expected.schema().fields().iter().zip(expected.columns()).zip(found.columns()) {
        let differs = |&row: &usize| expected.slice(row, 1) != found.slice(row, 1);
        if expected != found
            && let Some(row) = (0..expected.len()).find(differs)
        {
            let options = FormatOptions::new().with_null("null");
            let text =
                |column: &ArrayRef| ArrayFormatter::try_new(column, &options).map(|all| all.value(row).to_string());
            let (expected, found) = (text(expected).map_err(Error::other)?, text(found).map_err(Error::other)?);
            differences.push((field.name().clone(), expected, format!("{found} in row {row} of the run")));
        }
    }
    Ok(differences)
}

/// Compares a run with its original file. Returns what was expected and found if they differ.
fn original_differs(facts: &RunRow, original: &[u8]) -> Option<(String, String)> {
    match decode_run(original).and_then(|(run, _)| run_digest(&run)) {
        Ok(found) if found == facts.digest => None,
        Ok(found) => Some((Hash::from(facts.digest).to_string(), Hash::from(found).to_string())),
        Err(error) => Some(("a run".into(), error.message())),
    }
}

/// Checks the newest version as a whole: ids, digests, version numbers and the number of runs.
fn check_version(newest: &Manifest, facts: &HashMap<u32, RunRow>, seen: &HashMap<u32, u64>) -> Vec<Problem> {
    let path = manifest_path(newest.version);
    let file_of = |table, run_id: u32| {
        let has = |file: &&DataFile| (file.first_run_id..=file.last_run_id).contains(&run_id);
        newest.files(table).find(has).map_or_else(|| path.clone(), |file| file.path.clone())
    };
    let mut problems = Vec::new();
    for table in TableName::ALL {
        let files: Vec<&DataFile> = newest.files(table).collect();
        for pair in files.windows(2) {
            if pair[0].model == pair[1].model && pair[0].last_run_id >= pair[1].first_run_id {
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
                Some((session, id)) => format!("a digest that no other run with id {id} in {session} has"),
                None => "a digest that no other run has".into(),
            };
            add("digest", expected, format!("the digest of run {other}"));
        }
        if u64::from(*run_id) >= newest.next_run_id {
            add("run id", format!("below {}", newest.next_run_id), run_id.to_string());
        }
        let expected = u64::from(run.num_steps > 0);
        let found = seen.get(run_id).copied().unwrap_or_default();
        if expected != found {
            add("steps of the run", format!("in {expected} places"), format!("in {found}"));
        }
    }
    if facts.len() as u64 != newest.num_runs {
        problems.push(Problem::new(&path, "number of runs", newest.num_runs, facts.len()));
    }
    problems
}
