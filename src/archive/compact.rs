//! Compaction: merging small data files into files of full size.
//!
//! Files that are neighbours in the order of run ids are merged, with row groups of full size. The old files are
//! compared with their checksums when they are read.

use super::checkpoint_writer::write_checkpoint;
use super::commit::Operation;
use super::data_file::DataFile;
use super::parquet_reader::RowGroups;
use super::parquet_writer::{FILE_STEPS, ROW_GROUP_STEPS, RowGroupEncoder};
use super::problem::damaged;
use super::snapshot::Snapshot;
use super::storage::Storage;
use super::table_name::TableName;
use super::transaction::{DEFAULT_WAIT, transact};
use super::writer_thread::{RowGroupSender, TransactionFiles};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::progress::{Progress, Unit};
use crate::workers::pool;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use derive_setters::Setters;

/// Options of [`Archive::compact`](super::Archive::compact).
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[derive(serde::Serialize)]
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

pub(super) fn compact(
    storage: &Storage,
    options: &CompactOptions,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<(CompactReport, Snapshot)> {
    if options.file_rows == 0 {
        return Err(Error::argument("file_rows", "at least 1", 0));
    }
    let threads = pool("compact", options.workers)?;
    let outcome = transact(storage, DEFAULT_WAIT, cancel, |_, snapshot| {
        let plan_one = |table| plan(snapshot, table, options.file_rows);
        let groups: Vec<Vec<&DataFile>> = TableName::ALL.into_iter().flat_map(plan_one).collect();
        let (files_before, bytes_before) = sizes(&snapshot.files);
        let num_rows = groups.iter().flatten().map(|file| file.num_rows).sum();
        let mut report = CompactReport {
            files_before,
            files_after: files_before,
            bytes_before,
            bytes_after: bytes_before,
            num_rows,
        };
        if groups.is_empty() {
            return Ok((None, report));
        }
        let mut commit = snapshot.next(Operation::Compact);
        progress.begin("compact", Unit::Rows, num_rows);
        let output = TransactionFiles { storage, txn: &commit.txn, file_rows: u64::MAX };
        let rewritten = threads.install(|| rewrite(&output, &groups, progress, cancel));
        progress.end();
        commit.add = rewritten?;
        commit.remove = groups.iter().flatten().map(|file| file.path.clone()).collect();
        let removed_bytes: u64 = groups.iter().flatten().map(|file| file.num_bytes).sum();
        let (added_files, added_bytes) = sizes(&commit.add);
        report.files_after = files_before - commit.remove.len() as u64 + added_files;
        report.bytes_after = bytes_before - removed_bytes + added_bytes;
        Ok((Some(commit), report))
    })?;
    if outcome.committed {
        // The list of files is short again. A failure is harmless, because the commit is already durable.
        write_checkpoint(storage, &outcome.snapshot).ok();
    }
    Ok((outcome.value, outcome.snapshot))
}

fn sizes(files: &[DataFile]) -> (u64, u64) {
    (files.len() as u64, files.iter().map(|file| file.num_bytes).sum())
}

/// Returns groups of neighbouring files, each to be merged into one file. A file that is at least half full
/// stays: it is not worth rewriting again. Each group of `annotations` has one model.
fn plan(snapshot: &Snapshot, table: TableName, file_rows: u64) -> Vec<Vec<&DataFile>> {
    let mut groups: Vec<Vec<&DataFile>> = vec![Vec::new()];
    let mut rows = 0;
    for file in snapshot.files(table) {
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

/// Writes each group as one file. If anything fails, removes all files.
fn rewrite(
    output: &TransactionFiles<'_>,
    groups: &[Vec<&DataFile>],
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Vec<DataFile>> {
    let mut added = Vec::new();
    let outcome = groups.iter().try_for_each(|group| {
        let table = group[0].table;
        let (_, files) = output.write(cancel, |sender| copy(output.storage, table, group, sender, progress, cancel))?;
        let expected: u64 = group.iter().map(|file| file.num_rows).sum();
        let found: u64 = files.iter().map(|file| file.num_rows).sum();
        added.extend(files);
        if found != expected {
            let path = output.storage.path(table.name());
            return Err(damaged(&path, "number of rows", expected.to_string(), found.to_string()));
        }
        Ok(())
    });
    if outcome.is_err() {
        added.iter().for_each(|file: &DataFile| drop(output.storage.remove(&file.path)));
    }
    outcome.map(|()| added)
}

/// Encodes the rows of several files as row groups of full size. Small row groups hold whole runs, so the
/// merged ones do too.
fn copy(
    storage: &Storage,
    table: TableName,
    files: &[&DataFile],
    sender: &RowGroupSender,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<()> {
    let encoder = RowGroupEncoder::new(table)?;
    let mut source = RowGroups::new(storage, files);
    let mut next = gather(&mut source, progress, cancel)?;
    while let Some(batch) = next {
        let (encoded, following) =
            rayon::join(|| encoder.encode(&batch, cancel), || gather(&mut source, progress, cancel));
        sender.send(table, encoded?)?;
        next = following?;
    }
    Ok(())
}

/// Returns enough rows for the next row group; `None` at the end.
fn gather(
    source: &mut RowGroups<'_>,
    progress: &dyn Progress,
    cancel: &CancellationToken,
) -> Result<Option<RecordBatch>> {
    let mut batches = Vec::new();
    let mut num_rows = 0;
    while num_rows < ROW_GROUP_STEPS
        && let Some(batch) = source.next()?
    {
        cancel.check()?;
        num_rows += batch.num_rows();
        progress.advance(batch.num_rows() as u64);
        batches.push(batch);
    }
    let Some(first) = batches.first() else { return Ok(None) };
    let joined = concat_batches(&first.schema(), &batches);
    joined.map(Some).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::commit::Commit;
    use crate::archive::phases::Phases;

    fn planned(rows: &[u64], file_rows: u64) -> Vec<Vec<u64>> {
        let mut commit = Commit::first(Phases::default());
        commit.add = (0..)
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
            })
            .collect();
        let files = commit.add.clone();
        let snapshot = Snapshot {
            newest: commit,
            newest_crc: String::new(),
            files,
            history: Vec::new(),
            checkpoint: 0,
            digests: 0,
        };
        let rows = |group: Vec<&DataFile>| group.iter().map(|file| file.num_rows).collect();
        plan(&snapshot, TableName::Steps, file_rows).into_iter().map(rows).collect()
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
}
