//! A folder of run files → a pack.

use super::builder::Payload;
use super::{MAX_RUN_BYTES, PackBuilder, PackOptions, PackReport};
use crate::error::{Error, ErrorKind, Result};
use crate::format::ordered::in_order;
use crate::progress::{Progress, Unit, check};
use crate::publish::Staged;
use crate::workers;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Extensions of run files: what has one and is no run is reported.
const EXTENSIONS: [&str; 3] = ["a2run2", "bin", "a2t1"];
/// Bytes of files that are read at a time.
const WINDOW_BYTES: u64 = 16 << 20;
/// And files, however short they are.
const WINDOW_FILES: usize = 512;

/// A file of the folder.
struct Candidate {
    path: PathBuf,
    num_bytes: u64,
    /// Whether it calls itself a run.
    is_named_so: bool,
    /// Why it cannot even be looked at.
    error: Option<Error>,
}

enum Outcome {
    Run(Payload),
    Rejected(Error),
    Ignored,
}

/// Packs the run files of a folder and of the folders in it, in the order of their names, links followed.
///
/// What is a run is known by its content: a file that is none is reported if its extension is that of run files, and ignored
/// otherwise. A bad file costs no other. Neither the list of files nor what they hold is ever in memory as a whole.
///
/// # Errors
/// [`ErrorKind::Io`] when the folder cannot be read or the pack cannot be written, [`ErrorKind::Argument`] for a bad option,
/// [`ErrorKind::Cancelled`]; nothing is at `output` then that was not there before.
pub fn pack_folder(
    input: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &PackOptions,
    progress: &dyn Progress,
) -> Result<PackReport> {
    let input = input.as_ref();
    let pool = workers::pool("pack", options.workers)?;
    let metadata = std::fs::metadata(input).map_err(|source| Error::io(input, source))?;
    if !metadata.is_dir() {
        return Err(Error::io(input, io::ErrorKind::NotADirectory.into()));
    }
    let builder = PackBuilder::create(output, *options)?;
    // The index precedes the data, so there must be room for as many runs as there may be.
    let (mut num_files, mut num_bytes) = (0, 0);
    for candidate in candidates(input) {
        check(progress)?;
        let candidate = candidate?;
        num_files += u64::from(candidate.is_named_so);
        num_bytes += candidate.num_bytes;
    }
    progress.begin("packing", Unit::Bytes, num_bytes);
    let report = pack_candidates(input, builder.with_capacity(num_files), &pool, progress);
    progress.end();
    report
}

fn pack_candidates(
    input: &Path,
    mut builder: PackBuilder,
    pool: &rayon::ThreadPool,
    progress: &dyn Progress,
) -> Result<PackReport> {
    let compression = builder.options().compression;
    let mut found = candidates(input);
    let next_window = || {
        let mut window = Vec::new();
        let mut sum = 0;
        while sum < WINDOW_BYTES
            && window.len() < WINDOW_FILES
            && let Some(candidate) = found.next()
        {
            check(progress)?;
            let candidate = candidate?;
            // No more than this is read of any file.
            sum += candidate.num_bytes.min(MAX_RUN_BYTES);
            window.push(candidate);
        }
        Ok(window)
    };
    let work = |candidate: Candidate| {
        let Candidate { path, num_bytes, is_named_so, error } = candidate;
        let outcome = match error {
            Some(error) => Outcome::Rejected(error),
            None if !is_named_so && num_bytes > MAX_RUN_BYTES => Outcome::Ignored,
            None => match Payload::of_file(&path, compression) {
                Ok(payload) => Outcome::Run(payload),
                Err(error) if !is_named_so && is_about_content(&error) => Outcome::Ignored,
                Err(error) => Outcome::Rejected(error),
            },
        };
        (outcome, num_bytes)
    };
    let mut report = PackReport::default();
    let take = |(outcome, num_bytes)| {
        check(progress)?;
        match outcome {
            Outcome::Run(payload) => builder.add(payload)?,
            Outcome::Rejected(error) => report.errors.push(error),
            Outcome::Ignored => report.ignored += 1,
        }
        progress.advance(num_bytes);
        Ok(())
    };
    in_order(pool, next_window, work, take)?;
    let PackReport { packed, num_steps, num_bytes, .. } = builder.finish()?;
    Ok(PackReport { packed, rejected: report.errors.len() as u64, num_steps, num_bytes, ..report })
}

/// Whether an error says that these bytes are no run, rather than that they could not be had.
fn is_about_content(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Decode { .. } | ErrorKind::Checksum { .. })
}

/// The files of a folder and of those in it, in the order of their names. Fails when the folder itself cannot be read.
fn candidates(input: &Path) -> impl Iterator<Item = Result<Candidate>> {
    WalkDir::new(input).follow_links(true).sort_by_file_name().into_iter().filter_map(|entry| match entry {
        Ok(entry) => candidate(entry).map(Ok),
        Err(error) => {
            let (path, depth) = (error.path().unwrap_or(Path::new("")).to_path_buf(), error.depth());
            let source = error.into_io_error().unwrap_or_else(|| io::Error::other("a loop of links"));
            let error = Error::io(&path, source);
            Some(match depth {
                0 => Err(error),
                _ => Ok(Candidate { path, num_bytes: 0, is_named_so: true, error: Some(error) }),
            })
        }
    })
}

fn candidate(entry: DirEntry) -> Option<Candidate> {
    let (prefix, suffix) = Staged::AFFIXES;
    let name = entry.file_name().as_encoded_bytes();
    // A pack that is being written may lie in the very folder.
    let is_staged = name.starts_with(prefix.as_bytes()) && name.ends_with(suffix.as_bytes());
    if !entry.file_type().is_file() || is_staged {
        return None;
    }
    let extension = entry.path().extension().and_then(OsStr::to_str);
    let is_named_so = extension.is_some_and(|extension| EXTENSIONS.contains(&extension));
    // A file that vanishes now is reported when it cannot be read.
    let num_bytes = entry.metadata().map_or(0, |metadata| metadata.len());
    Some(Candidate { path: entry.into_path(), num_bytes, is_named_so, error: None })
}
