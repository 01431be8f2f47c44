//! Export to run files in a folder.

use super::losses::{DETAILS, RAW_VALUES, SEED, VALUES};
use super::target::{
    Encoded, ExpectedRuns, ExportOutput, ExportedRun, FormatOptions, Holds, RunEncoder, RunSink, TargetFormat,
};
use crate::error::{Error, Result};
use crate::format::RunFormat;
use crate::publish::{Published, Staged, parent};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub(super) const ORIGINAL: TargetFormat = TargetFormat {
    name: "original",
    can_append: false,
    is_run_files: true,
    uses_original: true,
    holds: |_| Holds::Originals,
    loses: |_, _| Vec::new(),
    open: |out, _, expected| open(out, None, expected),
};

pub(super) const A2T1: TargetFormat = TargetFormat {
    name: "a2t1",
    uses_original: false,
    holds: |_| Holds::WholeGames,
    loses: |_, _| vec![VALUES, SEED, DETAILS],
    open: |out, _, expected| open(out, Some(RunFormat::A2t1), expected),
    ..ORIGINAL
};

pub(super) const A2RUN2: TargetFormat = TargetFormat {
    name: "a2run2",
    loses: |_, _| vec![RAW_VALUES, SEED, DETAILS],
    open: |out: &Path, _: &FormatOptions, expected: &ExpectedRuns<'_>| open(out, Some(RunFormat::A2run2), expected),
    ..A2T1
};

/// An export of more run files than this uses subfolders of a thousand ids each.
const FLAT_RUNS: usize = 1000;

/// An encoder that writes each run to a separate file.
struct RunFiles {
    folder: PathBuf,
    by_thousands: bool,
    /// `None` = the original format.
    format: Option<RunFormat>,
}

/// A sink that only counts the files.
struct NumFiles(u64);

fn open(out: &Path, format: Option<RunFormat>, expected: &ExpectedRuns<'_>) -> Result<ExportOutput> {
    std::fs::create_dir_all(out).map_err(|source| Error::io(out, source))?;
    let by_thousands = expected.num_runs.is_none_or(|num_runs| num_runs > FLAT_RUNS);
    let encoder = Box::new(RunFiles { folder: out.to_path_buf(), by_thousands, format });
    Ok(ExportOutput { path: out.to_path_buf(), encoder, sink: Box::new(NumFiles(0)) })
}

impl RunEncoder for RunFiles {
    fn encode(&self, run: ExportedRun) -> Result<Encoded> {
        let (format, bytes) = run.file(self.format)?;
        let mut folder = self.folder.clone();
        if self.by_thousands {
            folder.push(format!("{:05}", run.id / 1000));
            std::fs::create_dir_all(&folder).map_err(|source| Error::io(&folder, source))?;
        }
        write_new(&folder.join(format!("run-{:08}.{}", run.id, format.extension())), &bytes)?;
        Ok(Encoded::Written)
    }
}

impl RunSink for NumFiles {
    fn push(&mut self, _: Encoded) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        Ok(self.0)
    }
}

/// Writes a new file atomically. Fails if the name is taken.
fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut staged = Staged::new(parent(path))?;
    staged.write_all(bytes).map_err(|source| Error::io(path, source))?;
    match staged.publish_unsynced(path)? {
        Published::New => Ok(()),
        Published::Taken => Err(Error::io(path, io::Error::from_raw_os_error(libc::EEXIST))),
    }
}
