//! Writing pack.dat.

use super::layout::{HEADER_LEN, MAGIC, PackDatRow, ROW_LEN, VERSION};
use crate::error::{Error, Result};
use crate::format::files::staged_folder::taken;
use crate::format::rows::check_whole;
use crate::run::Run;
use crate::system::publish::{Published, Staged, parent};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const BUFFER_LEN: usize = 1 << 20;

/// A writer of a pack.dat file.
///
/// Steps are written to disk immediately. The metadata of the runs stays in memory until the end: 38 bytes and
/// the engine's name per run. [`finish`](PackDatWriter::finish) makes the file durable and publishes it under its
/// name. Dropping the writer earlier discards the file.
///
/// # Examples
/// ```
/// # let folder = tempfile::tempdir()?;
/// use a2store::{Board, Move, Run};
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), None)?;
///
/// let path = folder.path().join("pack.dat");
/// let mut writer = a2store::format::PackDatWriter::create(&path)?;
/// writer.push(&run)?;
/// writer.finish()?;
///
/// let pack = a2store::format::PackDat::open(&path)?;
/// assert_eq!((pack.num_steps(), pack.decode(0)?), (1, run));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PackDatWriter {
    path: PathBuf,
    out: BufWriter<Staged>,
    rows: Vec<PackDatRow>,
    rows_crc: u32,
    runs: Vec<u8>,
    num_runs: u32,
    num_steps: u64,
}

impl PackDatWriter {
    /// Creates a file.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if the file exists.
    pub fn create(path: impl AsRef<Path>) -> Result<PackDatWriter> {
        let path = path.as_ref();
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        let mut out = BufWriter::with_capacity(BUFFER_LEN, Staged::new(parent(path))?);
        out.write_all(&[0; HEADER_LEN]).map_err(|source| Error::io(path, source))?;
        let (path, rows, runs) = (path.to_owned(), Vec::new(), Vec::new());
        Ok(PackDatWriter { path, out, rows, rows_crc: 0, runs, num_runs: 0, num_steps: 0 })
    }

    /// Adds a run under the next id. Omits the final board and normalizes raw values ([`Run::normalized`]).
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if moves or steps are missing, or if the engine's name
    /// exceeds 65,535 bytes. The same error occurs after 2^32 - 1 runs, and for a run that would begin past step
    /// 2^32 - 1. The file is then unchanged.
    ///
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if a write fails. The file must then not be finished.
    pub fn push(&mut self, run: &Run) -> Result<()> {
        check_whole(run)?;
        self.check_room(run.num_steps())?;
        let engine = run.meta().engine.as_deref().unwrap_or_default().as_bytes();
        if engine.len() > usize::from(u16::MAX) {
            let found = format!("{} bytes", engine.len());
            return Err(Error::argument("engine", "at most 65535 bytes in pack.dat", found));
        }
        let run = &*run.normalized();
        self.rows.clear();
        for step in run.steps() {
            self.rows.push(PackDatRow::from_step(self.num_runs, &step)?);
        }
        let rows: &[u8] = bytemuck::cast_slice(&self.rows);
        self.rows_crc = crc32c::crc32c_append(self.rows_crc, rows);
        self.out.write_all(rows).map_err(|source| Error::io(&self.path, source))?;
        // `check_room` has checked these casts.
        let (out, meta) = (&mut self.runs, run.meta());
        out.extend(self.num_runs.to_le_bytes());
        out.extend((self.num_steps as u32).to_le_bytes());
        out.extend((run.num_steps() as u32).to_le_bytes());
        out.extend(meta.max_score.to_le_bytes());
        out.extend(meta.highest_tile.to_le_bytes());
        out.extend((engine.len() as u16).to_le_bytes());
        out.extend(engine);
        out.extend(meta.start_unix_s.to_le_bytes());
        out.extend(meta.elapsed_s.to_le_bytes());
        self.num_runs += 1;
        self.num_steps += run.num_steps() as u64;
        Ok(())
    }

    /// Finishes the file, makes it durable and publishes it under its name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io), for example if a file of that name has appeared in the meantime.
    pub fn finish(self) -> Result<()> {
        let PackDatWriter { path, mut out, rows_crc, mut runs, num_runs, num_steps, .. } = self;
        let rows_len = num_steps * ROW_LEN as u64;
        let header = header(num_runs, num_steps, rows_len);
        let rows_len = usize::try_from(rows_len).unwrap_or(usize::MAX);
        let crc = crc32c::crc32c_combine(crc32c::crc32c(&header), rows_crc, rows_len);
        let crc = crc32c::crc32c_append(crc, &runs);
        runs.extend(crc.to_le_bytes());
        let finish = || {
            out.write_all(&runs)?;
            let staged = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            staged.file().write_all_at(&header, 0)?;
            Ok(staged)
        };
        let staged: Staged = finish().map_err(|source| Error::io(&path, source))?;
        match staged.publish(&path)? {
            Published::New => Ok(()),
            Published::Taken => Err(taken(&path)),
        }
    }

    fn check_room(&self, num_steps: usize) -> Result<()> {
        if self.num_runs == u32::MAX {
            return Err(Error::argument("runs", "at most 4294967295 in pack.dat", "one more"));
        }
        if self.num_steps > u64::from(u32::MAX) || u32::try_from(num_steps).is_err() {
            let found = format!("{num_steps} more after {}", self.num_steps);
            return Err(Error::argument("steps", "a run that begins before step 4294967296 of pack.dat", found));
        }
        Ok(())
    }
}

fn header(num_runs: u32, num_steps: u64, rows_len: u64) -> Vec<u8> {
    let fields = [
        &MAGIC[..],
        &VERSION.to_le_bytes(),
        &num_runs.to_le_bytes(),
        &num_steps.to_le_bytes(),
        &(HEADER_LEN as u64 + rows_len).to_le_bytes(),
    ];
    fields.concat()
}
