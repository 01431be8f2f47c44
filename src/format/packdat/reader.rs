//! Reading pack.dat.

use super::layout::{CRC_LEN, HEADER_LEN, MAGIC, MIN_RUN_LEN, PackDatRow, ROW_LEN, VERSION};
use crate::error::{Error, Result};
use crate::format::files::bytes::ByteReader;
use crate::format::files::mapped::{map_bytes, map_file};
use crate::format::rows::rebuild;
use crate::format::source::{RunSource, SourceRun};
use crate::run::{Run, RunMeta};
use crate::system::cancellation::CancellationToken;
use memmap2::Mmap;
use std::path::{Path, PathBuf};

/// A memory-mapped pack.dat file. Any number of threads may read its runs in any order.
///
/// Opening verifies the checksum of the whole file and locates the runs. Reading a run then reads only that run.
/// The file must not be modified while it is open; replacing it is safe.
#[derive(Debug)]
pub struct PackDat {
    path: Option<PathBuf>,
    bytes: Mmap,
    num_steps: u64,
    /// The offset of each run's metadata in the file.
    metas: Vec<u64>,
}

/// The metadata of a run in the file.
struct PackDatRun<'a> {
    first_step: u32,
    num_steps: u32,
    engine: &'a [u8],
    /// The metadata except the engine.
    meta: RunMeta,
}

/// Bytes between two checks for cancellation.
const CHUNK_LEN: usize = 16 << 20;

impl PackDat {
    /// Opens a file. This reads the whole file to verify its checksum.
    ///
    /// # Errors
    /// [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) if the checksum does not match;
    /// [`ErrorKind::Header`](crate::ErrorKind::Header) if the file is not a pack.dat or has another size than it
    /// declares; [`ErrorKind::Io`](crate::ErrorKind::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<PackDat> {
        PackDat::open_with(path.as_ref(), CancellationToken::never())
    }

    pub(in crate::format) fn open_with(path: &Path, cancel: &CancellationToken) -> Result<PackDat> {
        let opened = map_file(path).and_then(PackDat::parse);
        let mut pack = opened.map_err(|error| error.with_path(path))?;
        pack.path = Some(path.to_owned());
        pack.check_crc(cancel).map_err(|error| error.with_path(path))?;
        Ok(pack)
    }

    /// Opens a pack.dat in memory.
    ///
    /// # Errors
    /// The errors of [`PackDat::open`], without the file's name.
    pub fn from_bytes(bytes: impl AsRef<[u8]>) -> Result<PackDat> {
        let pack = PackDat::parse(map_bytes(bytes.as_ref())?)?;
        pack.check_crc(CancellationToken::never())?;
        Ok(pack)
    }

    /// Returns the number of steps of all runs.
    #[must_use]
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// Decodes a run. The run has no final board, because the file holds none.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) with the run, the step and the offset in the file, if rows are
    /// missing, belong to another run, or hold no valid step;
    /// [`ErrorKind::IndexOutOfBounds`](crate::ErrorKind::IndexOutOfBounds).
    pub fn decode(&self, index: usize) -> Result<Run> {
        let &start = self.metas.get(index).ok_or_else(|| Error::no_index(index, self.metas.len()))?;
        let path = self.path.as_deref();
        let in_entry = |error: Error| error.in_run(index as u64, start).with_path_of(path);
        let entry = self.entry(start).map_err(in_entry)?;
        let meta = entry.meta().map_err(in_entry)?;
        let (first, rows) = self.rows(index, &entry).map_err(in_entry)?;
        check_rows(rows, index)
            .and_then(|()| rebuild(rows.iter().copied().map(PackDatRow::to_step), ROW_LEN, meta))
            .map_err(|error| error.in_run(index as u64, row_offset(first)).with_path_of(path))
    }

    /// Locates the runs and checks the size of the file. Does not verify the checksum.
    fn parse(bytes: Mmap) -> Result<PackDat> {
        let (num_steps, metas) = geometry(&bytes).map_err(Error::of_header)?;
        Ok(PackDat { path: None, bytes, num_steps, metas })
    }

    fn check_crc(&self, cancel: &CancellationToken) -> Result<()> {
        let (covered, stored) = self.bytes.split_last_chunk::<CRC_LEN>().unwrap_or((&[], &[0; CRC_LEN]));
        let mut found = 0;
        for chunk in covered.chunks(CHUNK_LEN) {
            cancel.check()?;
            found = crc32c::crc32c_append(found, chunk);
        }
        let expected = u32::from_le_bytes(*stored);
        if found == expected {
            return Ok(());
        }
        Err(Error::checksum(covered.len() as u64, "the file", expected, found).with_path_of(self.path.as_deref()))
    }

    fn entry(&self, start: u64) -> Result<PackDatRun<'_>> {
        let bytes = self.bytes.get(start as usize..).unwrap_or_default();
        entry(&mut ByteReader::new(bytes)).map(|(_, entry)| entry)
    }

    /// Returns the rows of a run with the number of the first one, or an error if the file lacks some.
    fn rows(&self, index: usize, entry: &PackDatRun<'_>) -> Result<(usize, &[PackDatRow])> {
        let (first, len) = (entry.first_step as usize, entry.num_steps as usize);
        let rows = self.bytes.get(HEADER_LEN..HEADER_LEN + self.num_steps as usize * ROW_LEN).unwrap_or_default();
        let rows: &[PackDatRow] = bytemuck::cast_slice(rows);
        let at = |first: usize| Some((first, rows.get(first..)?.get(..len)?));
        let is_step_0 = |row: &PackDatRow| row.run_id as usize == index && row.index_in_run == 0;
        let is_own = |(_, rows): &(usize, &[PackDatRow])| rows.first().is_none_or(is_step_0);
        // Another writer of this format stores a wrong place for appended runs, but their rows are in the order of
        // runs.
        let ends_there = |(first, _): &(usize, &[PackDatRow])| {
            rows.get(first + len).is_none_or(|next| next.run_id as usize != index)
        };
        let by_id = || at(rows.partition_point(|row| (row.run_id as usize) < index)).filter(is_own).filter(ends_there);
        at(first).filter(is_own).or_else(by_id).or_else(|| at(first)).ok_or_else(|| {
            let found = format!("{len} from step {first} on");
            Error::decode(4, "steps of the run", format!("steps within the {} of the file", self.num_steps), found)
        })
    }
}

impl PackDatRun<'_> {
    fn meta(&self) -> Result<RunMeta> {
        let engine = std::str::from_utf8(self.engine).map_err(|error| {
            let offset = ENGINE_OFFSET + error.valid_up_to() as u64;
            Error::decode(offset, "engine", "UTF-8", "an invalid byte")
        })?;
        Ok(RunMeta { engine: (!engine.is_empty()).then(|| engine.to_owned()), ..self.meta.clone() })
    }
}

/// The offset of the engine's name in a run's metadata.
const ENGINE_OFFSET: u64 = 26;

impl RunSource for PackDat {
    fn warning(&self) -> Option<String> {
        let entries = self.metas.iter().filter_map(|&start| self.entry(start).ok());
        let of_runs: u64 = entries.map(|entry| u64::from(entry.num_steps)).sum();
        let rest = self.num_steps.checked_sub(of_runs).filter(|&rest| rest > 0)?;
        let path = self.path.as_deref().unwrap_or(Path::new("pack.dat")).display();
        Some(format!("{path}: {rest} rows are ignored, because they belong to no run"))
    }

    fn num_runs(&self) -> usize {
        self.metas.len()
    }

    fn locate(&self, index: usize, error: Error) -> Error {
        let entry = self.metas.get(index).and_then(|&start| self.entry(start).ok());
        let first = entry.and_then(|entry| self.rows(index, &entry).ok()).map_or(0, |(first, _)| row_offset(first));
        error.in_run(index as u64, first)
    }

    fn num_bytes(&self, index: usize) -> u64 {
        let entry = self.metas.get(index).and_then(|&start| self.entry(start).ok());
        // A run that declares more steps than the file has counts as 0 bytes.
        let entry = entry.filter(|entry| u64::from(entry.num_steps) <= self.num_steps);
        entry.map_or(0, |entry| (MIN_RUN_LEN + entry.engine.len() + entry.num_steps as usize * ROW_LEN) as u64)
    }

    fn read(&self, index: usize) -> Result<SourceRun<'_>> {
        self.decode(index).map(SourceRun::Run)
    }
}

/// Returns the number of steps, and the offset of each run's metadata.
fn geometry(bytes: &[u8]) -> Result<(u64, Vec<u64>)> {
    let mut reader = ByteReader::new(bytes);
    let magic = reader.array::<4>("magic")?;
    if magic != *MAGIC {
        return Err(reader.error(4, "magic", "2048", format_args!("{}", magic.escape_ascii())));
    }
    let version = reader.u32("version")?;
    if version != VERSION {
        return Err(reader.error(4, "version", "1", version));
    }
    let num_runs = reader.u32("num_runs")? as usize;
    let num_steps = reader.u64("num_steps")?;
    let metadata_offset = reader.u64("metadata_offset")?;
    let rows_end = num_steps.checked_mul(ROW_LEN as u64).and_then(|len| len.checked_add(HEADER_LEN as u64));
    let Some(rows_end) = rows_end.filter(|&end| end <= (bytes.len().saturating_sub(CRC_LEN)) as u64) else {
        let expected = format!("at most as many as {} bytes can hold", bytes.len());
        return Err(reader.error(16, "num_steps", expected, num_steps));
    };
    if metadata_offset != rows_end {
        return Err(reader.error(8, "metadata_offset", format!("{rows_end}, the end of the rows"), metadata_offset));
    }
    reader.skip(num_steps as usize * ROW_LEN);
    let most = reader.remaining().saturating_sub(CRC_LEN) / MIN_RUN_LEN;
    if num_runs > most {
        return Err(Error::decode(8, "num_runs", format!("at most {most} in the bytes after the rows"), num_runs));
    }
    let mut metas = Vec::with_capacity(num_runs);
    for index in 0..num_runs {
        metas.push(reader.offset() as u64);
        let (id, entry) = entry(&mut reader)?;
        if id as usize != index {
            let back = MIN_RUN_LEN + entry.engine.len();
            return Err(reader.error(back, "id of a run", format!("{index}, in order"), id));
        }
    }
    if reader.remaining() != CRC_LEN {
        let found = format!("{} bytes", reader.remaining());
        return Err(reader.error(0, "end of the runs", "a checksum of 4 bytes and the end of the file", found));
    }
    Ok((num_steps, metas))
}

fn entry<'a>(reader: &mut ByteReader<'a>) -> Result<(u32, PackDatRun<'a>)> {
    let id = reader.u32("id of a run")?;
    let first_step = reader.u32("first_step_idx")?;
    let num_steps = reader.u32("num_steps of a run")?;
    let max_score = reader.u64("max_score")?;
    let highest_tile = reader.u32("highest_tile")?;
    let engine_len = reader.u16("length of engine")?;
    let engine = reader.take(usize::from(engine_len), "engine")?;
    let start_unix_s = reader.u64("start_time")?;
    let elapsed_s = reader.f32("elapsed_s")?;
    let meta = RunMeta { start_unix_s, elapsed_s, max_score, highest_tile, ..RunMeta::default() };
    Ok((id, PackDatRun { first_step, num_steps, engine, meta }))
}

/// Rejects rows of another run and rows out of order.
fn check_rows(rows: &[PackDatRow], run: usize) -> Result<()> {
    let is_own = |place: usize, row: &PackDatRow| row.run_id as usize == run && row.index_in_run as usize == place;
    let Some((place, row)) = rows.iter().enumerate().find(|&(place, row)| !is_own(place, row)) else { return Ok(()) };
    let (run_id, index) = (row.run_id, row.index_in_run);
    let (expected, found) = (format!("step {place} of run {run}"), format!("step {index} of run {run_id}"));
    let offset = place * ROW_LEN + std::mem::offset_of!(PackDatRow, run_id);
    Err(Error::decode(offset as u64, "row", expected, found).located(|location| location.step = Some(place as u64)))
}

fn row_offset(step: usize) -> u64 {
    HEADER_LEN as u64 + step as u64 * ROW_LEN as u64
}
