//! Saving, loading and mapping tables: a `.npy` file that NumPy opens, with a [`footer`](crate::table::files::footer) after the rows.

use crate::archive::Phases;
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::open_file;
use crate::system::cancellation::CancellationToken;
use crate::system::process::lock;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::table::files::footer::{TableMeta, read_footer};
use crate::table::files::npy::{self, NpyHeader};
use crate::table::files::region_location::RegionLocation;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::memory::{FileIdentity, FrozenRegion, Region, check_memory, memory_limit};
use crate::table::rows::row_output::RowFile;
use crate::table::rows::runs::{Origin, Runs};
use crate::table::rows::threads::in_parts;
use crate::table::step_table::StepTable;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The number of bytes that are written or read at a time.
const CHUNK: usize = 8 << 20;

impl StepTable {
    /// Writes the rows to a `.npy` file that NumPy opens as a structured array. [`load`](StepTable::load)
    /// returns the same table from it, fingerprint included.
    ///
    /// The file appears under its name only when it is complete and durable. It replaces an existing file. A
    /// view writes only its own rows. Attached columns are not written; they have their own files and can be
    /// attached again.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] for a path in the archive; [`ErrorKind::Io`]; [`ErrorKind::Cancelled`]. No file is left.
    pub fn save(&self, path: impl AsRef<Path>, progress: &dyn Progress, cancel: &CancellationToken) -> Result<()> {
        let path = absolute(path.as_ref())?;
        // Reading the archive's runs may fail, so it comes before all other work.
        self.runs.facts()?;
        let mut file = RowFile::create(&path, &self.layout, &self.runs)?;
        let _work = ReportedWork::begin(progress, "save", Unit::Bytes, self.num_bytes());
        self.write_rows(&mut file, progress, cancel)?;
        file.finish(&self.layout, &self.runs, self.fingerprint())
    }

    /// Appends all rows to a file.
    fn write_rows(&self, file: &mut RowFile, progress: &dyn Progress, cancel: &CancellationToken) -> Result<()> {
        let mut append = |rows: &[u8]| {
            cancel.check()?;
            file.append(rows)?;
            progress.advance(rows.len() as u64);
            Ok(())
        };
        // The rows of a view may be many small ranges, which are written together.
        let mut buffer = Vec::with_capacity(CHUNK);
        for rows in self.row_chunks().flat_map(|rows| rows.chunks(CHUNK)) {
            if buffer.len() + rows.len() > CHUNK {
                append(&buffer)?;
                buffer.clear();
            }
            buffer.extend_from_slice(rows);
        }
        append(&buffer)
    }

    /// Reads a table from a `.npy` file. A file of [`save`](StepTable::save) keeps its fingerprint. `memory_limit` is
    /// the limit for the rows in bytes; `None` = the memory that the system has available.
    ///
    /// Any other structured array works too if it has the fields of a row by name and type, in any order. Its
    /// fingerprint is computed from its content, and fields that a row lacks become extra columns.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Decode`] and [`ErrorKind::Checksum`] if the file is not such an array,
    /// was truncated or was changed; [`ErrorKind::Column`] if a field is missing or has another type;
    /// [`ErrorKind::MemoryLimit`]; [`ErrorKind::Cancelled`].
    pub fn load(
        path: impl AsRef<Path>,
        memory_limit: Option<u64>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        let path = absolute(path.as_ref())?;
        let source = TableFile::open(&path)?;
        let needed = source.header.num_rows.saturating_mul(source.layout.stride() as u64);
        check_memory(needed, self::memory_limit(memory_limit))?;
        let _work = ReportedWork::begin(progress, "load", Unit::Bytes, source.rows_len());
        let rows = source.read_rows(progress, cancel)?;
        source.into_table(rows, None, cancel)
    }

    /// Maps the table in a `.npy` file instead of reading it. Processes that map the same file share its pages, and the
    /// file may be larger than memory. It must not change while it is mapped. The checksum of the rows is not verified.
    ///
    /// # Errors
    /// The errors of [`load`](StepTable::load); [`ErrorKind::Argument`] if the file's rows have another layout.
    pub fn map(path: impl AsRef<Path>) -> Result<StepTable> {
        let table = StepTable::of_file(&absolute(path.as_ref())?, None)?;
        table.rows.populate();
        Ok(table)
    }

    /// Maps the table in a file. Without a footer, the rows are hashed for a fingerprint, unless it is `known`.
    pub(in crate::table) fn of_file(path: &Path, known: Option<&Fingerprint>) -> Result<StepTable> {
        let source = TableFile::open(path)?;
        if let Some(conversion) = &source.conversion {
            let found = format!("rows of {} bytes in another layout", conversion.stride);
            return Err(Error::argument("mmap", "false, or a file that a2store saved", found));
        }
        let len = source.rows_len() as usize;
        let identity = FileIdentity::of(path, &source.file)?;
        let region = FrozenRegion::of_file(&source.file, source.header.len, len, identity)?;
        source.into_table(region, known, CancellationToken::never())
    }

    /// Opens the table in shared memory.
    pub(in crate::table) fn of_memory(location: &RegionLocation) -> Result<StepTable> {
        let path = location.path();
        let meta = read_footer(&location.open()?, path)?;
        let meta = meta.ok_or_else(|| Error::damaged(path, "table", "a footer", "none"))?;
        let rows = location.map()?;
        let (expected, found) = (meta.num_rows * meta.layout.stride() as u64, rows.bytes().len() as u64);
        if found != expected {
            return Err(Error::damaged(path, "table", format!("{expected} bytes of rows"), found));
        }
        let runs = Runs::of_bytes(meta.phases, meta.origin, meta.runs, path);
        StepTable::new(rows, meta.layout, meta.fingerprint, runs)
    }
}

/// A file of rows whose header and footer were read.
struct TableFile<'a> {
    path: &'a Path,
    file: File,
    header: NpyHeader,
    layout: RowLayout,
    /// The conversion of the file's rows, if their layout differs.
    conversion: Option<npy::Conversion>,
    meta: Option<TableMeta>,
}

impl<'a> TableFile<'a> {
    fn open(path: &'a Path) -> Result<TableFile<'a>> {
        let file = open_file(path)?;
        let size = file.metadata().map_err(|error| Error::io(path, error))?.len();
        let header = NpyHeader::read(&file).map_err(|error| error.with_path(path))?;
        let (num_rows, rows_offset) = (header.num_rows, header.len);
        let end = num_rows.checked_mul(header.stride as u64).and_then(|len| len.checked_add(rows_offset));
        let Some(end) = end.filter(|&end| end <= size) else {
            let expected = format!("{num_rows} of {} bytes", header.stride);
            let found = format!("a file of {size} bytes");
            return Err(Error::decode(rows_offset, "rows", expected, found).with_path(path));
        };
        let (layout, conversion, meta) = match read_footer(&file, path)? {
            Some(meta) => {
                let found = (meta.rows_offset, meta.num_rows, meta.layout.stride());
                let expected = (rows_offset, num_rows, header.stride);
                if found != expected || !header.is_of(&meta.layout) {
                    let expected = format!("rows as the header says, {expected:?}");
                    return Err(Error::damaged(path, "table", expected, format!("{found:?}")));
                }
                (meta.layout.clone(), None, Some(meta))
            }
            // NumPy writes nothing after the rows, so the extra bytes were a footer.
            None if size > end => {
                let found = format!("{} bytes without a footer", size - end);
                let expected = format!("the end of the file or a footer at byte {end}");
                return Err(Error::damaged(path, "table", expected, found));
            }
            None => {
                let (layout, conversion) = header.layout().map_err(|error| error.with_path(path))?;
                (layout, conversion, None)
            }
        };
        Ok(TableFile { path, file, header, layout, conversion, meta })
    }

    /// Returns the size of the file's rows in bytes.
    fn rows_len(&self) -> u64 {
        self.header.num_rows * self.header.stride as u64
    }

    /// Reads all rows on all cores. Verifies their checksum if the file has a footer.
    fn read_rows(&self, progress: &dyn Progress, cancel: &CancellationToken) -> Result<FrozenRegion> {
        let stride = self.layout.stride();
        let len = self.header.num_rows as usize * stride;
        let mut region = Region::reserve(len as u64)?;
        let rows_per_chunk = (CHUNK / self.header.stride).max(1);
        let chunks: Vec<_> = region.bytes_mut()[..len].chunks_mut(rows_per_chunk * stride).map(Mutex::new).collect();
        // Reads a chunk, and returns its checksum and length.
        let read_chunk = |number: usize| {
            // Each chunk is taken once, so its lock is free.
            let mut out = lock(&chunks[number]);
            let num_rows = out.len() / stride;
            let offset = self.header.len + (number * rows_per_chunk * self.header.stride) as u64;
            let read = |bytes: &mut [u8]| self.file.read_exact_at(bytes, offset).map_err(Error::from);
            match &self.conversion {
                None => read(&mut out)?,
                Some(conversion) => {
                    let mut buffer = vec![0; num_rows * conversion.stride];
                    read(&mut buffer)?;
                    conversion.convert(&buffer, &mut out, (number * rows_per_chunk) as u64)?;
                }
            }
            progress.advance((num_rows * self.header.stride) as u64);
            Ok((crc32c::crc32c(&out), out.len()))
        };
        let sums = in_parts(chunks.len(), cancel, read_chunk).map_err(|error| error.with_path(self.path))?;
        drop(chunks);
        if let Some(expected) = self.meta.as_ref().and_then(|meta| meta.rows_crc32c) {
            let found = sums.into_iter().fold(0, |crc, (sum, len)| crc32c::crc32c_combine(crc, sum, len));
            if found != expected {
                let location =
                    Location { path: Some(self.path.into()), offset: Some(self.header.len), ..Location::default() };
                return Err(ErrorKind::Checksum { location, what: "the rows", expected, found }.into());
            }
        }
        region.freeze(len)
    }

    /// Makes a table of the rows. Without a footer, checks the rows, and hashes them unless their fingerprint is known.
    fn into_table(
        self,
        rows: FrozenRegion,
        known: Option<&Fingerprint>,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        if let Some(meta) = self.meta {
            let runs = Runs::of_bytes(meta.phases, meta.origin, meta.runs, self.path);
            return StepTable::new(rows, self.layout, meta.fingerprint, runs);
        }
        let fingerprint = match known {
            Some(known) => known.clone(),
            None => {
                npy::check_steps(rows.bytes(), &self.layout).map_err(|error| error.with_path(self.path))?;
                Fingerprint::of_rows(rows.bytes(), &self.layout, cancel)?
            }
        };
        let runs = Runs::of_bytes(Some(Phases::default()), Origin::default(), Vec::new(), self.path);
        StepTable::new(rows, self.layout, fingerprint, runs)
    }
}

/// Returns the absolute path. An empty path is an error.
pub(in crate::table) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(Error::argument("path", "the path of a file", "an empty path"));
    }
    std::path::absolute(path).map_err(|error| Error::io(path, error))
}
