//! Opening a pack and random access to its runs.

use super::compression::{decompress, payload_len};
use super::layout::{ENTRY_LEN, HEADER_LEN, IndexEntry, PackLayout};
use super::{Compression, PackStats};
use crate::error::{Error, Result};
use crate::format::files::bytes::{ByteReader, check_crc};
use crate::format::files::mapped::{map_bytes, map_file};
use crate::format::run_file::RunFormat;
use crate::format::source::{RunSource, SourceRun};
use crate::format::{a2run2, a2t1};
use crate::run::{Run, RunMeta};
use crate::system::workers;
use memmap2::Mmap;
use rayon::prelude::*;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// An open pack. Clones share it, and any number of threads may read it.
///
/// The file is memory-mapped. It must not be modified or truncated while it is open. Replacing it by another file
/// of the same name is safe; [`PackBuilder`](super::PackBuilder) does so.
///
/// # Examples
/// ```
/// use a2store::{Board, Move, Run};
/// use a2store::format::{PackBuilder, PackOptions, PackReader, RunFormat};
/// use a2store::run::RunMeta;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("runs.a2pack");
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let mut pack = PackBuilder::create(&path, PackOptions::default())?;
/// pack.add_run_bytes(&a2store::format::encode_run(&run, RunFormat::A2run2)?)?;
/// pack.finish()?;
///
/// let pack = PackReader::open(&path)?;
/// assert_eq!(pack.len(), 1);
/// assert_eq!(pack.decode(0)?, run);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct PackReader {
    pub(super) pack: Arc<OpenPack>,
    checksums: bool,
}

#[derive(Debug)]
pub(super) struct OpenPack {
    pub(super) bytes: Mmap,
    path: Option<PathBuf>,
    pub(super) layout: PackLayout,
    /// The cache of the computed stats.
    pub(super) stats: OnceLock<PackStats>,
}

/// The bytes of a run file in a pack.
#[derive(Clone, Debug)]
pub struct RunSlice<'a> {
    /// The run file: borrowed from the pack, or decompressed.
    pub bytes: Cow<'a, [u8]>,
    /// The format of the run.
    pub format: RunFormat,
    /// The compression in the pack.
    pub compression: Compression,
    /// The offset in the pack in bytes.
    pub offset: u64,
    /// The stored length in bytes.
    pub stored_len: u32,
    /// The stored checksum of the stored bytes; `None` if it was omitted.
    pub crc32c: Option<u32>,
}

impl PackReader {
    /// Opens a pack. Checks header, index and footer, but not the payloads. The cost is proportional to the
    /// index.
    ///
    /// # Errors
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) and [`ErrorKind::Checksum`](crate::ErrorKind::Checksum), with
    /// the offset, if header, index or footer is invalid; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<PackReader> {
        let path = path.as_ref();
        let bytes = map_file(path)?;
        PackReader::new(bytes, Some(path.to_path_buf())).map_err(|error| error.with_path(path))
    }

    /// Opens a pack in memory.
    ///
    /// # Errors
    /// The errors of [`PackReader::open`].
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Result<PackReader> {
        PackReader::new(map_bytes(bytes.as_ref())?, None)
    }

    fn new(bytes: Mmap, path: Option<PathBuf>) -> Result<PackReader> {
        let layout = PackLayout::read(&bytes).map_err(Error::of_header)?;
        Ok(PackReader { pack: Arc::new(OpenPack { bytes, path, layout, stats: OnceLock::new() }), checksums: true })
    }

    /// Sets whether reading a run verifies its stored checksum; the default is `true`. Disable it if
    /// [`PackReader::validate`] has checked the pack. A run of kind 1 also contains its own checksum, which is
    /// always verified.
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> PackReader {
        self.checksums = checksums;
        self
    }

    /// Returns the number of runs, including damaged ones and tombstones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pack.layout.num_runs
    }

    /// Returns whether the pack has no runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the path of the file; `None` if the pack was opened in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.pack.path.as_deref()
    }

    /// Returns the length of the file in bytes.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.pack.bytes.len() as u64
    }

    /// Returns the format of a run, from the index.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds);
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) for a tombstone.
    pub fn format(&self, index: usize) -> Result<RunFormat> {
        let entry = self.entry(index)?;
        self.format_of(&entry).map_err(|error| self.about(error, index, &entry))
    }

    /// Returns the bytes of a run file. Copies nothing unless the run is compressed.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds);
    /// [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) unless disabled;
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) for a tombstone or a damaged frame. A decompressed size above
    /// three times the stored length plus 256 KiB is also [`ErrorKind::Decode`](crate::ErrorKind::Decode).
    pub fn get_slice(&self, index: usize) -> Result<RunSlice<'_>> {
        let entry = self.entry(index)?;
        self.slice(&entry).map_err(|error| self.about(error, index, &entry))
    }

    /// Decodes a run of either kind. A run of kind 1 has no branches.
    ///
    /// # Errors
    /// The errors of [`PackReader::get_slice`]; [`ErrorKind::Decode`](crate::ErrorKind::Decode) and
    /// [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) if it is not a valid run.
    pub fn decode(&self, index: usize) -> Result<Run> {
        let entry = self.entry(index)?;
        let decoded = self.slice(&entry).and_then(|run| run.decode());
        decoded.map_err(|error| self.about(error, index, &entry))
    }

    /// Decodes runs in parallel. Each run has its own result, so a damaged run does not affect the others.
    #[must_use]
    pub fn decode_batch(&self, indices: &[usize]) -> Vec<Result<Run>> {
        let decode = |&index: &usize| self.decode(index);
        // Uses the current pool if this thread belongs to one.
        if rayon::current_thread_index().is_some() {
            return indices.par_iter().map(decode).collect();
        }
        match workers::shared() {
            Ok(threads) => threads.install(|| indices.par_iter().map(decode).collect()),
            // No threads: decode sequentially.
            Err(_) => indices.iter().map(decode).collect(),
        }
    }

    pub(super) fn entry(&self, index: usize) -> Result<IndexEntry> {
        let at = (HEADER_LEN as usize).saturating_add((ENTRY_LEN as usize).saturating_mul(index));
        match self.pack.bytes.get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) if index < self.len() => Ok(IndexEntry::from_bytes(bytes)),
            _ => Err(Error::no_index(index, self.len())),
        }
    }

    /// Returns the stored bytes of an entry, unchecked.
    pub(super) fn stored(&self, entry: &IndexEntry) -> Result<&[u8]> {
        let stored = usize::try_from(entry.offset).ok().and_then(|start| self.pack.bytes.get(start..));
        // `open` checked this range, but a mapped file may shrink later.
        stored
            .and_then(|rest| rest.get(..entry.length as usize))
            .ok_or_else(|| Error::decode(0, "entry", format!("{} bytes", entry.length), "a shorter file"))
    }

    /// Returns the maximum memory that a run's file takes once it is read, in bytes.
    pub(super) fn payload_len(&self, index: usize) -> u64 {
        let Ok(entry) = self.entry(index) else { return 0 };
        match (self.stored(&entry), entry.compression()) {
            (Ok(stored), Some(compression)) => payload_len(compression, stored),
            _ => 0,
        }
    }

    /// Decodes the number of steps and the metadata of a run. Skips the steps.
    pub(super) fn decode_meta(&self, index: usize) -> Result<(u32, RunMeta)> {
        let entry = self.entry(index)?;
        // Verifying the checksum of an uncompressed entry would read all of it.
        let reader = self.clone().with_checksums(self.checksums && entry.flags != 0);
        let meta = reader.slice(&entry).and_then(|run| match run.format {
            RunFormat::A2t1 => a2t1::read_meta(&mut ByteReader::new(&run.bytes)),
            RunFormat::A2run2 => a2run2::read_meta(&mut ByteReader::new(&run.bytes)),
        });
        meta.map_err(|error| self.about(error, index, &entry))
    }

    fn format_of(&self, entry: &IndexEntry) -> Result<RunFormat> {
        if entry.is_tombstone() {
            return Err(Error::decode(0, "entry", "a run", "a tombstone"));
        }
        entry.format().ok_or_else(|| Error::decode(0, "kind of the run", "1 or 2", entry.kind))
    }

    fn slice(&self, entry: &IndexEntry) -> Result<RunSlice<'_>> {
        let format = self.format_of(entry)?;
        let stored = self.stored(entry)?;
        let crc32c = (entry.crc32c != 0).then_some(entry.crc32c);
        if let Some(crc32c) = crc32c.filter(|_| self.checksums) {
            check_crc(0, "the entry", crc32c, stored)?;
        }
        let Some(compression) = entry.compression() else {
            return Err(Error::decode(0, "compression of the entry", "0 (none), 1 (zstd) or 2 (lz4)", entry.flags));
        };
        let bytes = match compression {
            Compression::None => Cow::Borrowed(stored),
            _ => Cow::Owned(decompress(compression, stored)?),
        };
        Ok(RunSlice { bytes, format, compression, offset: entry.offset, stored_len: entry.length, crc32c })
    }

    /// Adds run, offset and path to an error about an entry's bytes.
    pub(super) fn about(&self, error: Error, index: usize, entry: &IndexEntry) -> Error {
        located(error, index, entry).with_path_of(self.path())
    }
}

impl RunSlice<'_> {
    /// Decodes the run. Offsets in errors count from the first byte of the run file.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) and [`ErrorKind::Checksum`](crate::ErrorKind::Checksum).
    pub fn decode(&self) -> Result<Run> {
        match self.format {
            RunFormat::A2t1 => a2t1::decode(&self.bytes),
            RunFormat::A2run2 => a2run2::decode(&self.bytes),
        }
    }
}

impl RunSource for PackReader {
    fn num_runs(&self) -> usize {
        self.len()
    }

    fn num_bytes(&self, index: usize) -> u64 {
        self.payload_len(index)
    }

    fn locate(&self, index: usize, error: Error) -> Error {
        match self.entry(index) {
            Ok(entry) => located(error, index, &entry),
            Err(_) => error,
        }
    }

    fn is_absent(&self, index: usize) -> bool {
        self.entry(index).is_ok_and(|entry| entry.is_tombstone())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.get_slice(index).map(|run| SourceRun::File(run.bytes))
    }
}

/// Adds run and offset to an error about an entry's bytes.
fn located(error: Error, index: usize, entry: &IndexEntry) -> Error {
    // An offset in decompressed bytes has no meaning in the pack.
    let error = if entry.flags == 0 { error } else { error.located(|location| location.offset = None) };
    error.in_run(index as u64, entry.offset)
}
