//! Restoring: a new version with the files of an older one, and with the sound data files that no manifest lists.
//!
//! The new version is published like any other, so an interrupted restore leaves the archive unchanged or restored.
//! Afterwards the damaged manifests that it replaces are removed. A restore that is repeated continues there.

use super::sound_file::{SoundFile, read_sound};
use crate::archive::ingest::run_ids::next_run_id;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::versions::{Publication, Versions, manifest_path};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::parquet::reader::{RowGroups, not_parquet};
use crate::archive::parquet::writer::RowGroupEncoder;
use crate::archive::parquet::writer_thread::TransactionFiles;
use crate::archive::problem::damaged;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::cancellation::CancellationToken;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use arrow::array::{AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt32Type;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// The result of a restore or of a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The version whose files the archive continues with.
    pub version: u64,
    /// The new version; `None` if the newest version has these files already.
    pub new_version: Option<u64>,
    /// The number of runs in data files that no manifest listed.
    pub adopted_runs: u64,
    /// The data files that no manifest listed, relative to the archive.
    pub adopted: Vec<String>,
    /// The damaged manifests, relative to the archive. They are removed.
    pub damaged: Vec<String>,
    /// Whether the archive was changed.
    pub done: bool,
}

pub(in crate::archive) fn restore(
    storage: &Storage,
    version: Option<u64>,
    dry_run: bool,
    cancel: &CancellationToken,
) -> Result<RestoreReport> {
    let versions = Versions::new(storage);
    let _lock = match dry_run {
        true => None,
        false => versions.lock(Duration::from_secs(60), cancel)?,
    };
    let present = Present::list(storage)?;
    let all = AllVersions::read(&versions, &present, cancel)?;
    let mut target = match version {
        None => all.newest.clone(),
        Some(version) => versions.open(Some(version))?,
    };
    // The version may have expired, without its files, in a version whose manifest is lost. Later files have its runs.
    let missing: Vec<DataFile> = target.files.extract_if(.., |file| !present.has(file)).collect();
    let unlisted = all.unlisted(storage, &present, cancel)?;
    let adopted = Adoption::of(storage, &target, unlisted)?;
    if let Some(lost) = missing.iter().find(|lost| !adopted.files.iter().any(|file| is_inside(lost, file))) {
        return Err(damaged(&storage.path(&lost.path), "file", format!("{} bytes", lost.num_bytes), "no file"));
    }
    let mut report = RestoreReport {
        version: target.version,
        new_version: None,
        adopted_runs: adopted.num_runs,
        adopted: adopted
            .files
            .iter()
            .chain(adopted.parts.iter().map(|part| &part.file))
            .map(|file| file.path.clone())
            .collect(),
        damaged: all.replaced.iter().copied().map(manifest_path).collect(),
        done: false,
    };
    let is_newest_sound = all.newest.version == all.last;
    if !dry_run {
        // An interrupted restore may have published it.
        versions.make_durable(all.newest.version)?;
    }
    if !(is_newest_sound && report.adopted.is_empty() && target.paths() == all.newest.paths()) {
        let mut next = all.newest.next(Operation::Restore);
        next.version = all.last + 1;
        next.next_run_id = next_run_id(storage, &all.newest)?;
        next.first_version = all.first_version;
        if !dry_run {
            // An interrupted writer may have left a file before it was durable.
            adopted.files.iter().try_for_each(|file| storage.sync(&file.path))?;
            let folders: BTreeSet<TableName> = adopted.files.iter().map(|file| file.table).collect();
            folders.into_iter().try_for_each(|table| storage.sync(table.name()))?;
        }
        let mut files: Vec<DataFile> = target.files.clone();
        files.retain(|file| !adopted.replaced.contains(&file.path));
        files.extend(adopted.files);
        if !dry_run {
            for part in &adopted.parts {
                files.extend(part.copy(storage, &next, cancel)?);
            }
        }
        let (before, after): (_, HashSet<&str>) = (all.newest.paths(), files.iter().map(|file| &*file.path).collect());
        let removed = before.difference(&after).map(|&path| path.to_owned()).collect();
        let added = files.iter().filter(|file| !before.contains(&*file.path)).cloned().collect();
        next.replace(&removed, added);
        // A merged file begins with an old id.
        let last = next.files.iter().map(|file| u64::from(file.last_run_id) + 1).max();
        next.next_run_id = next.next_run_id.max(last.unwrap_or_default());
        // A change that was prepared before may depend on runs that are gone.
        next.unlisted_before = next.unlisted_before.max(Some(clock::text(storage.now())));
        report.new_version = Some(next.version);
        if !dry_run {
            cancel.check()?;
            if !matches!(versions.publish(next)?, Publication::New(_)) {
                let what = "another writer committed a version meanwhile".to_owned();
                return Err(ErrorKind::Conflict { path: storage.root().to_path_buf(), what }.into());
            }
        }
    }
    if !dry_run {
        for path in &report.damaged {
            storage.remove(path)?;
        }
        report.done = report.new_version.is_some() || !report.damaged.is_empty();
    }
    Ok(report)
}

/// What the manifests of an archive say.
struct AllVersions {
    /// The number of the newest manifest, also if it is damaged.
    last: u64,
    /// The newest sound version.
    newest: Manifest,
    /// The oldest version that has not expired.
    first_version: u64,
    /// The damaged versions that no later version continues.
    replaced: Vec<u64>,
    /// The paths of all files that a sound manifest lists.
    listed: HashSet<String>,
}

impl AllVersions {
    fn read(versions: &Versions, present: &Present, cancel: &CancellationToken) -> Result<AllVersions> {
        let numbers = versions.list()?;
        // A manifest that was copied from another archive counts as damaged. The oldest one says which archive this is.
        let oldest = numbers.iter().rev().find_map(|&version| versions.read(version).ok().flatten());
        let (mut newest, mut replaced, mut listed) = (None, Vec::new(), HashSet::new());
        let (mut damaged, mut error): (Vec<u64>, Option<Error>) = (Vec::new(), None);
        let (mut parent, mut first_version): (Option<String>, u64) = (None, 1);
        versions.each(&numbers, |version, manifest| {
            cancel.check()?;
            let checked = manifest.and_then(|manifest| {
                oldest.iter().try_for_each(|oldest| versions.check_archive(&manifest, oldest))?;
                Ok(manifest)
            });
            match checked {
                Ok(manifest) => {
                    let broken = std::mem::take(&mut damaged);
                    if newest.is_none() || parent.as_ref() == Some(&manifest.txn) {
                        replaced.extend(broken);
                    }
                    if !manifest.files.iter().all(|file| present.has(file)) {
                        // A version whose manifest is lost has dropped this one.
                        first_version = first_version.max(version + 1);
                    }
                    listed.extend(manifest.files.iter().map(|file| file.path.clone()));
                    parent.clone_from(&manifest.parent);
                    newest.get_or_insert(manifest);
                }
                Err(found) if matches!(found.kind(), ErrorKind::Damaged { .. }) => {
                    damaged.push(version);
                    error.get_or_insert(found);
                }
                Err(found) => return Err(found),
            }
            Ok(())
        })?;
        match (newest, error) {
            (Some(newest), _) => {
                let is_first = newest.version == newest.first_version || numbers.contains(&(newest.version - 1));
                if !is_first && versions.is_tagged(newest.version)? {
                    // The versions before it have expired, and its tag keeps it.
                    first_version = newest.version;
                }
                let first_version = first_version.max(newest.first_version);
                Ok(AllVersions { last: numbers[0], newest, first_version, replaced, listed })
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(versions.newest().err().unwrap_or_else(|| Error::other("the archive has vanished"))),
        }
    }

    /// Returns the sound data files of this archive that no manifest lists, in the order of their names, and so of
    /// their run ids.
    fn unlisted(&self, storage: &Storage, present: &Present, cancel: &CancellationToken) -> Result<Vec<SoundFile>> {
        let mut unlisted = Vec::new();
        for (table, path) in present.0.iter().filter(|(_, path)| !self.listed.contains(path)) {
            cancel.check()?;
            if let Some(found) = read_sound(storage, *table, path)?
                && found.archive_id == self.newest.archive_id
            {
                unlisted.push(found);
            }
        }
        Ok(unlisted)
    }
}

/// The paths of all data files that are there.
struct Present(BTreeSet<(TableName, String)>);

impl Present {
    fn list(storage: &Storage) -> Result<Present> {
        let mut present = BTreeSet::new();
        for table in TableName::ALL {
            let names = storage.names(table.name(), "")?.unwrap_or_default();
            let names = names.into_iter().filter(|name| name.ends_with(".parquet"));
            present.extend(names.map(|name| (table, format!("{table}/{name}"))));
        }
        Ok(Present(present))
    }

    fn has(&self, file: &DataFile) -> bool {
        self.0.contains(&(file.table, file.path.clone()))
    }
}

/// The unlisted files that a new version takes over.
#[derive(Default)]
struct Adoption {
    files: Vec<DataFile>,
    /// The paths of the version's files that a merged file replaces.
    replaced: HashSet<String>,
    parts: Vec<Part>,
    num_runs: u64,
}

/// Rows of a file. The other rows are of runs that another file has, too: two writers added them, and one was interrupted.
struct Part {
    file: DataFile,
    run_ids: HashSet<u32>,
}

impl Part {
    /// Copies the rows to a new file.
    fn copy(&self, storage: &Storage, version: &Manifest, cancel: &CancellationToken) -> Result<Vec<DataFile>> {
        let output = TransactionFiles { storage, version, file_rows: u64::MAX };
        let (_, files) = output.write(cancel, |sender| {
            let (encoder, source) = (RowGroupEncoder::new(self.file.table)?, [&self.file]);
            let mut groups = RowGroups::new(storage, &source);
            while let Some(batch) = groups.next()? {
                let ids = batch.column_by_name("run_id").and_then(|column| column.as_primitive_opt::<UInt32Type>());
                let ids = ids.ok_or_else(|| not_parquet(storage, &self.file, "run_id of another type"))?;
                let chosen: BooleanArray = ids.values().iter().map(|id| Some(self.run_ids.contains(id))).collect();
                let rows = filter_record_batch(&batch, &chosen).map_err(Error::other)?;
                if rows.num_rows() > 0 {
                    sender.send(self.file.table, encoder.encode(&rows, cancel)?)?;
                }
            }
            Ok(())
        })?;
        Ok(files)
    }
}

impl Adoption {
    /// Chooses the files with runs that the version does not have. A merged file with runs of both replaces the files
    /// of the version. Leaves out files with runs whose steps are not all there, which an interrupted writer left.
    fn of(storage: &Storage, target: &Manifest, mut unlisted: Vec<SoundFile>) -> Result<Adoption> {
        if unlisted.is_empty() {
            return Ok(Adoption::default());
        }
        let known = KnownRuns::read(storage, target)?;
        // A merged file comes before the files that it replaced.
        unlisted.sort_by_key(|found| Reverse(found.file.num_rows));
        let of_table = |table| unlisted.iter().filter(move |found| found.file.table == table);
        let mut candidates: Vec<&SoundFile> =
            of_table(TableName::Runs).filter(|found| known.is_extended_by(found)).collect();
        let (runs, steps) = loop {
            let runs = disjoint(target, candidates.iter().copied());
            let mut expected = known.num_steps.clone();
            expected.extend(runs.iter().flat_map(|found| &found.num_steps));
            let is_of_these = |found: &&SoundFile| {
                known.is_extended_by(found) && found.num_steps.iter().all(|(id, count)| expected.get(id) == Some(count))
            };
            let steps = disjoint(target, of_table(TableName::Steps).filter(is_of_these));
            let added: HashSet<&u32> = steps.iter().flat_map(|found| found.num_steps.keys()).collect();
            let is_whole =
                |(id, count): (&u32, &u32)| *count == 0 || added.contains(id) || known.has(TableName::Steps, *id);
            let incomplete: HashSet<&str> = runs
                .iter()
                .filter(|found| !found.num_steps.iter().all(is_whole))
                .map(|found| &*found.file.path)
                .collect();
            if incomplete.is_empty() {
                break (runs, steps);
            }
            candidates.retain(|found| !incomplete.contains(&*found.file.path));
        };
        let mut taken: HashSet<[u8; 32]> = runs.iter().flat_map(|found| &found.digests).copied().collect();
        taken.extend(&known.digests);
        let (mut parts, mut num_runs) = (Vec::new(), (taken.len() - known.digests.len()) as u64);
        for found in candidates {
            let mut listed = target.files(TableName::Runs).chain(runs.iter().map(|other| &other.file));
            let is_apart = listed.all(|file| file.is_apart_from(&found.file));
            let ids = found.num_steps.iter().zip(&found.digests).filter(|(_, digest)| !taken.contains(*digest));
            let rest: BTreeMap<u32, u32> = ids.map(|((&id, &count), _)| (id, count)).collect();
            if let (true, false, Some(of_steps)) =
                (is_apart, rest.is_empty(), parts_of(&rest, of_table(TableName::Steps)))
            {
                taken.extend(&found.digests);
                num_runs += rest.len() as u64;
                parts.push(Part { file: found.file.clone(), run_ids: rest.into_keys().collect() });
                parts.extend(of_steps);
            }
        }
        let annotations = disjoint(
            target,
            of_table(TableName::Annotations)
                .filter(|found| target.files(TableName::Annotations).all(|file| file.is_apart_from(&found.file))),
        );
        let files: Vec<DataFile> =
            runs.into_iter().chain(steps).chain(annotations).map(|found| found.file.clone()).collect();
        let is_replaced = |file: &&DataFile| files.iter().any(|other| !file.is_apart_from(other));
        let replaced = target.files.iter().filter(is_replaced).map(|file| file.path.clone()).collect();
        Ok(Adoption { files, replaced, parts, num_runs })
    }
}

/// Returns the rows with the steps of runs, whose numbers of steps are given; `None` if the files lack some.
fn parts_of<'a>(runs: &BTreeMap<u32, u32>, files: impl Iterator<Item = &'a SoundFile>) -> Option<Vec<Part>> {
    let mut rest: BTreeMap<u32, u32> = runs.clone();
    rest.retain(|_, count| *count > 0);
    let mut parts = Vec::new();
    for found in files {
        let run_ids: HashSet<u32> =
            rest.extract_if(.., |id, count| found.num_steps.get(id) == Some(count)).map(|(id, _)| id).collect();
        if !run_ids.is_empty() {
            parts.push(Part { file: found.file.clone(), run_ids });
        }
    }
    rest.is_empty().then_some(parts)
}

/// The runs of the version that an archive continues with.
struct KnownRuns<'a> {
    target: &'a Manifest,
    num_steps: BTreeMap<u32, u32>,
    digests: HashSet<[u8; 32]>,
}

impl KnownRuns<'_> {
    fn read<'a>(storage: &Storage, target: &'a Manifest) -> Result<KnownRuns<'a>> {
        let mut known = KnownRuns { target, num_steps: BTreeMap::new(), digests: HashSet::new() };
        for file in target.files(TableName::Runs) {
            let Some(found) = read_sound(storage, file.table, &file.path)? else {
                let (expected, found) = ("the content that its name says", "other content");
                return Err(damaged(&storage.path(&file.path), "content", expected, found));
            };
            known.num_steps.extend(found.num_steps);
            known.digests.extend(found.digests);
        }
        Ok(known)
    }

    /// Returns whether a table of the version has a run. No two files of a table have the same run.
    fn has(&self, table: TableName, run_id: u32) -> bool {
        let is_in = |file: &DataFile| (file.first_run_id..=file.last_run_id).contains(&run_id);
        self.num_steps
            .get(&run_id)
            .is_some_and(|&count| table == TableName::Runs || count == 0 || self.target.files(table).any(is_in))
    }

    /// Returns whether a file of runs or steps has other runs than the version, and all of these in the range of its run
    /// ids.
    fn is_extended_by(&self, found: &SoundFile) -> bool {
        let (table, range) = (found.file.table, found.file.first_run_id..=found.file.last_run_id);
        let known: Vec<(&u32, &u32)> = self.num_steps.range(range).filter(|&(&id, _)| self.has(table, id)).collect();
        let num_known = found.digests.iter().filter(|digest| self.digests.contains(*digest)).count();
        found.num_steps.keys().any(|&run_id| !self.has(table, run_id))
            && known.iter().all(|&(id, &count)| count == 0 || found.num_steps.get(id) == Some(&count))
            && (table == TableName::Steps || num_known == known.len())
    }
}

/// Returns the files that share no run with an earlier one. A file of the version is apart from them, or all its runs
/// are in one of them.
fn disjoint<'a>(target: &Manifest, files: impl Iterator<Item = &'a SoundFile>) -> Vec<&'a SoundFile> {
    let (mut chosen, mut digests): (Vec<&SoundFile>, HashSet<&[u8; 32]>) = (Vec::new(), HashSet::new());
    for found in files {
        let is_new = found.digests.iter().all(|digest| !digests.contains(digest));
        let is_whole = |file: &DataFile| found.file.is_apart_from(file) || is_inside(file, &found.file);
        if is_new
            && target.files.iter().all(is_whole)
            && chosen.iter().all(|other| found.file.is_apart_from(&other.file))
        {
            digests.extend(&found.digests);
            chosen.push(found);
        }
    }
    chosen
}

fn is_inside(a: &DataFile, b: &DataFile) -> bool {
    (a.table, &a.model) == (b.table, &b.model) && b.first_run_id <= a.first_run_id && a.last_run_id <= b.last_run_id
}
