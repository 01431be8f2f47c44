//! Adopting the runs of data files that no manifest lists: their writer was interrupted, or their manifest was lost.
//!
//! Each run comes from one file of `runs` and one of `steps`. If a merged file and the files that it replaced have a run,
//! it comes from the file with the smaller range of run ids. If two files have copies of a run, a copy that was in a version
//! comes first. A file whose runs are all chosen, without a run of another file between them, is adopted as it is; the
//! chosen rows of any other file are copied.

use super::sound_file::SoundFile;
use crate::archive::manifest::Manifest;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::parquet::reader::row_groups;
use crate::archive::parquet::run_rows::run_rows;
use crate::archive::parquet::writer::RowGroupEncoder;
use crate::archive::parquet::writer_thread::TransactionFiles;
use crate::archive::schema::table_schema;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::system::cancellation::CancellationToken;
use arrow::array::{AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::UInt32Type;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

/// The unlisted data that a new version takes over.
#[derive(Default)]
pub(super) struct Adoption {
    pub(super) files: Vec<DataFile>,
    pub(super) parts: Vec<Part>,
    /// The number of steps of each run, and of each run whose steps are adopted.
    runs: BTreeMap<u32, u32>,
    steps: BTreeMap<u32, u32>,
}

/// Rows of a file.
pub(super) struct Part {
    pub(super) file: DataFile,
    run_ids: HashSet<u32>,
}

impl Part {
    /// Copies the rows to a new file.
    pub(super) fn copy(
        &self,
        storage: &Storage,
        version: &Manifest,
        cancel: &CancellationToken,
    ) -> Result<Vec<DataFile>> {
        let model = self.file.model.as_deref();
        let output = TransactionFiles { storage, version, model, file_rows: u64::MAX };
        let (_, files) = output.write(cancel, |sender| {
            let encoder = RowGroupEncoder::new(self.file.table)?;
            for batch in row_groups(storage, [&self.file], &table_schema(self.file.table)) {
                let batch = batch?;
                let ids = batch.column(0).as_primitive::<UInt32Type>();
                let chosen: BooleanArray = ids.values().iter().map(|id| Some(self.run_ids.contains(id))).collect();
                let rows = filter_record_batch(&batch, &chosen).map_err(Error::other)?;
                if rows.num_rows() > 0 {
                    sender.send(self.file.table, encoder.encode([Ok(rows)], cancel)?)?;
                }
            }
            Ok(())
        })?;
        Ok(files)
    }
}

/// The file that each run comes from, by run id.
type Sources<'a> = BTreeMap<u32, &'a SoundFile>;

impl Adoption {
    /// Chooses the runs that the version does not have and whose steps are all there, and the steps of missing files.
    /// `target` is without the missing files.
    pub(super) fn of(
        storage: &Storage,
        target: &Manifest,
        missing: &[DataFile],
        mut unlisted: Vec<SoundFile>,
    ) -> Result<Adoption> {
        if unlisted.is_empty() {
            return Ok(Adoption::default());
        }
        unlisted.sort_by_key(|found| found.file.last_run_id - found.file.first_run_id);
        let of_table = |table| unlisted.iter().filter(move |found| found.file.table == table);
        let is_lost = |table, id| missing.iter().any(|file| file.table == table && has_in_range(file, id));
        let steps_of =
            |id: &u32, count: &u32| of_table(TableName::Steps).find(|steps| steps.num_steps.get(id) == Some(count));
        let (mut known, mut digests) = (BTreeMap::new(), HashSet::new());
        for batch in row_groups(storage, target.files(TableName::Runs), &table_schema(TableName::Runs)) {
            for run in run_rows(&batch?)? {
                let run = run?;
                known.insert(run.run_id, run.num_steps);
                digests.insert(run.digest);
            }
        }
        let annotated: HashSet<u32> =
            of_table(TableName::Annotations).flat_map(|found| found.num_steps.keys().copied()).collect();
        let mut candidates: Vec<(&SoundFile, u32, u32, &[u8; 32])> = Vec::new();
        for found in of_table(TableName::Runs) {
            let runs = found.num_steps.iter().zip(&found.digests);
            candidates.extend(runs.map(|((&id, &count), digest)| (found, id, count, digest)));
        }
        // A run of a missing file, or with annotations, was in a version. Another copy of it may be of an interrupted writer.
        // So may be a copy with a lower id: if it were in a version, an ingest would have skipped the run.
        candidates
            .sort_by_cached_key(|(_, id, ..)| (!is_lost(TableName::Runs, *id), !annotated.contains(id), Reverse(*id)));
        let (mut runs, mut steps) = (Sources::new(), Sources::new());
        let mut adoption = Adoption::default();
        for (found, id, count, digest) in candidates {
            let has_steps = is_within(target, TableName::Steps, id);
            let source = steps_of(&id, &count).filter(|_| count > 0 && !has_steps);
            let is_free = !runs.contains_key(&id) && !is_within(target, TableName::Runs, id);
            let is_whole = count == 0 || source.is_some() || has_steps && is_lost(TableName::Runs, id);
            if is_free && is_whole && digests.insert(*digest) {
                runs.insert(id, found);
                adoption.runs.insert(id, count);
                if let Some(source) = source {
                    steps.insert(id, source);
                    adoption.steps.insert(id, count);
                }
            }
        }
        for (&id, &count) in known.iter().filter(|(id, _)| is_lost(TableName::Steps, **id)) {
            if let Some(source) = steps_of(&id, &count) {
                steps.insert(id, source);
                adoption.steps.insert(id, count);
            }
        }
        adoption.add(target, TableName::Runs, &runs);
        adoption.add(target, TableName::Steps, &steps);
        for found in of_table(TableName::Annotations) {
            let is_apart = |file: &DataFile| file.is_apart_from(&found.file);
            let mut adopted = adoption.files.iter().chain(adoption.parts.iter().map(|part| &part.file));
            if !target.files(TableName::Annotations).all(is_apart) || !adopted.all(is_apart) {
                continue;
            }
            // Annotations of runs that are gone are not adopted.
            let has_run = |id: &u32| known.contains_key(id) || adoption.runs.contains_key(id);
            let run_ids: HashSet<u32> = found.num_steps.keys().copied().filter(has_run).collect();
            if run_ids.len() == found.num_steps.len() {
                adoption.files.push(found.file.clone());
            } else if !run_ids.is_empty() {
                adoption.parts.push(Part { file: found.file.clone(), run_ids });
            }
        }
        Ok(adoption)
    }

    /// Adds the rows of runs from their files.
    fn add(&mut self, target: &Manifest, table: TableName, sources: &Sources<'_>) {
        let mut segments: Vec<(&SoundFile, Vec<u32>)> = Vec::new();
        for (&id, &found) in sources {
            match segments.last_mut() {
                Some((last, ids))
                    if last.file.path == found.file.path
                        && !ids.last().is_some_and(|&before| is_between(target, table, before, id)) =>
                {
                    ids.push(id);
                }
                _ => segments.push((found, vec![id])),
            }
        }
        for (found, ids) in segments {
            if ids.len() == found.num_steps.len() {
                self.files.push(found.file.clone());
            } else {
                self.parts.push(Part { file: found.file.clone(), run_ids: ids.into_iter().collect() });
            }
        }
    }

    pub(super) fn num_runs(&self) -> u64 {
        self.runs.len() as u64
    }

    /// Returns the paths of the files that rows come from.
    pub(super) fn paths(&self) -> Vec<String> {
        let files = self.files.iter().chain(self.parts.iter().map(|part| &part.file));
        let mut paths: Vec<String> = files.map(|file| file.path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// Returns whether the adopted data has all rows of a missing file.
    pub(super) fn replaces(&self, missing: &DataFile) -> bool {
        let range = missing.first_run_id..=missing.last_run_id;
        match missing.table {
            TableName::Runs => self.runs.range(range).count() as u64 >= missing.num_rows,
            TableName::Steps => {
                self.steps.range(range).map(|(_, &count)| u64::from(count)).sum::<u64>() >= missing.num_rows
            }
            TableName::Annotations => self.files.iter().chain(self.parts.iter().map(|part| &part.file)).any(|file| {
                (file.table, &file.model) == (missing.table, &missing.model)
                    && file.first_run_id <= missing.first_run_id
                    && missing.last_run_id <= file.last_run_id
            }),
        }
    }
}

/// Returns whether a run id is in the range of a file of the version. A run that a version does not have, although it has
/// such a file, was never committed.
fn is_within(target: &Manifest, table: TableName, id: u32) -> bool {
    target.files(table).any(|file| has_in_range(file, id))
}

fn has_in_range(file: &DataFile, id: u32) -> bool {
    (file.first_run_id..=file.last_run_id).contains(&id)
}

/// Returns whether a file of the version lies between two run ids.
fn is_between(target: &Manifest, table: TableName, first: u32, last: u32) -> bool {
    target.files(table).any(|file| first < file.first_run_id && file.last_run_id < last)
}
