//! Writing rows to NumPy files: `steps.npy`, or numbered shards of it.

use super::npy;
use super::shards::{NpyRow, RowShards, SINGLE, ShardNumbering};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BUFFER_LEN: usize = 1 << 20;
/// Rows that are copied at a time.
const CHUNK_ROWS: usize = 1 << 15;

/// A writer of rows into `steps.npy` or its shards. Each file is durable once it is finished.
#[derive(Debug)]
pub(super) struct RowFiles<R> {
    folder: PathBuf,
    /// The naming of shards, the number of the next shard, and the maximum rows per shard. `None` for one file.
    shards: Option<(ShardNumbering, u64, u64)>,
    current: Option<RowFile>,
    finished: Vec<(String, u32)>,
    num_rows: u64,
    rows: PhantomData<fn(R)>,
}

#[derive(Debug)]
struct RowFile {
    out: BufWriter<File>,
    name: String,
    num_rows: u64,
    max_rows: u64,
    crc: u32,
}

impl<R: NpyRow> RowFiles<R> {
    /// Writes `steps.npy` if `shard_rows` is `None`. Otherwise writes shards of at most that many rows, numbered
    /// after `num_shards` existing ones.
    pub(super) fn new(
        folder: &Path,
        shard_rows: Option<u64>,
        numbering: ShardNumbering,
        num_shards: u64,
    ) -> RowFiles<R> {
        let shards = shard_rows.map(|rows| (numbering, numbering.first + num_shards, rows.max(1)));
        let folder = folder.to_owned();
        RowFiles { folder, shards, current: None, finished: Vec::new(), num_rows: 0, rows: PhantomData }
    }

    /// Begins to append to existing rows: copies a single `steps.npy`, or continues the shards. New shards have at most
    /// as many rows as the largest existing one.
    pub(super) fn appending(folder: &Path, old: &RowShards<R>, numbering: ShardNumbering) -> Result<RowFiles<R>> {
        if !old.is_single() {
            let num_shards = old.next_number().saturating_sub(numbering.first);
            return Ok(RowFiles::new(folder, Some(old.max_shard_rows()), numbering, num_shards));
        }
        let mut files = RowFiles::new(folder, None, numbering, 0);
        for rows in old.slices().flat_map(|rows| rows.chunks(CHUNK_ROWS)) {
            files.push(rows)?;
        }
        Ok(files)
    }

    pub(super) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    pub(super) fn push(&mut self, mut rows: &[R]) -> Result<()> {
        while !rows.is_empty() {
            let file = match &mut self.current {
                Some(file) => file,
                None => {
                    let (name, max_rows) = match &mut self.shards {
                        Some((numbering, next, most)) => {
                            *next += 1;
                            (numbering.name(*next - 1), *most)
                        }
                        None => (SINGLE.to_owned(), u64::MAX),
                    };
                    let header = header::<R>(0)?;
                    self.current.insert(RowFile::create(&self.folder, name, &header, max_rows)?)
                }
            };
            let room = file.max_rows - file.num_rows;
            let (now, later) = rows.split_at(rows.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            file.push(&self.folder, bytemuck::cast_slice(now), now.len() as u64)?;
            self.num_rows += now.len() as u64;
            if now.len() as u64 == room {
                self.end_file()?;
            }
            rows = later;
        }
        Ok(())
    }

    /// Finishes the last file. Returns the name and CRC32C of each file. With `even_if_empty`, writes one file
    /// without rows if there are no rows.
    pub(super) fn finish(mut self, even_if_empty: bool) -> Result<Vec<(String, u32)>> {
        if self.num_rows == 0 && even_if_empty {
            let name = self.shards.map_or(SINGLE.to_owned(), |(numbering, next, _)| numbering.name(next));
            self.current = Some(RowFile::create(&self.folder, name, &header::<R>(0)?, 0)?);
        }
        self.end_file()?;
        Ok(self.finished)
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(file) = self.current.take() {
            let header = header::<R>(file.num_rows)?;
            self.finished.push(file.finish::<R>(&self.folder, &header)?);
        }
        Ok(())
    }
}

impl RowFile {
    fn create(folder: &Path, name: String, header: &[u8], max_rows: u64) -> Result<RowFile> {
        let path = folder.join(&name);
        let io = |source| Error::io(&path, source);
        let file = File::options().write(true).create_new(true).open(&path).map_err(io)?;
        let mut out = BufWriter::with_capacity(BUFFER_LEN, file);
        // `finish` overwrites this header with the final number of rows; its length stays the same.
        out.write_all(header).map_err(io)?;
        Ok(RowFile { out, name, num_rows: 0, max_rows, crc: 0 })
    }

    fn push(&mut self, folder: &Path, bytes: &[u8], num_rows: u64) -> Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.num_rows += num_rows;
        self.out.write_all(bytes).map_err(|source| Error::io(folder.join(&self.name), source))
    }

    fn finish<R: NpyRow>(self, folder: &Path, header: &[u8]) -> Result<(String, u32)> {
        let RowFile { out, name, num_rows, crc, .. } = self;
        let finish = || {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.write_all_at(header, 0)?;
            file.sync_all()
        };
        finish().map_err(|source| Error::io(folder.join(&name), source))?;
        let rows_len = usize::try_from(num_rows * size_of::<R>() as u64).unwrap_or(usize::MAX);
        Ok((name, crc32c::crc32c_combine(crc32c::crc32c(header), crc, rows_len)))
    }
}

fn header<R: NpyRow>(num_rows: u64) -> Result<Vec<u8>> {
    npy::header(&R::fields(), size_of::<R>(), num_rows, 0)
}
