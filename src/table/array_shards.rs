//! The files of an attached array: one file, or numbered shards of it. A recorder may write one shard of embeddings for
//! each shard of steps.

use super::array_file::ArrayFile;
use super::attached::ValueShard;
use super::element::ElementType;
use super::file_identity::FileIdentity;
use super::memory::check_memory;
use super::step_keys::StepKeys;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::format::{header_error, numbered_files};
use crate::progress::{Progress, Unit};
use std::path::{Path, PathBuf};

/// The files of an array in order, whose headers were read. All have the same type and number of values per row.
pub(super) struct ArrayShards {
    first: ArrayFile,
    rest: Vec<ArrayFile>,
}

impl ArrayShards {
    /// Returns the files at `path`: the file itself, or `embeddings.npy` or its shards in a folder.
    pub(super) fn files(path: &Path) -> Result<Vec<PathBuf>> {
        match path.is_dir() {
            true => numbered_files(path, "embeddings", "files of the embeddings"),
            false => Ok(vec![path.to_owned()]),
        }
    }

    /// Opens at least one file.
    pub(super) fn open(paths: &[PathBuf]) -> Result<ArrayShards> {
        let Some((first, rest)) = paths.split_first() else {
            return Err(header_error("files of an array", "at least one", "none".into(), Path::new("")));
        };
        let first = ArrayFile::open(first)?;
        let rest = rest.iter().map(|path| ArrayFile::open(path)).collect::<Result<Vec<_>>>()?;
        let values_of = |file: &ArrayFile| format!("{} × {}", file.values_per_row(), file.dtype().numpy());
        if let Some(other) = rest.iter().find(|other| values_of(other) != values_of(&first)) {
            let expected = format!("{}, as {} has", values_of(&first), first.path().display());
            return Err(header_error("values of a row", expected, values_of(other), other.path()));
        }
        Ok(ArrayShards { first, rest })
    }

    pub(super) fn path(&self) -> &Path {
        self.first.path()
    }

    pub(super) fn dtype(&self) -> ElementType {
        self.first.dtype()
    }

    pub(super) fn values_per_row(&self) -> usize {
        self.first.values_per_row()
    }

    /// Returns an error unless the array has one row per key. With as many files as the keys have, each file must have
    /// one row per key of its counterpart.
    pub(super) fn check_rows(&self, keys: &StepKeys) -> Result<()> {
        let (num_files, num_key_files) = (1 + self.rest.len(), keys.files().count());
        if num_files == num_key_files {
            return self.iter().zip(keys.files()).try_for_each(|(file, (path, rows))| file.check_rows(rows, path));
        }
        let num_rows: u64 = self.iter().map(ArrayFile::num_rows).sum();
        if num_rows == keys.num_rows() {
            return Ok(());
        }
        let expected = format!("{} in {num_key_files} files, as {} has", keys.num_rows(), keys.name());
        Err(header_error("rows of the array", expected, format!("{num_rows} in {num_files}"), self.path()))
    }

    /// Maps the values, or reads them into memory if a `limit` is given. The inner `None` stands for the available
    /// memory.
    pub(super) fn values(
        &self,
        limit: Option<Option<u64>>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Vec<ValueShard>> {
        if let Some(limit) = limit {
            let needed = self.iter().map(ArrayFile::num_bytes).sum();
            check_memory(needed, limit)?;
            progress.begin("read", Unit::Bytes, needed);
        }
        let mut first_row = 0;
        let shard = |file: &ArrayFile| -> Result<ValueShard> {
            let values = match limit {
                None => file.map()?,
                Some(_) => file.read(progress, cancel)?,
            };
            let shard = ValueShard { first_row, values };
            first_row += file.num_rows();
            Ok(shard)
        };
        self.iter().map(shard).collect()
    }

    /// Returns the identities of the files at the time of opening.
    pub(super) fn identities(&self) -> impl Iterator<Item = &FileIdentity> {
        self.iter().map(ArrayFile::identity)
    }

    fn iter(&self) -> impl Iterator<Item = &ArrayFile> {
        std::iter::once(&self.first).chain(&self.rest)
    }
}
