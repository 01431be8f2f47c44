//! Reading NumPy datasets.

use super::manifest::{Manifest, check_file};
use super::metadata::Metadata;
use super::row::{DatasetRow, ROW_LEN, fields};
use crate::error::{Error, Result};
use crate::format::files::mapped::{header_error, map_file};
use crate::format::files::mapped_rows::{METADATA, MappedRows, files_in};
use crate::format::rows::rebuild;
use crate::format::source::{RunSource, SourceRun};
use crate::run::{Run, RunMeta};
use crate::system::publish::parent;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A NumPy dataset with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and the headers of the row files, and compares the files with the checksums in the
/// manifest, if there are any. Reading a run then reads only its rows. The files must not be modified while the dataset
/// is open. Replacing them is safe.
#[derive(Debug)]
pub struct Dataset {
    folder: PathBuf,
    steps: MappedRows,
    runs: Metadata,
    /// The difference between an outdated manifest and the files.
    outdated: Option<Error>,
}

impl Dataset {
    /// Opens a dataset by its folder, or by any file in it.
    ///
    /// An outdated manifest is ignored if the rows and the runs agree with each other.
    ///
    /// # Errors
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) if a shard is missing, a file is damaged or has the wrong format
    /// or size, or the manifest disagrees with the files while the files disagree with each other;
    /// [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) for the first file that differs from its checksum;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<Dataset> {
        let path = path.as_ref();
        let folder = if path.is_dir() { path } else { parent(path) }.to_owned();
        let manifest = Manifest::read(&folder)?;
        let runs = Metadata::read(&folder.join(METADATA))?;
        let steps = MappedRows::open(files_in(&folder)?, &[fields()])?;
        let (num_rows, num_runs) = (steps.num_rows(), runs.num_runs());
        runs.check_claims(num_rows, &folder.join(METADATA))?;
        let mut dataset = Dataset { folder, steps, runs, outdated: None };
        let Some(manifest) = manifest else { return Ok(dataset) };
        match manifest.check(num_rows, dataset.runs.end(num_rows), num_runs, &dataset.folder) {
            Ok(()) => dataset.check_files(&manifest)?,
            // Another writer of this format appends to a dataset without updating its manifest. Rows and runs that the
            // manifest counts and the files lack are lost.
            Err(error) => {
                let lacks_some = manifest.num_steps > num_rows || manifest.num_runs > num_runs as u64;
                if lacks_some || !dataset.runs.agree_with(num_rows) {
                    return Err(error);
                }
                dataset.outdated = Some(error);
            }
        }
        Ok(dataset)
    }

    /// Returns the number of rows, including rows that belong to no run.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.steps.num_rows()
    }

    /// Decodes a run. The run has no final board, because a dataset holds none.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the run, the step and the offset in the file, if rows are
    /// missing, belong to several runs, or hold no valid step;
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn decode(&self, index: usize) -> Result<Run> {
        let (meta, first, rows) = self.rows(index).map_err(|error| error.with_path(self.folder.join(METADATA)))?;
        let rows: &[DatasetRow] = bytemuck::cast_slice(&rows);
        check_rows(rows)
            .and_then(|()| rebuild(rows.iter().enumerate().map(|(place, row)| row.to_step(place)), ROW_LEN, meta))
            .and_then(|run| match run.step_indices() {
                None => Ok(run),
                Some(_) => Err(Error::decode(0, "step_index of the rows", "0, 1, 2 and so on", "gaps")),
            })
            .map_err(|error| self.steps.in_run(error, index as u64, |place| first.saturating_add(place)))
    }

    /// Returns the metadata of a run, the number of its first row, and its rows.
    fn rows(&self, index: usize) -> Result<(RunMeta, u64, Cow<'_, [u8]>)> {
        let (meta, first, len) = self.runs.run(index)?;
        let rows = first.checked_add(len).and_then(|end| self.steps.rows(first..end)).ok_or_else(|| {
            let expected = format!("rows within the {} of the dataset", self.num_steps());
            let found = format!("{len} from {first} on");
            Error::decode(None, "runs.first_step_idx", expected, found)
                .located(|location| location.run = Some(index as u64))
        })?;
        Ok((meta, first, rows))
    }

    /// Compares the files with the checksums in the manifest.
    fn check_files(&self, manifest: &Manifest) -> Result<()> {
        manifest.crc32c.iter().try_for_each(|(name, stored)| {
            let path = self.folder.join(name);
            // Compares only files of this folder, even if the manifest names others.
            let steps = self.steps.files().find(|(path, _)| path.file_name().is_some_and(|file| file == name.as_str()));
            match steps {
                Some((_, bytes)) => check_file(&path, stored, bytes),
                None if name == METADATA => check_file(&path, stored, &map_file(&path)?),
                None => {
                    let (what, found) = ("checksums of the manifest", format!("{name:?}"));
                    Err(header_error(what, "files of the dataset", found, &self.folder))
                }
            }
        })
    }
}

impl RunSource for Dataset {
    fn num_runs(&self) -> usize {
        self.runs.num_runs()
    }

    fn num_bytes(&self, index: usize) -> u64 {
        let rows = self.runs.rows(index).filter(|&(_, len)| len <= self.num_steps());
        rows.map_or(0, |(_, len)| len * ROW_LEN as u64)
    }

    fn warning(&self) -> Option<String> {
        let error = self.outdated.as_ref()?;
        Some(format!("{error}; the manifest is ignored, because steps.npy and metadata.db agree"))
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}

/// Rejects rows that belong to several runs.
fn check_rows(rows: &[DatasetRow]) -> Result<()> {
    let first = rows.first().map_or(0, |row| row.run_id);
    let Some((place, row)) = rows.iter().enumerate().find(|(_, row)| row.run_id != first) else { return Ok(()) };
    let (expected, found) = (format!("{first} as in the run's first row"), row.run_id);
    let offset = place * ROW_LEN + std::mem::offset_of!(DatasetRow, run_id);
    Err(Error::decode(offset as u64, "run_id", expected, found).located(|location| location.step = Some(place as u64)))
}
