//! Opening a pack, and reading any of its runs.

use super::compression::{decompress, payload_len};
use super::layout::{ENTRY_LEN, Entry, HEADER_LEN, Layout, check_crc};
use super::{Compression, PackStats, RunKind};
use crate::error::{Error, ErrorKind, Result};
use crate::format::mapped::FileBytes;
use crate::format::source::{RunSource, SourceRun};
use crate::format::{a2run2, a2t1};
use crate::run::{Run, RunMeta};
use crate::workers;
use rayon::prelude::*;
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// An open pack. Clones share it, and any number of threads may read from one.
///
/// A file is mapped into memory rather than read: it must not be changed or made shorter while it is open. Replacing it by
/// another one of the same name, as [`PackBuilder`](super::PackBuilder) does, is fine.
///
/// # Examples
/// ```
/// use a2store::{Board, Move, PackBuilder, PackOptions, PackReader, Run, RunFormat, RunMeta};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("runs.a2pack");
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let mut pack = PackBuilder::create(&path, PackOptions::default())?;
/// pack.add_run_bytes(&a2store::encode_run(&run, RunFormat::A2run2)?)?;
/// pack.finish()?;
///
/// let pack = PackReader::open(&path)?;
/// assert_eq!(pack.len(), 1);
/// assert_eq!(pack.decode_v2(0)?, run);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PackReader {
    pack: Arc<Pack>,
    checksums: bool,
}

struct Pack {
    bytes: FileBytes,
    path: Option<PathBuf>,
    layout: Layout,
    stats: OnceLock<PackStats>,
}

/// A run's file as it lies in a pack.
#[derive(Clone, Debug)]
pub struct RunSlice<'a> {
    /// The run file: borrowed from the pack, or decompressed.
    pub bytes: Cow<'a, [u8]>,
    /// Its format.
    pub kind: RunKind,
    /// How it is stored.
    pub compression: Compression,
    /// Where it begins in the pack, in bytes.
    pub offset: u64,
    /// How many bytes it takes there.
    pub stored_len: u32,
    /// The stored checksum of these bytes; `None` if it was omitted.
    pub crc32c: Option<u32>,
}

impl PackReader {
    /// Opens a pack. Header, index and footer are checked, the payloads are not: the cost is that of the index.
    ///
    /// # Errors
    /// [`ErrorKind::Header`] and [`ErrorKind::Checksum`], with the offset, when one of the three is not what it must be;
    /// [`ErrorKind::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<PackReader> {
        let path = path.as_ref();
        let bytes = FileBytes::map(path)?;
        PackReader::new(bytes, Some(path.to_path_buf())).map_err(|error| error.with_path(path))
    }

    /// Opens a pack in memory.
    ///
    /// # Errors
    /// As [`PackReader::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<PackReader> {
        PackReader::new(FileBytes::Held(bytes), None)
    }

    fn new(bytes: FileBytes, path: Option<PathBuf>) -> Result<PackReader> {
        let layout = Layout::read(&bytes)?;
        Ok(PackReader { pack: Arc::new(Pack { bytes, path, layout, stats: OnceLock::new() }), checksums: true })
    }

    /// Whether reading a run checks its stored checksum, as it does unless told otherwise: not worth its time where
    /// [`PackReader::validate`] has been before. A run of kind 1 has a checksum of its own, which is always checked.
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> PackReader {
        self.checksums = checksums;
        self
    }

    /// The number of runs, damaged ones and tombstones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pack.layout.num_runs
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file, unless the pack was opened in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.pack.path.as_deref()
    }

    /// The length of the file in bytes.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.pack.bytes.len() as u64
    }

    /// The format of a run, from the index.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`]; [`ErrorKind::Decode`] for a tombstone.
    pub fn kind(&self, index: usize) -> Result<RunKind> {
        let entry = self.entry(index)?;
        self.kind_of(&entry).map_err(|error| self.about(error, index, &entry))
    }

    /// A run's file. Free of copies unless it is compressed.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`]; [`ErrorKind::Checksum`] unless switched off; [`ErrorKind::Decode`] for a tombstone
    /// and for what does not decompress, or to more than three times its length and 256 KiB.
    pub fn get_slice(&self, index: usize) -> Result<RunSlice<'_>> {
        let entry = self.entry(index)?;
        self.slice(&entry).map_err(|error| self.about(error, index, &entry))
    }

    /// Decodes a run of kind 1.
    ///
    /// # Errors
    /// As [`PackReader::get_slice`]; [`ErrorKind::Decode`] and [`ErrorKind::Checksum`] for what is no such run.
    pub fn decode_v1(&self, index: usize) -> Result<Run> {
        self.decode(index, Some(RunKind::V1))
    }

    /// Decodes a run of kind 2.
    ///
    /// # Errors
    /// As [`PackReader::get_slice`]; [`ErrorKind::Decode`] for what is no such run.
    pub fn decode_v2(&self, index: usize) -> Result<Run> {
        self.decode(index, Some(RunKind::V2))
    }

    /// Decodes a run of either kind; one of kind 1 has no branches.
    ///
    /// # Errors
    /// As [`PackReader::get_slice`]; [`ErrorKind::Decode`] and [`ErrorKind::Checksum`] for what is no run.
    pub fn decode_auto_v2(&self, index: usize) -> Result<Run> {
        self.decode(index, None)
    }

    /// Decodes runs of kind 2, in parallel. Each has its own result, so that a damaged one costs no other.
    #[must_use]
    pub fn decode_batch_v2(&self, indices: &[usize]) -> Vec<Result<Run>> {
        self.decode_batch(indices, Some(RunKind::V2))
    }

    /// Decodes runs of either kind, in parallel. Each has its own result, so that a damaged one costs no other.
    #[must_use]
    pub fn decode_batch_auto_v2(&self, indices: &[usize]) -> Vec<Result<Run>> {
        self.decode_batch(indices, None)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.pack.bytes
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.pack.layout
    }

    /// Where the stats are kept once they have been computed.
    pub(super) fn stats_cell(&self) -> &OnceLock<PackStats> {
        &self.pack.stats
    }

    /// Names this pack in an error.
    pub(super) fn with_path(&self, error: Error) -> Error {
        match self.path() {
            Some(path) => error.with_path(path),
            None => error,
        }
    }

    pub(super) fn entry(&self, index: usize) -> Result<Entry> {
        let at = (HEADER_LEN as usize).saturating_add((ENTRY_LEN as usize).saturating_mul(index));
        match self.bytes().get(at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) if index < self.len() => Ok(Entry::from_bytes(bytes)),
            _ => Err(ErrorKind::IndexOutOfBounds { index: index as i128, len: self.len() as u64 }.into()),
        }
    }

    /// The bytes of an entry, whatever they are.
    pub(super) fn stored(&self, entry: &Entry) -> Result<&[u8]> {
        let stored = usize::try_from(entry.offset).ok().and_then(|start| self.bytes().get(start..));
        // That they lie in the file was checked when it was opened; but a file that is mapped may change.
        stored.and_then(|rest| rest.get(..entry.length as usize)).ok_or_else(|| {
            Error::decode(0, "entry", format!("{} bytes", entry.length), "the end of the file before them")
        })
    }

    /// How much memory a run's file takes once it is read, at most.
    pub(super) fn payload_len(&self, index: usize) -> u64 {
        let Ok(entry) = self.entry(index) else { return 0 };
        match (self.stored(&entry), entry.compression()) {
            (Ok(stored), Some(compression)) => payload_len(compression, stored),
            _ => 0,
        }
    }

    pub(super) fn is_compressed(&self, index: usize) -> bool {
        self.entry(index).is_ok_and(|entry| entry.flags != 0)
    }

    /// The number of a run's steps, and what it says of itself, without a look at the steps.
    pub(super) fn decode_meta(&self, index: usize) -> Result<(u32, RunMeta)> {
        let entry = self.entry(index)?;
        // To check what is stored as it is, all of it would have to be read.
        let reader = self.clone().with_checksums(self.checksums && entry.flags != 0);
        let meta = reader.slice(&entry).and_then(|run| match run.kind {
            RunKind::V1 => a2t1::decode_meta(&run.bytes),
            RunKind::V2 => a2run2::decode_meta(&run.bytes),
        });
        meta.map_err(|error| self.about(error, index, &entry))
    }

    /// A run, and the checksum of its file: the one in the index unless it is compressed.
    pub(super) fn decode_with_crc(&self, index: usize) -> Result<(Run, u32)> {
        let entry = self.entry(index)?;
        let decoded = self.slice(&entry).and_then(|run| Ok((run.decode()?, crc32c::crc32c(&run.bytes))));
        decoded.map_err(|error| self.about(error, index, &entry))
    }

    fn decode(&self, index: usize, expected: Option<RunKind>) -> Result<Run> {
        let entry = self.entry(index)?;
        let decoded = self.slice(&entry).and_then(|run| match expected {
            Some(expected) if expected != run.kind => {
                Err(Error::decode(0, "kind of the run", expected.name(), run.kind))
            }
            _ => run.decode(),
        });
        decoded.map_err(|error| self.about(error, index, &entry))
    }

    fn decode_batch(&self, indices: &[usize], expected: Option<RunKind>) -> Vec<Result<Run>> {
        let decode = |&index: &usize| self.decode(index, expected);
        // Whoever has threads of his own uses those.
        if rayon::current_thread_index().is_some() {
            return indices.par_iter().map(decode).collect();
        }
        match workers::shared() {
            Ok(threads) => threads.install(|| indices.par_iter().map(decode).collect()),
            // Without threads it takes longer.
            Err(_) => indices.iter().map(decode).collect(),
        }
    }

    fn kind_of(&self, entry: &Entry) -> Result<RunKind> {
        if entry.is_tombstone() {
            return Err(Error::decode(0, "entry", "a run", "a tombstone"));
        }
        entry.kind().ok_or_else(|| Error::decode(0, "kind of the run", "1 or 2", entry.kind))
    }

    fn slice(&self, entry: &Entry) -> Result<RunSlice<'_>> {
        let kind = self.kind_of(entry)?;
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
        Ok(RunSlice { bytes, kind, compression, offset: entry.offset, stored_len: entry.length, crc32c })
    }

    /// Makes an error about an entry's bytes one about the pack.
    pub(super) fn about(&self, error: Error, index: usize, entry: &Entry) -> Error {
        let error = match error.into_kind() {
            // A place in a decompressed run is none in the pack.
            ErrorKind::Decode { mut location, what, expected, found } => {
                if entry.flags != 0 {
                    location.offset = None;
                }
                ErrorKind::Decode { location, what, expected, found }.into()
            }
            ErrorKind::Checksum { mut location, what, expected, found } => {
                if entry.flags != 0 {
                    location.offset = None;
                }
                ErrorKind::Checksum { location, what, expected, found }.into()
            }
            other => Error::from(other),
        };
        self.with_path(error.in_run(index as u64, entry.offset))
    }
}

impl RunSlice<'_> {
    /// Decodes the run. Offsets in errors count from its own first byte.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] and [`ErrorKind::Checksum`].
    pub fn decode(&self) -> Result<Run> {
        match self.kind {
            RunKind::V1 => a2t1::decode(&self.bytes),
            RunKind::V2 => a2run2::decode(&self.bytes),
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

    fn offset(&self, index: usize) -> u64 {
        self.entry(index).map_or(0, |entry| entry.offset)
    }

    fn is_absent(&self, index: usize) -> bool {
        self.entry(index).is_ok_and(|entry| entry.is_tombstone())
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.get_slice(index).map(|run| SourceRun::File(run.bytes))
    }
}

impl fmt::Debug for PackReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackReader")
            .field("path", &self.path())
            .field("num_runs", &self.len())
            .field("checksums", &self.checksums)
            .finish_non_exhaustive()
    }
}
