//! Reading of whole runs and their original files from an archive.

use super::reader::{self, OpenDataFile, row_groups};
use super::row_views::StepRows;
use super::run_rows::{RunRow, run_rows};
use crate::archive::archive::Archive;
use crate::archive::ingest::run_digest::run_digest;
use crate::archive::schema::schema_of_columns;
use crate::archive::table_name::TableName;
use crate::error::{Error, Result};
use crate::format::{RunFormat, SourceFormat, decode_run, encode_run};
use crate::run::Run;
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::workers::pool;
use arrow::array::RecordBatch;
use blake3::Hash;
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

/// A run with the data of its original source.
#[derive(Debug)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// The run's row of `runs`.
    pub(crate) row: RunRow,
}

impl StoredRun {
    /// Returns the format of run files that fits the run: the format of its source, if that was a run file.
    #[must_use]
    pub fn format(&self) -> RunFormat {
        self.file_format().unwrap_or(RunFormat::A2run2)
    }

    /// Returns the format of the run file that the run came from.
    fn file_format(&self) -> Option<RunFormat> {
        match self.row.source_format() {
            Some(SourceFormat::File(format)) => Some(format),
            _ => None,
        }
    }

    /// Takes the bytes of the run file that this run came from; `None` if it came from another kind of
    /// source.
    ///
    /// # Errors
    /// Errors of the encoder. A run that was decoded causes none.
    pub(crate) fn original(&mut self) -> Result<Option<(RunFormat, Vec<u8>)>> {
        let Some(format) = self.file_format() else { return Ok(None) };
        let bytes = self.row.original.take().map_or_else(|| encode_run(&self.run, format), Ok)?;
        Ok(Some((format, bytes)))
    }
}

impl Archive {
    /// Reads columns of `runs`, in the order of run ids. Each batch has the columns in the order of the table.
    pub(crate) fn read_columns_of_runs(
        &self,
        columns: &[&str],
        mut each: impl FnMut(&RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let schema = schema_of_columns(TableName::Runs, columns);
        row_groups(&self.storage, self.manifest.files(TableName::Runs), &schema).try_for_each(|batch| each(&batch?))
    }

    /// Reads a run.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the archive has no such run. Errors of reading the archive.
    pub fn run(&self, run_id: u32, cancel: &CancellationToken) -> Result<StoredRun> {
        let mut found = None;
        self.read_runs(&[run_id], Some(1), &(), cancel, Ok, |_, run| {
            found = Some(run);
            Ok(())
        })?;
        let expected = || format!("the id of one of {} runs", self.num_runs());
        found.ok_or_else(|| Error::argument("run_id", expected(), run_id))
    }

    /// Reads runs, converts each with `make` on all threads, and passes the results to `sink` in the order of
    /// ids.
    ///
    /// `run_ids` must ascend; unknown ids are skipped. Memory holds one row group per thread. Compares the
    /// digest of each run that has steps.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged), and errors of the callbacks.
    pub(crate) fn read_runs<T: Send>(
        &self,
        run_ids: &[u32],
        workers: Option<usize>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
        make: impl Fn(StoredRun) -> Result<T> + Sync,
        mut sink: impl FnMut(u32, T) -> Result<()> + Send,
    ) -> Result<()> {
        let threads = pool("export", workers)?;
        let _work = ReportedWork::begin(progress, "export", Unit::Runs, run_ids.len() as u64);
        threads.install(|| {
            self.each_group(TableName::Runs, run_ids, &mut |file, index| {
                let batch = file.read(index)?;
                let mut known = HashMap::new();
                let mut ids = Vec::new();
                for row in run_rows(&batch)? {
                    let row = row?;
                    if run_ids.binary_search(&row.run_id).is_ok() {
                        ids.push(row.run_id);
                        known.insert(row.run_id, row);
                    }
                }
                self.read_group(&ids, &known, progress, cancel, &make, &mut sink)
            })
        })
    }

    /// Calls `examine` for each run, in the order of ids, without reading steps. `run_ids` must ascend.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the archive does not have one of the runs, and
    /// errors of `examine`.
    pub(crate) fn examine_runs(
        &self,
        run_ids: &[u32],
        cancel: &CancellationToken,
        mut examine: impl FnMut(&RunRow) -> Result<()>,
    ) -> Result<()> {
        let mut missing = run_ids.iter().copied().peekable();
        self.each_group(TableName::Runs, run_ids, &mut |file, index| {
            cancel.check()?;
            for row in run_rows(&file.read(index)?)? {
                let row = row?;
                if missing.next_if_eq(&row.run_id).is_some() {
                    examine(&row)?;
                }
            }
            Ok(())
        })?;
        match missing.next() {
            None => Ok(()),
            Some(run_id) => Err(Error::argument("run_id", "runs of the archive", run_id)),
        }
    }

    /// Calls `each` for the row groups of a table that may hold these runs, in order. Checks each file before its first
    /// use.
    fn each_group<'a>(
        &'a self,
        table: TableName,
        run_ids: &[u32],
        each: &mut dyn FnMut(&Arc<OpenDataFile<'a>>, usize) -> Result<()>,
    ) -> Result<()> {
        let open = |file| {
            self.check_file(file)?;
            OpenDataFile::new(&self.storage, file)
        };
        reader::each_group(self.manifest.files(table), run_ids, open, each)
    }

    /// Reads and converts the runs of one row group of `runs`.
    fn read_group<T: Send>(
        &self,
        run_ids: &[u32],
        known: &HashMap<u32, RunRow>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
        make: &(impl Fn(StoredRun) -> Result<T> + Sync),
        sink: &mut (impl FnMut(u32, T) -> Result<()> + Send),
    ) -> Result<()> {
        let mut rest = run_ids.iter().copied();
        // A run without steps has no rows in `steps`, so it is inserted between the others.
        let without_rows = |run_id: u32, sink: &mut dyn FnMut(u32, T) -> Result<()>| {
            let Some(row) = known.get(&run_id) else { return Ok(()) };
            if row.num_steps > 0 {
                let expected = format!("{} of run {run_id}", row.num_steps);
                return Err(self.storage.damaged("steps", "rows of `steps`", expected, "none"));
            }
            let run = match &row.original {
                Some(bytes) => decode_run(bytes)?.0,
                None => Run::builder(0).finish(row.meta.clone(), row.final_board)?,
            };
            sink(run_id, make(StoredRun { run, row: row.clone() })?)?;
            progress.advance(1);
            Ok(())
        };
        let mut read = |window: &mut Vec<(Arc<OpenDataFile<'_>>, usize)>,
                        sink: &mut dyn FnMut(u32, T) -> Result<()>| {
            cancel.check()?;
            let runs_of = |(file, index): (Arc<OpenDataFile<'_>>, usize)| self.runs_of(&file, index, known, make);
            let made: Vec<Vec<(u32, T)>> = window.par_drain(..).map(runs_of).collect::<Result<_>>()?;
            for (run_id, value) in made.into_iter().flatten() {
                rest.by_ref().take_while(|&id| id != run_id).try_for_each(|id| without_rows(id, sink))?;
                sink(run_id, value)?;
                progress.advance(1);
            }
            Ok::<_, Error>(())
        };
        let mut window = Vec::new();
        self.each_group(TableName::Steps, run_ids, &mut |file, index| {
            window.push((Arc::clone(file), index));
            match window.len() == rayon::current_num_threads() {
                true => read(&mut window, sink),
                false => Ok(()),
            }
        })?;
        read(&mut window, sink)?;
        rest.try_for_each(|run_id| without_rows(run_id, sink))
    }

    /// Converts the selected runs in a row group of `steps`.
    fn runs_of<T>(
        &self,
        file: &OpenDataFile<'_>,
        index: usize,
        known: &HashMap<u32, RunRow>,
        make: &impl Fn(StoredRun) -> Result<T>,
    ) -> Result<Vec<(u32, T)>> {
        let batch = file.read(index)?;
        let rows = StepRows::new(&batch)?;
        let mut made = Vec::new();
        for range in rows.runs() {
            let Some(row) = known.get(&rows.run_id[range.start]) else { continue };
            let damaged = |expected: String, found: String| {
                self.storage.damaged(&file.file.path, "run built from its rows", expected, found)
            };
            let run = match &row.original {
                // The columns cannot reproduce this run.
                Some(bytes) => decode_run(bytes).map(|(run, _)| run),
                None => rows.run(range, row.meta.clone(), row.final_board),
            };
            let run = run.map_err(|error| damaged("a run".into(), error.message()))?;
            let digest = run_digest(&run)?;
            if digest != row.digest {
                let expected = format!("the digest {} of run {} in `runs`", Hash::from(row.digest), row.run_id);
                return Err(damaged(expected, Hash::from(digest).to_string()));
            }
            made.push((row.run_id, make(StoredRun { run, row: row.clone() })?));
        }
        Ok(made)
    }
}
