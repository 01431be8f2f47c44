//! The destination of rows while a table is filled: memory or a file.

use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::publish::{Staged, parent};
use crate::table::files::footer::footer;
use crate::table::files::npy;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::memory::{Region, check_memory};
use crate::table::rows::runs::Runs;
use crate::table::step_table::StepTable;
use memmap2::MmapOptions;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The rows of a new table.
#[allow(clippy::large_enum_variant)] // There is one value a table.
pub(in crate::table) enum RowOutput {
    Memory(RowMemory),
    /// A file, and the hash of its rows.
    File(RowFile, blake3::Hasher),
}

/// Rows at the front of reserved memory.
pub(in crate::table) struct RowMemory {
    region: Region,
    reserved: u64,
    limit: u64,
    len: usize,
}

/// Rows in a staged file that becomes a table's file.
pub(in crate::table) struct RowFile {
    staged: Staged,
    path: PathBuf,
    /// The size of the header, which is written last.
    start: usize,
    len: u64,
    crc: u32,
}

/// A change of all rows after the last one was written.
pub(in crate::table) type FinalChange<'a> = &'a dyn Fn(&mut [u8]) -> Result<()>;

impl RowMemory {
    /// Reserves memory for exactly `num_bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::MemoryLimit`] if they exceed the limit, or are `u64::MAX`, which stands for an overflow.
    pub(in crate::table) fn exact(num_bytes: u64, limit: u64) -> Result<RowMemory> {
        check_memory(num_bytes, limit)?;
        Ok(RowMemory { region: Region::reserve(num_bytes)?, reserved: num_bytes, limit, len: 0 })
    }

    /// Reserves memory for at most `num_bytes`; `u64::MAX` = an unknown number. Reserved pages take no memory.
    pub(in crate::table) fn up_to(num_bytes: u64, limit: u64) -> Result<RowMemory> {
        let (region, reserved) = Region::reserve_up_to(num_bytes.min(limit))?;
        Ok(RowMemory { region, reserved, limit: limit.min(reserved), len: 0 })
    }

    /// Returns the next bytes, to be filled with rows.
    ///
    /// # Errors
    /// [`ErrorKind::MemoryLimit`].
    pub(in crate::table) fn extend(&mut self, num_bytes: usize) -> Result<&mut [u8]> {
        let (start, end) = (self.len, self.len.saturating_add(num_bytes));
        let reserved = &mut self.region.bytes_mut()[..self.reserved as usize];
        let bytes = reserved.get_mut(start..end);
        let bytes = bytes.ok_or(ErrorKind::MemoryLimit { needed: end as u64, limit: self.limit })?;
        self.len = end;
        Ok(bytes)
    }

    /// Makes a table of the rows.
    pub(in crate::table) fn into_table(
        mut self,
        layout: RowLayout,
        runs: Runs,
        change: Option<FinalChange<'_>>,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        if let Some(change) = change {
            change(&mut self.region.bytes_mut()[..self.len])?;
        }
        let rows = self.region.freeze(self.len)?;
        let fingerprint = Fingerprint::of_rows(rows.bytes(), &layout, cancel)?;
        StepTable::new(rows, layout, fingerprint, runs)
    }
}

impl RowFile {
    pub(in crate::table) fn create(path: &Path, layout: &RowLayout, runs: &Runs) -> Result<RowFile> {
        if runs.is_in_archive(path)? {
            return Err(Error::argument("path", "a file outside of the archive", path.display()));
        }
        let staged = Staged::new(parent(path))?;
        let start = npy::header(layout, u64::MAX)?.len();
        Ok(RowFile { staged, path: path.to_owned(), start, len: 0, crc: 0 })
    }

    pub(in crate::table) fn append(&mut self, rows: &[u8]) -> Result<()> {
        let at = self.start as u64 + self.len;
        self.staged.file().write_all_at(rows, at).map_err(|error| Error::io(&self.path, error))?;
        self.crc = crc32c::crc32c_append(self.crc, rows);
        self.len += rows.len() as u64;
        Ok(())
    }

    /// Changes the rows, and returns their hash.
    #[allow(unsafe_code)]
    fn change(&mut self, change: FinalChange<'_>) -> Result<blake3::Hasher> {
        let file: &File = self.staged.file();
        let io = |error| Error::io(&self.path, error);
        // SAFETY: the file is new and has a staging name, so no other process uses it.
        let map = unsafe { MmapOptions::new().offset(self.start as u64).len(self.len as usize).map_mut(file) };
        let mut map = map.map_err(io)?;
        change(&mut map)?;
        self.crc = crc32c::crc32c(&map);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&map);
        Ok(hasher)
    }

    /// Completes the file and gives it its name.
    pub(in crate::table) fn finish(self, layout: &RowLayout, runs: &Runs, fingerprint: &Fingerprint) -> Result<()> {
        let num_rows = self.len / layout.stride() as u64;
        let header = npy::header(layout, num_rows)?;
        let (start, facts) = (self.start as u64, runs.facts()?);
        let footer = footer(num_rows, start, layout, fingerprint, runs, facts.as_deref(), Some(self.crc))?;
        let io = |error| Error::io(&self.path, error);
        self.staged.file().write_all_at(&header, 0).map_err(io)?;
        self.staged.file().write_all_at(&footer, self.start as u64 + self.len).map_err(io)?;
        self.staged.replace(&self.path)
    }
}

impl RowOutput {
    /// Returns the size of the rows in bytes.
    pub(in crate::table) fn len(&self) -> u64 {
        match self {
            RowOutput::Memory(memory) => memory.len as u64,
            RowOutput::File(file, _) => file.len,
        }
    }

    pub(in crate::table) fn append(&mut self, rows: &[u8]) -> Result<()> {
        match self {
            RowOutput::Memory(memory) => memory.extend(rows.len()).map(|bytes| bytes.copy_from_slice(rows)),
            RowOutput::File(file, hasher) => {
                hasher.update(rows);
                file.append(rows)
            }
        }
    }

    /// Makes a table of the rows, after an optional change.
    pub(in crate::table) fn into_table(
        self,
        layout: RowLayout,
        runs: Runs,
        change: Option<FinalChange<'_>>,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        match self {
            RowOutput::Memory(memory) => memory.into_table(layout, runs, change, cancel),
            RowOutput::File(mut file, mut hasher) => {
                if let Some(change) = change.filter(|_| file.len > 0) {
                    hasher = file.change(change)?;
                }
                let (path, fingerprint) = (file.path.clone(), Fingerprint::of_hash(&hasher.finalize(), &layout)?);
                file.finish(&layout, &runs, &fingerprint)?;
                StepTable::of_file(&path, None)
            }
        }
    }
}
