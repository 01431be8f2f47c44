//! Writing a pack.

use super::compression::compress;
use super::layout::{self, ENTRY_LEN, HEADER_LEN, IndexEntry, MAGIC};
use super::{Compression, PackStats};
use crate::error::{Error, Result};
use crate::format::files::mapped::open_file;
use crate::format::run_file::{MAX_RUN_BYTES, RunFormat, decode_file};
use crate::system::publish::{Staged, destination, parent};
use derive_setters::Setters;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Options for writing a pack.
///
/// Set fields with the `with_*` methods: `PackOptions::default().with_align(8)`.
#[derive(Clone, Copy, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct PackOptions {
    /// The alignment of entries, 1 to 1,048,576 bytes.
    pub align: u32,
    /// The compression of payloads. A payload stays uncompressed if compression would not shorten it. Other tools
    /// reject a pack with compressed payloads.
    pub compression: Compression,
    /// The number of threads of [`pack_folder`](super::pack_folder); `None` = one per core.
    pub workers: Option<usize>,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions { align: 4096, compression: Compression::None, workers: None }
    }
}

/// The result of writing a pack.
#[derive(Debug, Default)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct PackReport {
    /// The number of runs in the pack.
    pub packed: u64,
    /// The number of files that were rejected; [`PackReport::errors`] has the reasons.
    pub rejected: u64,
    /// The number of other files in the folder that are not runs.
    pub ignored: u64,
    /// The number of steps in the pack.
    pub num_steps: u64,
    /// The length of the pack in bytes.
    pub num_bytes: u64,
    /// The reasons why files were rejected, in the order of file names.
    pub errors: Vec<Error>,
}

/// The initial capacity of the index in runs: those that fit before byte 4096, where data begins by default.
const FIRST_CAPACITY: u64 = (4096 - HEADER_LEN) / ENTRY_LEN;
/// The buffer size of writes.
const BUFFER_BYTES: usize = 1 << 20;
const MAX_ALIGN: u32 = 1 << 20;

/// A writer of a pack. The pack appears under its name at [`PackBuilder::finish`]. Dropping the builder earlier
/// discards the pack.
///
/// Payloads are written to the file immediately; 28 bytes per run stay in memory. The index precedes the
/// payloads, so it needs reserved space.
///
/// Pass the number of runs to [`PackBuilder::with_capacity`] if it is known. Otherwise the builder moves data
/// when the index grows, about once per byte in total.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run};
/// use a2store::format::{PackBuilder, PackOptions, PackReader, RunFormat};
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let path = folder.path().join("games.a2pack");
/// let mut builder = PackBuilder::create(&path, PackOptions::default())?;
/// builder.add_run_bytes(&a2store::format::encode_run(&run, RunFormat::A2run2)?)?;
/// builder.finish()?;
/// assert_eq!(PackReader::open(&path)?.decode(0)?, run);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PackBuilder {
    output: PathBuf,
    staged: Staged,
    options: PackOptions,
    entries: Vec<IndexEntry>,
    lengths: Vec<u32>,
    /// The offset of the first payload, a multiple of the alignment.
    data_start: u64,
    /// The bytes not yet written, and their offset.
    pending: Vec<u8>,
    pending_offset: u64,
    data_crc: u32,
}

/// A payload that was checked and is ready to be written.
#[derive(Debug)]
pub(super) struct Payload {
    stored: Vec<u8>,
    format: RunFormat,
    compression: Compression,
    crc32c: u32,
    num_steps: u32,
}

impl Payload {
    /// Checks a run file and compresses it.
    pub(super) fn new(bytes: Vec<u8>, compression: Compression) -> Result<Payload> {
        let (run, format) = decode_file(&bytes)?;
        let (stored, compression) = match compress(compression, &bytes)? {
            Some(stored) => (stored, compression),
            None => (bytes, Compression::None),
        };
        let crc32c = crc32c::crc32c(&stored);
        Ok(Payload { stored, format, compression, crc32c, num_steps: run.num_steps() as u32 })
    }

    /// Reads, checks and compresses a run file. Errors name the file.
    pub(super) fn of_file(path: &Path, compression: Compression) -> Result<Payload> {
        let mut bytes = Vec::new();
        File::open(path)
            // One extra byte detects a file that is too long.
            .and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| Error::io(path, source))?;
        Payload::new(bytes, compression).map_err(|error| error.with_path(path))
    }
}

impl PackBuilder {
    /// Begins a pack at `output`. Replaces an existing pack, and follows a link.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for an invalid alignment;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn create(output: impl AsRef<Path>, options: PackOptions) -> Result<PackBuilder> {
        Error::check_range("align", 1..=MAX_ALIGN, options.align)?;
        let Some(output) = destination(output.as_ref())? else {
            let reason = "a pack cannot be written to a pipe or a device";
            return Err(Error::io(output, io::Error::new(io::ErrorKind::NotSeekable, reason)));
        };
        // Replaces an existing file only if it is a pack, so that a wrong path cannot overwrite a run file.
        if output.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            let mut magic = [0; MAGIC.len()];
            let read = open_file(&output)?.read_exact(&mut magic);
            if read.is_err() || magic != MAGIC {
                let reason = "this file exists, is not a pack, and is not overwritten";
                return Err(Error::io(output, io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
        }
        let data_start = data_start(FIRST_CAPACITY, options.align);
        Ok(PackBuilder {
            staged: Staged::new(parent(&output))?,
            output,
            options,
            entries: Vec::new(),
            lengths: Vec::new(),
            data_start,
            pending: Vec::new(),
            pending_offset: data_start,
            data_crc: 0,
        })
    }

    /// Reserves space for an index of exactly `num_runs` runs. Has no effect after the first run was added.
    #[must_use]
    pub fn with_capacity(mut self, num_runs: u64) -> PackBuilder {
        if self.entries.is_empty() {
            self.data_start = data_start(num_runs, self.options.align);
            self.pending_offset = self.data_start;
        }
        self
    }

    /// Adds a run from the bytes of its file. After an error the pack is unchanged.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) and [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) if
    /// the bytes are not a run or exceed 32 MiB; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn add_run_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.add(Payload::new(bytes.to_vec(), self.options.compression)?)
    }

    /// Finishes the pack, makes it durable and publishes it under its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(mut self) -> Result<PackReport> {
        let stats_offset = self.end();
        // Other tools require 0 in a pack without runs.
        let data_end = if self.entries.is_empty() { 0 } else { stats_offset };
        let stats = PackStats::of(std::mem::take(&mut self.lengths));
        let mut index: Vec<u8> = bytemuck::cast_slice(&self.entries).to_vec();
        let footer = layout::footer(data_end, crc32c::crc32c(&index), self.data_crc, stats_offset);
        self.pending.extend_from_slice(&stats.to_block());
        self.pending.extend_from_slice(&footer);
        let num_bytes = self.end();
        self.flush()?;

        let mut front = layout::header(&self.entries);
        front.append(&mut index);
        // Overwrites the remains of data that was moved.
        front.resize(self.data_start as usize, 0);
        self.write_at(0, &front)?;
        self.staged.replace(&self.output)?;
        let (packed, num_steps) = (self.entries.len() as u64, stats.total_steps);
        Ok(PackReport { packed, num_steps, num_bytes, ..PackReport::default() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a payload.
    pub(super) fn add(&mut self, payload: Payload) -> Result<()> {
        let Payload { stored, format, compression, crc32c, num_steps } = payload;
        if data_start(self.entries.len() as u64 + 1, self.options.align) > self.data_start {
            self.move_data(4 * (self.entries.len() as u64 + 1))?;
        }
        let end = self.end();
        let offset = end.next_multiple_of(u64::from(self.options.align));
        let num_pending = self.pending.len();
        self.pending.resize(num_pending + (offset - end) as usize, 0);
        let padding = self.pending.get(num_pending..).unwrap_or_default();
        let data_crc = crc32c::crc32c_append(self.data_crc, padding);
        self.pending.extend_from_slice(&stored);
        if self.pending.len() >= BUFFER_BYTES
            && let Err(error) = self.flush()
        {
            // Undoes this entry. Earlier entries stay in the buffer.
            self.pending.truncate(num_pending);
            return Err(error);
        }
        self.data_crc = crc32c::crc32c_combine(data_crc, crc32c, stored.len());
        // Payloads are at most 32 MiB.
        let length = stored.len() as u32;
        let (kind, flags, unused) = (format.version(), compression as u16, [0; 12]);
        self.entries.push(IndexEntry { offset, length, kind, flags, crc32c, unused });
        self.lengths.push(num_steps);
        Ok(())
    }

    fn end(&self) -> u64 {
        self.pending_offset + self.pending.len() as u64
    }

    fn flush(&mut self) -> Result<()> {
        self.write_at(self.pending_offset, &self.pending)?;
        self.pending_offset = self.end();
        self.pending.clear();
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.staged.file().write_all_at(bytes, offset);
        written.map_err(|source| Error::io(self.staged.path(), source))
    }

    /// Moves the data to make room for an index of `capacity` runs.
    fn move_data(&mut self, capacity: u64) -> Result<()> {
        self.flush()?;
        let by = data_start(capacity, self.options.align) - self.data_start;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut end = self.end();
        // Copies from the end, so that no byte is overwritten before it is moved. A failed move leaves the
        // original data in place.
        while end > self.data_start {
            let len = (end - self.data_start).min(BUFFER_BYTES as u64);
            let chunk = buffer.get_mut(..len as usize).unwrap_or_default();
            end -= len;
            let read = self.staged.file().read_exact_at(chunk, end);
            read.map_err(|source| Error::io(self.staged.path(), source))?;
            self.write_at(end + by, chunk)?;
        }
        for entry in &mut self.entries {
            entry.offset += by;
        }
        self.data_start += by;
        self.pending_offset += by;
        Ok(())
    }
}

/// Returns the offset of the data after an index of `num_runs` runs.
fn data_start(num_runs: u64, align: u32) -> u64 {
    (HEADER_LEN + num_runs.saturating_mul(ENTRY_LEN).min(u64::MAX / 2)).next_multiple_of(u64::from(align))
}
