//! Tables in files: a `.npy` file that NumPy opens, with a footer after the rows.
//!
//! ```text
//!  0       NumPy's header, padded with spaces to a multiple of 4096 bytes
//!  4096    rows, num_rows × stride bytes
//!          JSON: rows, layout, fingerprint, phases, CRC32C of the rows
//!          runs: id, score and engine of each, see `RunIndex::to_bytes`; may be empty
//!  -40     offset of the rows u64 | their size u64 | size of the JSON u32 | of the runs u32
//!  -16     CRC32C of JSON, runs and the 24 bytes before u32 | 0 u32 | "A2TABLE" 01
//! ```
//!
//! All numbers are little-endian. NumPy reads the rows that its header counts and ignores the rest. Shared
//! memory has the same content without NumPy's header; its footer begins at the next page.

use super::memory::{FileIdentity, FrozenRegion, Region};
use super::npy::{self, NpyHeader};
use super::output::Stop;
use super::runs::{RunIndex, Runs};
use super::share::{Shared, is_sealed, map_shared, page_size};
use super::{Fingerprint, RowLayout, StepTable, gather};
use crate::archive::Phases;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::machine::available_bytes;
use crate::progress::{Progress, Unit, check};
use crate::publish::Staged;
use crate::step::{STEP_SIZE, Step};
use crate::workers;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const MAGIC: &[u8; 8] = b"A2TABLE\x01";
const FOOTER_LEN: usize = 40;
/// The number of bytes that are written or read at a time.
const CHUNK: usize = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    num_rows: u64,
    layout: RowLayout,
    fingerprint: Fingerprint,
    phases: Option<Phases>,
    /// CRC32C of the rows; `None` in shared memory.
    rows_crc32c: Option<u32>,
    /// Distinguishes one shared memory file from another.
    token: Option<String>,
}

/// How to load a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Whether to map the file instead of reading it. Processes that map the same file share its pages, and the
    /// file may be larger than memory. It must not change while it is mapped. Its checksum is not verified.
    pub mmap: bool,
    /// The memory limit for rows that are read, in bytes; `None` = the memory that the system has available.
    pub memory_limit: Option<u64>,
}

impl LoadOptions {
    /// Sets whether to map the file instead of reading it.
    #[must_use]
    pub fn with_mmap(mut self, mmap: bool) -> Self {
        self.mmap = mmap;
        self
    }

    /// Sets the memory limit for rows that are read, in bytes.
    #[must_use]
    pub fn with_memory_limit(mut self, memory_limit: u64) -> Self {
        self.memory_limit = Some(memory_limit);
        self
    }
}

impl StepTable {
    /// Writes the rows to a `.npy` file that NumPy opens as a structured array. [`load`](StepTable::load)
    /// returns the same table from it, fingerprint included.
    ///
    /// The file appears under its name only when it is complete and durable. It replaces an existing file. A
    /// view writes only its own rows. Attached columns are not written; they have their own files and can be
    /// attached again.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] and [`ErrorKind::Cancelled`]. After an error no file is left.
    pub fn save(&self, path: impl AsRef<Path>, progress: &dyn Progress) -> Result<()> {
        let path = path.as_ref();
        let io = |error| Error::io(path, error);
        // Reading the archive's runs may fail, so it comes before all other work.
        let runs = self.runs.index()?;
        let mut staged = Staged::new(parent(path))?;
        let header = npy::header(&self.layout, self.num_rows(), 0)?;
        staged.write_all(&header).map_err(io)?;
        progress.begin("save", Unit::Bytes, self.num_bytes());
        let (mut run_ids, mut last) = (HashSet::new(), None);
        let written = self.write_rows(progress, |bytes| {
            for row in bytes.chunks_exact(self.layout.stride()) {
                let run_id = bytemuck::pod_read_unaligned::<Step>(&row[..STEP_SIZE]).run_id;
                if last != Some(run_id) {
                    run_ids.insert(run_id);
                    last = Some(run_id);
                }
            }
            staged.write_all(bytes).map_err(io)
        });
        progress.end();
        let runs = runs.map(|runs| runs.only(&run_ids));
        let (num_rows, start, phases) = (self.num_rows(), header.len() as u64, self.runs.phases);
        let footer =
            footer_of_file(num_rows, start, &self.layout, self.fingerprint(), phases, runs.as_ref(), written?)?;
        staged.write_all(&footer).map_err(io)?;
        staged.replace(path)
    }

    /// Passes all rows to `write` and returns their checksum.
    fn write_rows(&self, progress: &dyn Progress, mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<u32> {
        let mut crc = 0;
        let mut put = |bytes: &[u8]| {
            check(progress)?;
            crc = crc32c::crc32c_append(crc, bytes);
            progress.advance(bytes.len() as u64);
            write(bytes)
        };
        match self.rows() {
            Some(rows) => rows.chunks(CHUNK / self.layout.stride() * self.layout.stride()).try_for_each(put)?,
            None => {
                let stride = self.layout.stride();
                let mut buffer = vec![0; CHUNK / stride * stride];
                let mut positions = Vec::new();
                let mut start = 0;
                while start < self.num_rows() {
                    let end = self.num_rows().min(start + (CHUNK / stride) as u64);
                    positions.clear();
                    positions.extend(start..end);
                    self.map_positions(&mut positions);
                    let buffer = &mut buffer[..positions.len() * stride];
                    gather::gather_rows(self.all_rows(), &positions, buffer);
                    put(buffer)?;
                    start = end;
                }
            }
        }
        Ok(crc)
    }

    /// Returns the footer of the whole table in shared memory.
    pub(super) fn footer_of_memory(&self, token: &str) -> Result<Vec<u8>> {
        let meta = Meta {
            num_rows: self.num_all_rows(),
            layout: RowLayout::clone(&self.layout),
            fingerprint: Fingerprint::clone(&self.whole_fingerprint),
            phases: self.runs.phases,
            rows_crc32c: None,
            token: Some(token.to_owned()),
        };
        // Without its archive, a table can be shared. The other process then cannot filter by score or engine.
        let runs = self.runs.index().ok().flatten();
        footer(&meta, 0, runs.as_deref())
    }

    /// Reads a table from a `.npy` file. A file of [`save`](StepTable::save) keeps its fingerprint.
    ///
    /// Any other structured array works too if it has the fields of a row by name and type, in any order. Its
    /// fingerprint is computed from its content, and fields that a row lacks become extra columns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Decode`] and [`ErrorKind::Checksum`] if the file is not such an array,
    /// was truncated or was changed; [`ErrorKind::Column`] if a field is missing or has another type;
    /// [`ErrorKind::Argument`] if the file cannot be mapped because its rows have another layout;
    /// [`ErrorKind::MemoryLimit`]; [`ErrorKind::Cancelled`].
    pub fn load(path: impl AsRef<Path>, options: &LoadOptions, progress: &dyn Progress) -> Result<StepTable> {
        let path = &std::path::absolute(path.as_ref()).map_err(|error| Error::io(path.as_ref(), error))?;
        if options.mmap {
            let table = StepTable::map(path, None)?;
            table.rows.populate();
            return Ok(table);
        }
        let source = Source::open(path)?;
        let limit = options.memory_limit.or_else(available_bytes).unwrap_or(u64::MAX);
        let needed = source.num_rows.saturating_mul(source.layout.stride() as u64);
        if needed > limit || needed == u64::MAX {
            return Err(ErrorKind::MemoryLimit { needed, limit }.into());
        }
        progress.begin("load", Unit::Bytes, source.rows_len());
        let rows = source.read_rows(progress);
        progress.end();
        let (region, content) = rows?;
        source.into_table(region, content)
    }

    /// Maps the table in a file. Without a footer, the rows are hashed for a fingerprint, unless `known` is
    /// given.
    pub(super) fn map(path: &Path, known: Option<&Fingerprint>) -> Result<StepTable> {
        let source = Source::open(path)?;
        if let Some(conversion) = &source.conversion {
            let found = format!("rows of {} bytes in another layout", conversion.stride);
            return Err(Error::argument("mmap", "false, or a file that a2store saved", found));
        }
        let len = source.rows_len() as usize;
        let identity = FileIdentity::of(path, &source.file)?;
        let region = FrozenRegion::of_file(&source.file, source.rows_offset, len, identity)?;
        let content = match (&source.meta, known) {
            (None, None) => Some(blake3::hash(region.bytes())),
            _ => None,
        };
        let mut table = source.into_table(region, content)?;
        if let Some(known) = known {
            table.whole_fingerprint = Arc::new(known.clone());
        }
        Ok(table)
    }

    /// Opens the table in shared memory.
    pub(super) fn of_shared(shared: Shared, path: &Path) -> Result<StepTable> {
        if !is_sealed(&shared.file) {
            return Err(damaged(path, "sealed memory", "a file that may change"));
        }
        let (meta, footer) = read_footer(&shared.file, path)?.ok_or_else(|| damaged(path, "a footer", "none"))?;
        if meta.token.as_ref() != Some(&shared.token) {
            return Err(damaged(path, &shared.token, meta.token.as_deref().unwrap_or("none")));
        }
        let region = map_shared(shared, footer.rows_len as usize)?;
        let runs = Runs::of_bytes(meta.phases, footer.runs, path);
        StepTable::new(region, meta.layout, meta.fingerprint, runs)
    }
}

/// A file of rows whose header and footer were read.
struct Source<'a> {
    path: &'a Path,
    file: File,
    num_rows: u64,
    rows_offset: u64,
    layout: RowLayout,
    /// The conversion of the file's rows, if their layout differs.
    conversion: Option<npy::Conversion>,
    meta: Option<Meta>,
    runs: Vec<u8>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path) -> Result<Source<'a>> {
        let file = open_regular(path).map_err(|error| Error::io(path, error))?;
        let size = file.metadata().map_err(|error| Error::io(path, error))?.len();
        let header = NpyHeader::read(&file).map_err(|error| error.with_path(path))?;
        let rows_len = header.num_rows.checked_mul(header.stride as u64);
        if rows_len.and_then(|len| len.checked_add(header.len)).is_none_or(|end| end > size) {
            let error = decode(header.len, "rows", format!("{} of {} bytes", header.num_rows, header.stride));
            return Err(error(format!("a file of {size} bytes")).with_path(path));
        }
        let footer = read_footer(&file, path)?;
        let (num_rows, rows_offset) = (header.num_rows, header.len);
        if let Some((meta, footer)) = footer {
            let found = (footer.rows_offset, footer.rows_len, meta.num_rows, meta.layout.stride());
            let expected = (rows_offset, rows_len.unwrap_or(0), num_rows, header.stride);
            if found != expected || !header.is_of(&meta.layout) {
                return Err(damaged(path, &format!("rows as the header says, {expected:?}"), &format!("{found:?}")));
            }
            let (layout, runs) = (meta.layout.clone(), footer.runs);
            return Ok(Source { path, file, num_rows, rows_offset, layout, conversion: None, meta: Some(meta), runs });
        }
        // NumPy writes nothing after the rows, so the extra bytes were a footer.
        let end = rows_offset + rows_len.unwrap_or(0);
        if size > end {
            return Err(damaged(path, &format!("the end of the file or a footer at byte {end}"), "other bytes"));
        }
        let (layout, conversion) = header.layout().map_err(|error| error.with_path(path))?;
        Ok(Source { path, file, num_rows, rows_offset, layout, conversion, meta: None, runs: Vec::new() })
    }

    /// The stride of the file's rows.
    fn stride(&self) -> usize {
        self.conversion.as_ref().map_or(self.layout.stride(), |conversion| conversion.stride)
    }

    fn rows_len(&self) -> u64 {
        self.num_rows * self.stride() as u64
    }

    /// Reads all rows on all cores. Verifies their checksum, or hashes them if the file has no footer.
    fn read_rows(&self, progress: &dyn Progress) -> Result<(FrozenRegion, Option<blake3::Hash>)> {
        let stride = self.layout.stride();
        let len = self.num_rows as usize * stride;
        let mut region = Region::reserve(len as u64)?;
        let rows_per_chunk = (CHUNK / self.stride()).max(1);
        let out = &mut region.bytes_mut()[..len];
        let chunks: Vec<_> = out.chunks_mut(rows_per_chunk * stride).map(std::sync::Mutex::new).collect();
        let sums: Vec<_> = chunks.iter().map(|_| AtomicUsize::new(0)).collect();
        let next = AtomicUsize::new(0);
        let read_chunks = || -> Result<()> {
            let mut buffer = Vec::new();
            loop {
                let k = next.fetch_add(1, Ordering::Relaxed);
                let Some(chunk) = chunks.get(k) else {
                    return Ok(());
                };
                check(progress)?;
                // Each chunk is taken once, so its lock is free.
                let mut out = chunk.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let num_rows = out.len() / stride;
                let offset = self.rows_offset + (k * rows_per_chunk * self.stride()) as u64;
                let read = |bytes: &mut [u8]| {
                    self.file.read_exact_at(bytes, offset).map_err(|error| Error::io(self.path, error))
                };
                match &self.conversion {
                    None => {
                        read(&mut out)?;
                        sums[k].store(crc32c::crc32c(&out) as usize, Ordering::Relaxed);
                    }
                    Some(conversion) => {
                        buffer.resize(num_rows * conversion.stride, 0);
                        read(&mut buffer)?;
                        conversion.convert(&buffer, &mut out, (k * rows_per_chunk) as u64)?;
                    }
                }
                progress.advance((num_rows * self.stride()) as u64);
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8);
        let stop = Stop::default();
        workers::side_by_side(cores, || {
            if let Err(error) = read_chunks() {
                stop.raise(error);
            }
        });
        stop.into_result().map_err(|error| error.with_path(self.path))?;
        let lens: Vec<usize> = chunks.iter().map(|chunk| chunk.lock().map_or(0, |chunk| chunk.len())).collect();
        drop(chunks);
        if let Some(expected) = self.meta.as_ref().and_then(|meta| meta.rows_crc32c) {
            let sums = sums.iter().zip(lens).map(|(sum, len)| (sum.load(Ordering::Relaxed) as u32, len));
            let found = sums.fold(0, |crc, (sum, len)| crc32c::crc32c_combine(crc, sum, len));
            if found != expected {
                let location =
                    Location { path: Some(self.path.into()), offset: Some(self.rows_offset), ..Location::default() };
                return Err(ErrorKind::Checksum { location, what: "the rows", expected, found }.into());
            }
        }
        let region = region.freeze(len)?;
        let content = self.meta.is_none().then(|| blake3::hash(region.bytes()));
        Ok((region, content))
    }

    fn into_table(self, region: FrozenRegion, content: Option<blake3::Hash>) -> Result<StepTable> {
        if content.is_some() {
            npy::check_steps(region.bytes(), self.layout.stride()).map_err(|error| error.with_path(self.path))?;
        }
        let (fingerprint, phases) = match (self.meta, content) {
            (Some(meta), _) => (meta.fingerprint, meta.phases),
            (None, content) => {
                (Fingerprint::of_content(&content.unwrap_or_else(|| blake3::hash(b""))), Some(Phases::default()))
            }
        };
        StepTable::new(region, self.layout, fingerprint, Runs::of_bytes(phases, self.runs, self.path))
    }
}

struct Footer {
    rows_offset: u64,
    rows_len: u64,
    runs: Vec<u8>,
}

/// Reads the footer after the rows; `None` if the file has no footer.
fn read_footer(file: &File, path: &Path) -> Result<Option<(Meta, Footer)>> {
    let io = |error| Error::io(path, error);
    let size = file.metadata().map_err(io)?.len();
    let Some(at) = size.checked_sub(FOOTER_LEN as u64) else {
        return Ok(None);
    };
    let mut tail = [0; FOOTER_LEN];
    file.read_exact_at(&mut tail, at).map_err(io)?;
    if !tail.ends_with(MAGIC) {
        return Ok(None);
    }
    let u32_at = |at: usize| tail.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| tail.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    let (json_len, runs_len) = (u64::from(u32_at(16)), u64::from(u32_at(20)));
    let Some(start) = at.checked_sub(json_len + runs_len) else {
        return Err(damaged(path, "a footer inside of the file", &format!("one of {} bytes", json_len + runs_len)));
    };
    let (rows_offset, rows_len) = (u64_at(0), u64_at(8));
    // In shared memory the footer begins at a page.
    let rows_end = rows_offset.saturating_add(rows_len);
    if start != rows_end && Some(start) != rows_end.checked_next_multiple_of(page_size() as u64) {
        return Err(damaged(path, "rows just before the footer", &format!("{rows_len} bytes from byte {rows_offset}")));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact((json_len + runs_len) as usize).map_err(|_| {
        Error::from(ErrorKind::MemoryLimit { needed: json_len + runs_len, limit: available_bytes().unwrap_or(0) })
    })?;
    bytes.resize((json_len + runs_len) as usize, 0);
    file.read_exact_at(&mut bytes, start).map_err(io)?;
    let found = crc32c::crc32c_append(crc32c::crc32c(&bytes), &tail[..24]);
    let expected = u32_at(24);
    if found != expected {
        let location = Location { path: Some(path.into()), offset: Some(start), ..Location::default() };
        return Err(ErrorKind::Checksum { location, what: "the footer", expected, found }.into());
    }
    let meta: Meta = serde_json::from_slice(&bytes[..json_len as usize])
        .map_err(|error| damaged(path, "a footer's fields", &error.to_string()))?;
    if !meta.layout.is_valid() {
        return Err(damaged(path, "the layout of a row", &format!("{:?}", meta.layout)));
    }
    if meta.num_rows.checked_mul(meta.layout.stride() as u64) != Some(rows_len) {
        return Err(damaged(path, "rows before the footer", &format!("{rows_len} bytes from byte {rows_offset}")));
    }
    bytes.drain(..json_len as usize);
    Ok(Some((meta, Footer { rows_offset, rows_len, runs: bytes })))
}

/// Returns the footer of a file.
pub(super) fn footer_of_file(
    num_rows: u64,
    rows_offset: u64,
    layout: &RowLayout,
    fingerprint: &Fingerprint,
    phases: Option<Phases>,
    runs: Option<&RunIndex>,
    rows_crc32c: u32,
) -> Result<Vec<u8>> {
    let meta = Meta {
        num_rows,
        layout: layout.clone(),
        fingerprint: fingerprint.clone(),
        phases,
        rows_crc32c: Some(rows_crc32c),
        token: None,
    };
    footer(&meta, rows_offset, runs)
}

fn footer(meta: &Meta, rows_offset: u64, runs: Option<&RunIndex>) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(meta).map_err(|error| Error::from(std::io::Error::other(error)))?;
    let runs = runs.map(RunIndex::to_bytes).unwrap_or_default();
    let mut bytes = [json.as_slice(), &runs].concat();
    bytes.extend(rows_offset.to_le_bytes());
    bytes.extend((meta.num_rows * meta.layout.stride() as u64).to_le_bytes());
    bytes.extend((json.len() as u32).to_le_bytes());
    bytes.extend((runs.len() as u32).to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(MAGIC);
    Ok(bytes)
}

/// Opens a regular file for reading. Anything else is an error; for example, a pipe could block.
pub(super) fn open_regular(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Returns the folder of a file.
pub(super) fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn damaged(path: &Path, expected: &str, found: &str) -> Error {
    let (expected, found) = (expected.to_owned(), found.to_owned());
    ErrorKind::Damaged { path: path.into(), what: "table", expected, found }.into()
}

fn decode(offset: u64, what: &'static str, expected: String) -> impl FnOnce(String) -> Error {
    let location = Location { offset: Some(offset), ..Location::default() };
    move |found| ErrorKind::Decode { location, what, expected, found }.into()
}
