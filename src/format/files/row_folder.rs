//! Writing a folder of runs: their rows in `steps.npy` or in numbered shards, and their metadata in `metadata.db`.

use crate::error::{Error, Result};
use crate::format::files::mapped_rows::{FileNumbering, METADATA, RowFields, SINGLE};
use crate::format::files::npy;
use crate::format::files::sqlite::Database;
use crate::format::files::staged_folder::StagedFolder;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

const BUFFER_LEN: usize = 1 << 20;

/// A folder that is being filled. Each row file is durable once it is full.
pub(in crate::format) struct RowFolder {
    staging: StagedFolder,
    pub(in crate::format) database: Database,
    layout: RowFields,
    /// The naming of shards, the number of the next shard, and the maximum rows per shard. `None` for one file.
    shards: Option<(FileNumbering, u64, u64)>,
    current: Option<RowFile>,
    finished: Vec<(String, u32)>,
    pub(in crate::format) num_rows: u64,
}

struct RowFile {
    out: BufWriter<File>,
    name: String,
    num_rows: u64,
    max_rows: u64,
    crc: u32,
}

impl RowFolder {
    /// Creates a folder that [`RowFolder::finish`] returns for publication in `parent`. Its database has these tables.
    /// Without `shard_rows`, all rows are in `steps.npy`.
    pub(in crate::format) fn new_in(
        parent: &Path,
        layout: RowFields,
        shard_rows: Option<u64>,
        numbering: FileNumbering,
        schema: &str,
    ) -> Result<RowFolder> {
        if shard_rows == Some(0) {
            return Err(Error::argument("shard_rows", "at least 1", 0));
        }
        let staging = StagedFolder::new_in(parent)?;
        let database = Database::create_tables(&staging.path().join(METADATA), schema)?;
        let shards = shard_rows.map(|rows| (numbering, numbering.first, rows));
        Ok(RowFolder { staging, database, layout, shards, current: None, finished: Vec::new(), num_rows: 0 })
    }

    /// Writes the bytes of rows.
    pub(in crate::format) fn push(&mut self, mut rows: &[u8]) -> Result<()> {
        let stride = self.layout.stride;
        while !rows.is_empty() {
            let mut file = match self.current.take() {
                Some(file) => file,
                None => self.begin_file()?,
            };
            let room = usize::try_from(file.max_rows - file.num_rows).unwrap_or(usize::MAX);
            let (now, later) = rows.split_at(rows.len().min(room.saturating_mul(stride)));
            file.crc = crc32c::crc32c_append(file.crc, now);
            file.num_rows += (now.len() / stride) as u64;
            self.num_rows += (now.len() / stride) as u64;
            file.out.write_all(now).map_err(|source| Error::io(self.staging.path().join(&file.name), source))?;
            if file.num_rows == file.max_rows {
                self.end_file(file)?;
            } else {
                self.current = Some(file);
            }
            rows = later;
        }
        Ok(())
    }

    /// Finishes the files and makes them durable. Returns the folder, and the name and CRC32C of each row file.
    pub(in crate::format) fn finish(mut self) -> Result<(StagedFolder, Vec<(String, u32)>)> {
        // A folder without rows has one file without rows.
        let last = match self.current.take() {
            None if self.num_rows == 0 => Some(self.begin_file()?),
            last => last,
        };
        last.map(|file| self.end_file(file)).transpose()?;
        self.database.execute("COMMIT")?;
        self.database.finish_writing()?;
        Ok((self.staging, self.finished))
    }

    fn begin_file(&mut self) -> Result<RowFile> {
        let (name, max_rows) = match &mut self.shards {
            Some((numbering, next, most)) => {
                *next += 1;
                (numbering.name(*next - 1), *most)
            }
            None => (SINGLE.to_owned(), u64::MAX),
        };
        let path = self.staging.path().join(&name);
        let io = |source| Error::io(&path, source);
        let file = File::options().write(true).create_new(true).open(&path).map_err(io)?;
        let mut out = BufWriter::with_capacity(BUFFER_LEN, file);
        // `end_file` overwrites this header with the final number of rows; its length stays the same.
        out.write_all(&self.header(0)?).map_err(io)?;
        Ok(RowFile { out, name, num_rows: 0, max_rows, crc: 0 })
    }

    fn end_file(&mut self, file: RowFile) -> Result<()> {
        let RowFile { out, name, num_rows, crc, .. } = file;
        let header = self.header(num_rows)?;
        let finish = || {
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.write_all_at(&header, 0)?;
            file.sync_all()
        };
        finish().map_err(|source| Error::io(self.staging.path().join(&name), source))?;
        let rows_len = usize::try_from(num_rows * self.layout.stride as u64).unwrap_or(usize::MAX);
        self.finished.push((name, crc32c::crc32c_combine(crc32c::crc32c(&header), crc, rows_len)));
        Ok(())
    }

    fn header(&self, num_rows: u64) -> Result<Vec<u8>> {
        npy::header(&self.layout.fields, self.layout.stride, num_rows, 0)
    }
}
