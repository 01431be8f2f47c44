//! Compaction: merging small data files into files of full size.
//!
//! Files that are neighbours in the order of run ids are merged, with row groups of full size. The old files are
//! compared with their checksums when they are read. An ingest merges the last small files, if there are too many.

use crate::archive::archive::Archive;
use crate::archive::manifest::data_file::DataFile;
use crate::archive::manifest::transaction::{Patience, transact};
use crate::archive::manifest::{Manifest, Operation};
use crate::archive::parquet::reader::row_groups;
use crate::archive::parquet::writer::{FILE_STEPS, ROW_GROUP_STEPS, RowGroupEncoder};
use crate::archive::parquet::writer_thread::{RowGroupSender, TransactionFiles};
use crate::archive::schema::table_schema;
use crate::archive::storage::Storage;
use crate::archive::table_name::TableName;
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers::pool;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use derive_setters::Setters;
use rayon::ThreadPool;
use std::time::Duration;
use tracing::{info, warn};

/// Options of [`Archive::compact`].
///
/// Set fields with the `with_*` methods: `CompactOptions::default().with_workers(4)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct CompactOptions {
    /// The number of rows of a full file. A file with at least half as many rows is left alone.
    pub file_rows: u64,
    /// The number of threads; `None` = one per core.
    pub workers: Option<usize>,
}

impl Default for CompactOptions {
    fn default() -> Self {
        CompactOptions { file_rows: FILE_STEPS, workers: None }
    }
}

/// The result of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct CompactReport {
    /// The number of files before.
    pub files_before: u64,
    /// The number of files after.
    pub files_after: u64,
    /// The total size of the files before.
    pub bytes_before: u64,
    /// The total size of the files after.
    pub bytes_after: u64,
    /// The number of rewritten rows, of all tables together.
    pub num_rows: u64,
}

impl Archive {
    /// Merges small data files, such as those of hourly ingests, into files of full size, and commits the
    /// result.
    ///
    /// The rows, their order and their ids stay the same. No file is removed: older versions need the small
    /// files until [`expire`](Archive::expire) drops these versions.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if a file cannot be read back. [`ErrorKind::Conflict`], [`ErrorKind::Cancelled`],
    /// [`ErrorKind::Io`], [`ErrorKind::Unconfirmed`].
    pub fn compact(
        &mut self,
        options: &CompactOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<CompactReport> {
        if options.file_rows == 0 {
            return Err(Error::argument("file_rows", "at least 1", 0));
        }
        let threads = pool("compact", options.workers)?;
        let merge = Merge { storage: &self.storage, threads: &threads, progress, cancel };
        let plan: &Plan<'_> = &|newest, table| plan(newest, table, options.file_rows);
        let (report, manifest) = merge.run(&self.manifest, Patience::default(), plan)?;
        info!(
            target: "a2store::maintenance",
            archive = %self.path().display(),
            files_before = report.files_before,
            files_after = report.files_after,
            rows = report.num_rows,
            "compact ended"
        );
        self.manifest = manifest.into();
        Ok(report)
    }
}

/// Merges the last small files of an archive, if a version has too many. Returns the new version, or the one before: the
/// rows are the same. An ingest has succeeded whether or not this does, for example because an old file is damaged.
pub(in crate::archive) fn merge_small(
    storage: &Storage,
    version: Manifest,
    threads: &ThreadPool,
    cancel: &CancellationToken,
) -> Manifest {
    let plan: &Plan<'_> = &|newest, table| match table {
        TableName::Runs | TableName::Steps => {
            Some(last_small(newest, table, FILE_STEPS)).filter(|group| group.len() > 1).into_iter().collect()
        }
        TableName::Annotations => Vec::new(),
    };
    // Of many writers, a few merge.
    if TableName::ALL.into_iter().all(|table| plan(&version, table).is_empty())
        || (storage.queue.is_crowded() && !version.version.is_multiple_of(8))
    {
        return version;
    }
    let patience = Patience { wait: Duration::ZERO, attempts: 3 };
    match (Merge { storage, threads, progress: &(), cancel }).run(&version, patience, plan) {
        Ok((_, merged)) if (merged.num_runs, merged.next_run_id) == (version.num_runs, version.next_run_id) => merged,
        // Another writer is at work, or will merge the files.
        Err(error) if matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::Conflict { .. }) => version,
        Ok(_) => version,
        Err(error) => {
            let archive = storage.root().display();
            warn!(target: "a2store::ingest", %archive, %error, "small files were not merged");
            version
        }
    }
}

/// Returns groups of files of a table, each to be merged into one file.
type Plan<'p> = dyn for<'a> Fn(&'a Manifest, TableName) -> Vec<Vec<&'a DataFile>> + 'p;

/// A merge of files.
struct Merge<'a> {
    storage: &'a Storage,
    threads: &'a ThreadPool,
    progress: &'a dyn Progress,
    cancel: &'a CancellationToken,
}

impl Merge<'_> {
    /// Makes a version in which each group of files that `plan` returns is one file.
    fn run(&self, seen: &Manifest, patience: Patience, plan: &Plan<'_>) -> Result<(CompactReport, Manifest)> {
        let prepare = |newest: &Manifest| {
            let groups: Vec<Vec<&DataFile>> =
                TableName::ALL.into_iter().flat_map(|table| plan(newest, table)).collect();
            let (files_before, bytes_before) = sizes(&newest.files);
            let num_rows = groups.iter().flatten().map(|file| file.num_rows).sum();
            let mut report = CompactReport { files_before, bytes_before, num_rows, ..CompactReport::default() };
            (report.files_after, report.bytes_after) = (files_before, bytes_before);
            if groups.is_empty() {
                return Ok((None, report));
            }
            let mut next = newest.next(Operation::Compact);
            let _work = ReportedWork::begin(self.progress, "compact", Unit::Rows, num_rows);
            let rewritten = self.threads.install(|| self.rewrite(&next, &groups))?;
            let removed = groups.iter().flatten().map(|file| file.path.clone()).collect();
            next.replace(&removed, rewritten);
            (report.files_after, report.bytes_after) = sizes(&next.files);
            Ok((Some(next), report))
        };
        let outcome = transact(self.storage, seen, patience, self.cancel, prepare, |_, _, _| Ok(true))?;
        Ok((outcome.value, outcome.manifest))
    }

    /// Writes each group as one file. If anything fails, removes all files.
    fn rewrite(&self, version: &Manifest, groups: &[Vec<&DataFile>]) -> Result<Vec<DataFile>> {
        let mut added = Vec::new();
        let outcome = groups.iter().try_for_each(|group| {
            let model = group[0].model.as_deref();
            let output = TransactionFiles { storage: self.storage, version, model, file_rows: u64::MAX };
            let (_, files) = output.write(self.cancel, |sender| self.copy(group, sender))?;
            let expected: u64 = group.iter().map(|file| file.num_rows).sum();
            let found: u64 = files.iter().map(|file| file.num_rows).sum();
            added.extend(files);
            if found != expected {
                return Err(self.storage.damaged(group[0].table.name(), "number of rows", expected, found));
            }
            Ok(())
        });
        if outcome.is_err() {
            added.iter().for_each(|file: &DataFile| drop(self.storage.remove(&file.path)));
        }
        outcome.map(|()| added)
    }

    /// Encodes the rows of several files as row groups of full size. Small row groups hold whole runs, so the
    /// merged ones do too.
    fn copy(&self, files: &[&DataFile], sender: &RowGroupSender) -> Result<()> {
        let table = files[0].table;
        let (encoder, schema) = (RowGroupEncoder::new(table)?, table_schema(table));
        let mut source = row_groups(self.storage, files.iter().copied(), &schema);
        let mut next = self.gather(&mut source)?;
        while let Some(batch) = next {
            let encode = || encoder.encode([Ok(batch)], self.cancel);
            let (encoded, following) = rayon::join(encode, || self.gather(&mut source));
            sender.send(table, encoded?)?;
            next = following?;
        }
        Ok(())
    }

    /// Returns enough rows for the next row group; `None` at the end.
    fn gather(&self, source: &mut (impl Iterator<Item = Result<RecordBatch>> + Send)) -> Result<Option<RecordBatch>> {
        let mut batches = Vec::new();
        let (mut num_rows, mut num_bytes) = (0, 0);
        while num_rows < ROW_GROUP_STEPS
            && num_bytes < ROW_GROUP_BYTES
            && let Some(batch) = source.next().transpose()?
        {
            self.cancel.check()?;
            num_rows += batch.num_rows();
            num_bytes += batch.get_array_memory_size();
            self.progress.advance(batch.num_rows() as u64);
            batches.push(batch);
        }
        let Some(first) = batches.first() else { return Ok(None) };
        let joined = concat_batches(&first.schema(), &batches);
        joined.map(Some).map_err(Error::other)
    }
}

/// Enough bytes in memory for a row group. Only rows of `runs` with original files reach it.
const ROW_GROUP_BYTES: usize = 256 << 20;

/// Returns the number of small files of a table from which an ingest merges the last ones. A writer that opens an archive
/// reads all files of `runs`.
const fn max_small_files(table: TableName) -> usize {
    match table {
        TableName::Runs => 16,
        TableName::Steps | TableName::Annotations => 64,
    }
}

/// Returns the last files of a table that an ingest merges into one. Going back from the last file, a file is added if
/// it has at most twice the rows of the files after it. So each row is rewritten about as often as its file doubles.
fn last_small(manifest: &Manifest, table: TableName, file_rows: u64) -> Vec<&DataFile> {
    let is_small = |file: &&DataFile| file.num_rows < file_rows.div_ceil(2);
    if manifest.files(table).filter(is_small).count() < max_small_files(table) {
        return Vec::new();
    }
    let files: Vec<&DataFile> = manifest.files(table).collect();
    let (mut group, mut rows) = (Vec::new(), 0);
    for file in files.into_iter().rev() {
        if !is_small(&file) || rows >= file_rows || (!group.is_empty() && file.num_rows > 2 * rows) {
            break;
        }
        rows += file.num_rows;
        group.push(file);
    }
    group.reverse();
    group
}

fn sizes(files: &[DataFile]) -> (u64, u64) {
    (files.len() as u64, files.iter().map(|file| file.num_bytes).sum())
}

/// Returns groups of neighbouring files, each to be merged into one file. A file that is at least half full
/// stays: it is not worth rewriting again. Each group of `annotations` has one model.
fn plan(manifest: &Manifest, table: TableName, file_rows: u64) -> Vec<Vec<&DataFile>> {
    let mut groups: Vec<Vec<&DataFile>> = vec![Vec::new()];
    let mut rows = 0;
    for file in manifest.files(table) {
        let full = file.num_rows >= file_rows.div_ceil(2);
        let other_model = groups.last().and_then(|group| group.last()).is_some_and(|last| last.model != file.model);
        if full || other_model || rows >= file_rows {
            groups.push(Vec::new());
            rows = 0;
        }
        if let (false, Some(group)) = (full, groups.last_mut()) {
            group.push(file);
            rows += file.num_rows;
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::phases::Phases;
    use crate::archive::storage::storage_options::StorageOptions;
    use arrow::array::{ArrayRef, BinaryArray};
    use std::path::Path;
    use std::sync::Arc;

    fn manifest_of(rows: &[u64]) -> Manifest {
        let mut manifest = Manifest::first(Phases::default());
        manifest.files = (0..)
            .zip(rows)
            .map(|(id, &num_rows)| DataFile {
                table: TableName::Steps,
                path: id.to_string(),
                num_rows,
                num_bytes: 0,
                crc32c: String::new(),
                first_run_id: id,
                last_run_id: id,
                model: None,
                row_groups: Vec::new(),
            })
            .collect();
        manifest
    }

    fn planned(rows: &[u64], file_rows: u64) -> Vec<Vec<u64>> {
        let manifest = manifest_of(rows);
        let rows = |group: Vec<&DataFile>| group.iter().map(|file| file.num_rows).collect();
        plan(&manifest, TableName::Steps, file_rows).into_iter().map(rows).collect()
    }

    #[test]
    fn neighbours_are_merged_and_full_files_are_left_alone() {
        assert_eq!(planned(&[], 10), Vec::<Vec<u64>>::new());
        assert_eq!(planned(&[1], 10), Vec::<Vec<u64>>::new());
        assert_eq!(planned(&[1, 2, 3], 10), [[1, 2, 3]]);
        assert_eq!(planned(&[10, 1, 5, 2, 3], 10), [[2, 3]]);
        assert_eq!(planned(&[4, 4, 4, 4, 4, 4], 10), [[4, 4, 4], [4, 4, 4]]);
        assert_eq!(planned(&[12, 12, 1], 10), Vec::<Vec<u64>>::new());
    }

    /// Appends `rows` rows `count` times. Returns the number of rows that merges wrote, and the largest number of files.
    fn appended(rows: impl Fn(u64) -> u64, count: u64, file_rows: u64) -> (u64, usize) {
        let (mut sizes, mut written, mut most): (Vec<u64>, u64, usize) = (Vec::new(), 0, 0);
        for append in 0..count {
            let manifest = manifest_of(&sizes);
            let merged: Vec<u64> =
                last_small(&manifest, TableName::Steps, file_rows).iter().map(|file| file.num_rows).collect();
            if merged.len() > 1 {
                sizes.truncate(sizes.len() - merged.len());
                sizes.push(merged.iter().sum());
                written += merged.iter().sum::<u64>();
            }
            sizes.push(rows(append));
            most = most.max(sizes.len());
        }
        assert_eq!(sizes.iter().sum::<u64>(), (0..count).map(&rows).sum::<u64>());
        (written, most)
    }

    #[test]
    fn large_rows_make_small_row_groups() {
        let bytes: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&vec![0; ROW_GROUP_BYTES / 4]]));
        let batch = RecordBatch::try_from_iter([("original", bytes)]).unwrap();
        let (storage, threads) =
            (Storage::new(Path::new("x"), &StorageOptions::default()).unwrap(), pool("t", Some(1)));
        let (threads, cancel) = (threads.unwrap(), CancellationToken::never());
        let merge = Merge { storage: &storage, threads: &threads, progress: &(), cancel };
        let mut source = std::iter::repeat_n(batch, 6).map(Ok);
        let mut next = || merge.gather(&mut source).unwrap().map(|batch| batch.num_rows());
        assert_eq!([next(), next(), next()], [Some(4), Some(2), None]);
    }

    const MAX_SMALL_FILES: usize = max_small_files(TableName::Steps);

    #[test]
    fn appends_keep_the_number_of_small_files_low() {
        for rows in [1, 100, 4000] {
            let (written, most) = appended(|_| rows, 5000, 1 << 24);
            assert!(most <= MAX_SMALL_FILES + 8, "{most}");
            assert!(written < 6 * 5000 * rows, "{written}");
        }
        // Sizes of any kind.
        let (written, most) = appended(|append| 1 + append * append * 2_654_435_761 % 10_007, 5000, 1 << 24);
        assert!(most <= MAX_SMALL_FILES + 8 && written < 8 * 5000 * 5000, "{written} {most}");
        let (_, most) = appended(|append| 1 << (20 - append % 21), 5000, 1 << 24);
        assert!(most < MAX_SMALL_FILES + 5000 / 8, "{most}");
    }
}
