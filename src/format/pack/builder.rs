//! Writing a pack.

use super::compression::compress;
use super::layout::{self, ENTRY_LEN, Entry, HEADER_LEN, MAGIC};
use super::stats::LengthStats;
use super::{Compression, MAX_RUN_BYTES, RunKind};
use crate::error::{Error, Result};
use crate::format::decode_run;
use crate::format::mapped::open_file;
use crate::publish::{Destination, Staged};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How a pack is written.
#[derive(Clone, Copy, Debug)]
pub struct PackOptions {
    /// Entries begin at multiples of so many bytes: a power of two in 8..=4096.
    pub align: u32,
    /// How payloads are stored, unless that makes them longer. Other tools of the field read uncompressed ones only.
    pub compression: Compression,
    /// Threads of [`pack_folder`](super::pack_folder); `None` = one per core.
    pub workers: Option<usize>,
}

impl Default for PackOptions {
    fn default() -> PackOptions {
        PackOptions { align: 4096, compression: Compression::None, workers: None }
    }
}

/// What was packed.
#[derive(Debug, Default)]
#[non_exhaustive]
#[derive(serde::Serialize)]
pub struct PackReport {
    /// Runs in the pack.
    pub packed: u64,
    /// Files that were to be packed but are no runs; [`PackReport::errors`] has the reasons.
    pub rejected: u64,
    /// Other files of a folder, which are no runs either.
    pub ignored: u64,
    /// Steps in the pack.
    pub num_steps: u64,
    /// The length of the pack in bytes.
    pub num_bytes: u64,
    /// Why files were rejected, in the order of their names.
    pub errors: Vec<Error>,
}

/// Runs for which there is room before the data has to move: as many as fit before it with the usual alignment.
const FIRST_CAPACITY: u64 = (4096 - HEADER_LEN) / ENTRY_LEN;
/// How much is written at a time.
const BUFFER_BYTES: usize = 1 << 20;
const MAX_ALIGN: usize = 4096;

/// A pack that is being written. Nobody sees it before [`PackBuilder::finish`], and dropped before that it vanishes.
///
/// Payloads go to the file as they come; 28 bytes of each run stay in memory. The index precedes them, so there must be room
/// for it: say how many runs there will be ([`PackBuilder::with_capacity`]), or data that is in the way is moved, each byte
/// about once altogether.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, PackBuilder, PackOptions, PackReader, Run, RunFormat, RunMeta};
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let path = folder.path().join("games.a2pack");
/// let mut builder = PackBuilder::create(&path, PackOptions::default())?;
/// builder.add_run_bytes(&a2store::encode_run(&run, RunFormat::A2run2)?)?;
/// builder.finish()?;
/// assert_eq!(PackReader::open(&path)?.decode_v2(0)?, run);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PackBuilder {
    output: PathBuf,
    staged: Staged,
    options: PackOptions,
    entries: Vec<Entry>,
    lengths: Vec<u32>,
    /// Where the data begins: a multiple of the alignment.
    data_start: u64,
    /// Bytes that are yet to be written, and where.
    pending: Vec<u8>,
    pending_offset: u64,
    data_crc: u32,
}

/// A payload, checked and ready to be written.
#[derive(Debug)]
pub(super) struct Payload {
    stored: Vec<u8>,
    kind: RunKind,
    compression: Compression,
    crc32c: u32,
    num_steps: u32,
}

impl Payload {
    /// Checks a run file, and compresses it.
    pub(super) fn new(bytes: Vec<u8>, compression: Compression) -> Result<Payload> {
        if bytes.len() as u64 > MAX_RUN_BYTES {
            let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
            return Err(Error::decode(MAX_RUN_BYTES, "length of the file", expected, "a longer file"));
        }
        let (run, format) = decode_run(&bytes)?;
        let (stored, compression) = match compress(compression, &bytes)? {
            Some(stored) => (stored, compression),
            None => (bytes, Compression::None),
        };
        let crc32c = crc32c::crc32c(&stored);
        Ok(Payload { stored, kind: format.into(), compression, crc32c, num_steps: run.num_steps() as u32 })
    }

    /// Reads, checks and compresses a run file. Errors name it.
    pub(super) fn of_file(path: &Path, compression: Compression) -> Result<Payload> {
        let mut bytes = Vec::new();
        File::open(path)
            // One byte too many tells that there are.
            .and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| Error::io(path, source))?;
        Payload::new(bytes, compression).map_err(|error| error.with_path(path))
    }
}

impl PackBuilder {
    /// Begins a pack that will stand at `output`, in place of another file of that name, or where a link of that name leads.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for a bad alignment; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn create(output: impl AsRef<Path>, options: PackOptions) -> Result<PackBuilder> {
        if !options.align.is_power_of_two() || !(8..=MAX_ALIGN as u32).contains(&options.align) {
            return Err(Error::argument("align", "a power of two in 8..=4096", options.align));
        }
        let (output, folder) = match Destination::of(output.as_ref())? {
            Destination::File { path, folder } => (path, folder),
            Destination::Stream(path) => {
                let reason = "a pipe or a device, in which a pack cannot be written";
                return Err(Error::io(path, io::Error::new(io::ErrorKind::NotSeekable, reason)));
            }
        };
        // What stands there is replaced, but only if it is what this makes: it might be one of the runs.
        if output.metadata().is_ok_and(|metadata| metadata.len() > 0) {
            let mut magic = [0; MAGIC.len()];
            let read = open_file(&output)?.read_exact(&mut magic);
            if read.is_err() || magic != MAGIC {
                let reason = "this file exists, is no pack, and is not overwritten";
                return Err(Error::io(output, io::Error::new(io::ErrorKind::AlreadyExists, reason)));
            }
        }
        let data_start = data_start(FIRST_CAPACITY, options.align);
        Ok(PackBuilder {
            staged: Staged::new(&folder)?,
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

    /// Makes room for the index of so many runs, no more and no less. Of use before the first one is added.
    #[must_use]
    pub fn with_capacity(mut self, num_runs: u64) -> PackBuilder {
        if self.entries.is_empty() {
            self.data_start = data_start(num_runs, self.options.align);
            self.pending_offset = self.data_start;
        }
        self
    }

    /// Adds a run file. After an error the pack is as it was before.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) and [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) when it is no run, or longer than 32 MiB; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn add_file(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.add(Payload::of_file(path.as_ref(), self.options.compression)?)
    }

    /// Adds a run that is the content of a run file. After an error the pack is as it was before.
    ///
    /// # Errors
    /// As [`PackBuilder::add_file`].
    pub fn add_run_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.add(Payload::new(bytes.to_vec(), self.options.compression)?)
    }

    /// Ends the pack, makes it durable and gives it its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn finish(mut self) -> Result<PackReport> {
        let data_end = self.end();
        let stats = LengthStats::of(std::mem::take(&mut self.lengths));
        let mut index = Vec::with_capacity(self.entries.len() * ENTRY_LEN as usize);
        for entry in &self.entries {
            entry.put(&mut index);
        }
        let footer = layout::footer(data_end, crc32c::crc32c(&index), self.data_crc, data_end);
        self.pending.extend_from_slice(&stats.to_block());
        self.pending.extend_from_slice(&footer);
        let num_bytes = self.end();
        self.flush()?;

        let mut front = layout::header(self.entries.len() as u64);
        front.append(&mut index);
        // Data that has moved on has left something there.
        front.resize(self.data_start as usize, 0);
        self.write_at(0, &front)?;
        self.staged.replace(&self.output)?;
        let (packed, num_steps) = (self.entries.len() as u64, stats.total_steps);
        Ok(PackReport { packed, num_steps, num_bytes, ..PackReport::default() })
    }

    pub(super) fn options(&self) -> &PackOptions {
        &self.options
    }

    /// Adds a payload behind the last one.
    pub(super) fn add(&mut self, payload: Payload) -> Result<()> {
        let Payload { stored, kind, compression, crc32c, num_steps } = payload;
        if data_start(self.entries.len() as u64 + 1, self.options.align) > self.data_start {
            self.move_data(4 * (self.entries.len() as u64 + 1))?;
        }
        let end = self.end();
        let offset = end.next_multiple_of(u64::from(self.options.align));
        let padding = [0; MAX_ALIGN];
        let padding = padding.get(..(offset - end) as usize).unwrap_or_default();
        self.pending.extend_from_slice(padding);
        self.pending.extend_from_slice(&stored);
        if self.pending.len() >= BUFFER_BYTES
            && let Err(error) = self.flush()
        {
            // What was there before is there still.
            self.pending.truncate((end - self.pending_offset) as usize);
            return Err(error);
        }
        let crc = crc32c::crc32c_append(self.data_crc, padding);
        self.data_crc = crc32c::crc32c_combine(crc, crc32c, stored.len());
        // Nothing above 32 MiB comes this far.
        let length = stored.len() as u32;
        self.entries.push(Entry { offset, length, kind: kind as u16, flags: compression as u16, crc32c });
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
        let mut file = self.staged.file();
        file.seek(SeekFrom::Start(offset))
            .and_then(|_| file.write_all(bytes))
            .map_err(|source| Error::io(self.staged.path(), source))
    }

    /// Moves the data so that there is room for an index of so many runs.
    fn move_data(&mut self, capacity: u64) -> Result<()> {
        self.flush()?;
        let by = data_start(capacity, self.options.align) - self.data_start;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut end = self.end();
        // From the end, so that nothing is overwritten before it has moved. It is the data's copy that counts once all is done.
        while end > self.data_start {
            let len = (end - self.data_start).min(BUFFER_BYTES as u64);
            let chunk = buffer.get_mut(..len as usize).unwrap_or_default();
            let mut file = self.staged.file();
            file.seek(SeekFrom::Start(end - len))
                .and_then(|_| file.read_exact(chunk))
                .map_err(|source| Error::io(self.staged.path(), source))?;
            end -= len;
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

impl fmt::Debug for PackBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackBuilder")
            .field("output", &self.output)
            .field("options", &self.options)
            .field("num_runs", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// Where the data begins behind an index of so many runs.
fn data_start(num_runs: u64, align: u32) -> u64 {
    (HEADER_LEN + num_runs.saturating_mul(ENTRY_LEN).min(u64::MAX / 2)).next_multiple_of(u64::from(align))
}
