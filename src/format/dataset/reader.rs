//! Reading NumPy datasets.

use super::manifest::{Manifest, check_crc};
use super::metadata::{Metadata, damaged};
use super::row::{DatasetRow, ROW_LEN, fields};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::mapped::FileBytes;
use crate::format::rows::rebuild;
use crate::format::shards::{METADATA, RowShards, files_in, header_error};
use crate::format::source::{RunSource, SourceRun};
use crate::publish::parent;
use crate::run::{Run, RunMeta};
use std::path::{Path, PathBuf};

/// A NumPy dataset with memory-mapped rows. Any number of threads may read its runs in any order.
///
/// Opening reads `metadata.db` and the headers of the row files. Reading a run then reads only its rows. The
/// files must not be modified while the dataset is open. Replacing them is safe.
#[derive(Debug)]
pub struct Dataset {
    folder: PathBuf,
    steps: RowShards,
    runs: Metadata,
    manifest: Option<Manifest>,
}

/// Opens a dataset and compares its files with the checksums of the manifest. If the manifest is outdated, its
/// checksums are ignored.
pub(in crate::format) fn open_checked(folder: &Path) -> Result<Dataset> {
    let check = |dataset: &Dataset| match dataset.check_manifest() {
        Ok(()) => dataset.verify().map(drop),
        Err(_) => Ok(()),
    };
    let dataset = Dataset::open(folder)?;
    if check(&dataset).is_ok() {
        return Ok(dataset);
    }
    // Another process may have added runs since the manifest was read.
    let dataset = Dataset::open(folder)?;
    check(&dataset).map(|()| dataset)
}

impl Dataset {
    /// Opens a dataset by its folder, or by any file in it.
    ///
    /// # Errors
    /// [`ErrorKind::Header`] if a shard is missing, a file is damaged or has the wrong format or size, or the
    /// manifest disagrees with the files while the files disagree with each other; [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Dataset> {
        let path = path.as_ref();
        let folder = if path.is_dir() { path } else { parent(path) };
        let dataset = Dataset::open_folder(folder)?;
        if dataset.check_manifest().is_ok() {
            return Ok(dataset);
        }
        // Another process may have added runs between the reads of two files, so this tries once more.
        let dataset = Dataset::open_folder(folder)?;
        match dataset.check_manifest() {
            // Another writer of this format appends to a dataset without updating its manifest. Rows and runs that the
            // manifest counts and the files lack are lost.
            Err(error) if !dataset.runs.agree_with(dataset.steps.num_rows()) || dataset.lacks_some() => Err(error),
            _ => Ok(dataset),
        }
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn num_runs(&self) -> usize {
        self.runs.num_runs()
    }

    /// Returns the number of rows, including rows that belong to no run.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.steps.num_rows()
    }

    /// Returns the number of rows after those of the last run. An interrupted append leaves such rows.
    #[must_use]
    pub fn num_stray_rows(&self) -> u64 {
        self.num_steps() - self.runs.end(self.num_steps())
    }

    /// Returns the id of a run; `None` past the last run.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<i64> {
        self.runs.id(index)
    }

    /// Returns the metadata of a run without reading its steps.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] if the metadata is invalid; [`ErrorKind::IndexOutOfBounds`].
    pub fn meta(&self, index: usize) -> Result<RunMeta> {
        let run = self.runs.run(index).map_err(|error| error.with_path(self.metadata()))?;
        Ok(run.0)
    }

    /// Decodes a run. The run has no final board, because a dataset holds none.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] with the run, the step and the offset in the file, if rows are missing, belong to
    /// several runs, or hold no valid step; [`ErrorKind::IndexOutOfBounds`].
    pub fn decode(&self, index: usize) -> Result<Run> {
        let in_metadata = |error: Error| error.with_path(self.metadata());
        let (meta, first, len) = self.runs.run(index).map_err(in_metadata)?;
        let rows = first.checked_add(len).and_then(|end| self.steps.rows(first..end)).ok_or_else(|| {
            let expected = format!("rows within the {} of the dataset", self.num_steps());
            in_metadata(damaged(index, "runs.first_step_idx", expected, format!("{len} from {first} on")))
        })?;
        let rows: &[DatasetRow] = bytemuck::cast_slice(&rows);
        check_rows(rows)
            .and_then(|()| rebuild(rows.iter().enumerate().map(|(place, row)| row.to_step(place)), ROW_LEN, meta))
            .and_then(|run| match run.step_indices() {
                None => Ok(run),
                Some(_) => Err(Error::decode(0, "step_index of the rows", "0, 1, 2 and so on", "gaps")),
            })
            .map_err(|error| self.steps.in_run(error, index as u64, |place| first.saturating_add(place)))
    }

    /// Returns a description of the difference between the manifest and the files, if they disagree. The manifest is
    /// then outdated and ignored, because the rows and the runs agree with each other.
    #[must_use]
    pub fn manifest_problem(&self) -> Option<Error> {
        self.check_manifest().err()
    }

    /// Compares the files with the checksums in the manifest. Returns the number of files compared, 0 without a
    /// manifest.
    ///
    /// # Errors
    /// [`ErrorKind::Checksum`] for the first file that differs; [`ErrorKind::Header`] for a missing file, an invalid
    /// checksum, or an outdated manifest; [`ErrorKind::Io`].
    pub fn verify(&self) -> Result<usize> {
        self.check_manifest()?;
        let Some(manifest) = &self.manifest else {
            return Ok(0);
        };
        for (name, stored) in &manifest.crc32c {
            let path = self.folder.join(name);
            // Compares only files of this folder, even if the manifest names others.
            let steps = self.steps.files().find(|(path, _)| path.file_name().is_some_and(|file| file == name.as_str()));
            match steps {
                Some((_, bytes)) => check_crc(&path, stored, bytes)?,
                None if name == METADATA => check_crc(&path, stored, &FileBytes::map(&path)?)?,
                None => {
                    let (what, found) = ("checksums of the manifest", format!("{name:?}"));
                    return Err(header_error(what, "files of the dataset", found, &self.folder));
                }
            }
        }
        Ok(manifest.crc32c.len())
    }

    fn open_folder(folder: &Path) -> Result<Dataset> {
        let manifest = Manifest::read(folder)?;
        // A writer adds rows before runs. Reading the runs first ensures that their rows exist.
        let runs = Metadata::read(&folder.join(METADATA))?;
        let steps = RowShards::open(files_in(folder)?, &[fields()])?;
        runs.check_claims(steps.num_rows(), &folder.join(METADATA))?;
        Ok(Dataset { folder: folder.to_owned(), steps, runs, manifest })
    }

    fn check_manifest(&self) -> Result<()> {
        let Some(manifest) = &self.manifest else {
            return Ok(());
        };
        let covered = self.runs.end(self.steps.num_rows());
        manifest.check(self.steps.num_rows(), covered, self.runs.num_runs(), &self.folder)
    }

    /// Returns whether the files have fewer rows or runs than the manifest.
    fn lacks_some(&self) -> bool {
        let (num_rows, num_runs) = (self.steps.num_rows(), self.runs.num_runs() as u64);
        self.manifest.as_ref().is_some_and(|manifest| manifest.num_steps > num_rows || manifest.num_runs > num_runs)
    }

    fn metadata(&self) -> PathBuf {
        self.folder.join(METADATA)
    }
}

impl RunSource for Dataset {
    fn num_runs(&self) -> usize {
        self.runs.num_runs()
    }

    fn offset(&self, index: usize) -> u64 {
        let place = self.runs.rows(index).and_then(|(first, _)| self.steps.place(first));
        place.map_or(0, |(_, offset)| offset)
    }

    fn num_bytes(&self, index: usize) -> u64 {
        let rows = self.runs.rows(index).filter(|&(_, len)| len <= self.num_steps());
        rows.map_or(0, |(_, len)| len * ROW_LEN as u64)
    }

    fn warning(&self) -> Option<String> {
        let error = self.manifest_problem()?;
        Some(format!("{error}; the manifest is ignored, because steps.npy and metadata.db agree"))
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}

/// Rejects rows that belong to several runs.
fn check_rows(rows: &[DatasetRow]) -> Result<()> {
    let Some(first) = rows.first().map(|row| row.run_id) else {
        return Ok(());
    };
    let Some(place) = rows.iter().position(|row| row.run_id != first) else {
        return Ok(());
    };
    let found = rows.get(place).map_or(first, |row| row.run_id);
    let location = Location {
        offset: Some((place * ROW_LEN + std::mem::offset_of!(DatasetRow, run_id)) as u64),
        step: Some(place as u64),
        ..Location::default()
    };
    let (expected, found) = (format!("{first} as in the run's first row"), found.to_string());
    Err(ErrorKind::Decode { location, what: "run_id", expected, found }.into())
}
