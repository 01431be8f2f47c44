//! The verification of the manifests: each by itself, and each against the version before.

use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::tags::{TAGS_FOLDER, path_of, tags};
use crate::archive::manifest::versions::{Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation, rows};
use crate::archive::problem::Problem;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{ErrorKind, Result};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The result of checking the manifests.
#[derive(Default)]
pub(in crate::archive) struct VersionsCheck {
    pub(in crate::archive) problems: Vec<Problem>,
    /// The newest sound version.
    pub(in crate::archive) newest: Option<Manifest>,
    /// The files of all versions that have not expired, by path.
    pub(in crate::archive) files: BTreeMap<String, DataFile>,
    /// The number of versions that have not expired.
    pub(in crate::archive) num_versions: u64,
}

impl VersionsCheck {
    /// Checks the manifest of every version that has not expired.
    pub(in crate::archive) fn run(storage: &Storage) -> Result<VersionsCheck> {
        let versions = Versions::new(storage);
        let mut check = VersionsCheck::default();
        let tags = match tags(storage) {
            Ok(tags) => tags,
            Err(error) if matches!(error.kind(), ErrorKind::Damaged { .. }) => {
                let path = error.path().and_then(|path| path.strip_prefix(storage.root()).ok());
                let path = path.unwrap_or(Path::new(TAGS_FOLDER)).to_string_lossy();
                check.problems.push(Problem::of_error(&path, &error));
                BTreeMap::new()
            }
            Err(error) => return Err(error),
        };
        let numbers = versions.list()?;
        for (name, version) in tags.iter().filter(|(_, version)| !numbers.contains(version)) {
            check.problems.push(Problem::new(&path_of(name), "version", "an existing version", version));
        }
        let tagged: HashSet<u64> = tags.into_values().collect();
        // The next version, which is read first; `None` if it is damaged.
        let mut later: Option<(u64, Option<Manifest>)> = None;
        versions.each(&numbers, |version, manifest| {
            let first_version = check.newest.as_ref().map_or(1, |newest| newest.first_version);
            if version < first_version && !tagged.contains(&version) {
                return Ok(());
            }
            check.num_versions += 1;
            let path = manifest_path(version);
            let manifest = match manifest {
                Ok(manifest) => Some(manifest),
                Err(error) => {
                    check.problems.push(Problem::of_error(&path, &error));
                    None
                }
            };
            if let Some(manifest) = &manifest {
                check.add(&path, manifest);
                check.newest.get_or_insert_with(|| manifest.clone());
            }
            if version < first_version {
                // The versions between tagged ones are expired.
                return Ok(());
            }
            if let Some((number, next)) = later.take() {
                check.compare((version, manifest.as_ref()), (number, next.as_ref()));
            }
            later = Some((version, manifest));
            Ok(())
        })?;
        let first_version = check.newest.as_ref().map_or(1, |newest| newest.first_version);
        if let Some((oldest, _)) = later.filter(|(oldest, _)| *oldest > first_version) {
            check.problems.push(missing(first_version, oldest - 1));
        }
        Ok(check)
    }

    /// Adds a problem of a manifest if two values differ.
    fn expect(&mut self, path: &str, what: &str, expected: &dyn ToString, found: &dyn ToString) {
        if expected.to_string() != found.to_string() {
            self.problems.push(Problem::new(path, what, expected.to_string(), found.to_string()));
        }
    }

    /// Checks a manifest by itself, and adds its files.
    fn add(&mut self, path: &str, manifest: &Manifest) {
        self.expect(path, "num_runs", &rows(&manifest.files, TableName::Runs), &manifest.num_runs);
        self.expect(path, "num_steps", &rows(&manifest.files, TableName::Steps), &manifest.num_steps);
        self.expect(path, "files", &manifest.files.len(), &manifest.paths().len());
        let newest = self.newest.as_ref().unwrap_or(manifest);
        let (archive_id, phases) = (newest.archive_id.clone(), newest.phases);
        self.expect(path, "archive_id", &archive_id, &manifest.archive_id);
        self.expect(path, "phases", &format!("{phases:?}"), &format!("{:?}", manifest.phases));
        if manifest.archive_id != archive_id {
            // The files of another archive are elsewhere.
            return;
        }
        for file in &manifest.files {
            if u64::from(file.last_run_id) >= manifest.next_run_id {
                let (expected, found) = (format!("above {}", file.last_run_id), manifest.next_run_id);
                self.problems.push(Problem::new(path, "next_run_id", expected, found));
            }
            let known = self.files.entry(file.path.clone()).or_insert_with(|| file.clone());
            if known != file {
                let (expected, found) = ("as in the next version", "other facts");
                self.problems.push(Problem::new(path, format!("entry of {}", file.path), expected, found));
            }
        }
    }

    /// Compares a version with the one that was published before it.
    fn compare(&mut self, before: (u64, Option<&Manifest>), after: (u64, Option<&Manifest>)) {
        let (first, last) = (before.0 + 1, after.0 - 1);
        let (before, after) = match (before.1, after.1) {
            (Some(before), Some(after)) => (before, after),
            // A damaged version has no facts to compare.
            _ if first <= last => return self.problems.push(missing(first, last)),
            _ => return,
        };
        let follows = after.parent.as_ref() == Some(&before.txn);
        // A restored archive goes on after the number of its damaged version.
        if first <= last && !(follows && after.operation == Operation::Restore) {
            return self.problems.push(missing(first, last));
        }
        let path = manifest_path(after.version);
        self.expect(&path, "parent", &before.txn, &after.parent.as_deref().unwrap_or("none"));
        if after.next_run_id < before.next_run_id {
            self.expect(&path, "next_run_id", &format!("at least {}", before.next_run_id), &after.next_run_id);
        }
        if after.first_version < before.first_version {
            self.expect(&path, "first_version", &format!("at least {}", before.first_version), &after.first_version);
        }
        let (old, new) = (before.paths(), after.paths());
        self.expect(&path, "added_files", &new.difference(&old).count(), &after.added_files);
        self.expect(&path, "removed_files", &old.difference(&new).count(), &after.removed_files);
        self.expect(&path, "added_runs", &after.num_runs.saturating_sub(before.num_runs), &after.added_runs);
        self.expect(&path, "added_steps", &after.num_steps.saturating_sub(before.num_steps), &after.added_steps);
    }
}

fn missing(first: u64, last: u64) -> Problem {
    let found = if first == last { "no file".to_owned() } else { format!("none of {first} to {last}") };
    Problem::new(&manifest_path(first), "manifest", "a file, because later versions exist", found)
}
