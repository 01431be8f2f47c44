//! Decoding of the runs of an ingest, from run files and from files of many runs.

use super::known_runs::KnownRuns;
use super::run_digest::run_digest;
use super::run_discovery::{DiscoveredRun, RunPlace};
use super::runs_batch::{RunInfo, start_time_fits};
use crate::error::{Error, Result};
use crate::format::{
    ContainerKind, MAX_RUN_BYTES, RunFormat, SourceFacts, SourceFormat, SourceRun, decode_run, encode_run,
};
use crate::run::{Run, RunMeta};
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

/// The longest engine name. A2T1 cannot hold a longer one either.
const MAX_ENGINE_BYTES: usize = u16::MAX as usize;

/// A run, with the archive's facts about it.
pub(super) struct DecodedRun {
    pub(super) run: Run,
    pub(super) info: RunInfo,
}

/// Reads a run for an archive. Returns `None` if the run is known.
pub(super) fn decode_source(source: &DiscoveredRun, known: &KnownRuns) -> Result<Option<Box<DecodedRun>>> {
    let decoded = read(source).and_then(|run| match run {
        SourceRun::File(bytes) => decode_file(bytes, source, known),
        SourceRun::Run(run) => {
            let run = if start_time_fits(run.meta().start_unix_s) { run } else { without_start(&run)? };
            let digest = run_digest(&run)?;
            let (RunPlace::Of { runs, .. }, false) = (&source.place, known.has(&digest)) else {
                return Ok(None);
            };
            finish(run, digest, runs.format, None, source).map(Some)
        }
    });
    decoded.map_err(|error| error.with_path(&source.path))
}

/// Returns the run with an unknown start time, because the archive cannot hold the run's start time.
fn without_start(run: &Run) -> Result<Run> {
    let mut steps = Run::builder(run.num_steps());
    (0..run.num_steps()).filter_map(|place| run.step(place)).try_for_each(|step| steps.push_step(step))?;
    let copy = steps.finish(RunMeta { start_unix_s: 0, ..run.meta().clone() }, run.final_board())?;
    Ok(copy.with_details(run.details().cloned().unwrap_or_default()))
}

/// A run, with the bytes of its run file if it has one and the caller asked for it.
pub(super) type RunAndFile = (Run, Option<(RunFormat, Vec<u8>)>);

/// Reads a run without an archive.
pub(super) fn decode_alone(source: &DiscoveredRun, with_file: bool) -> Result<RunAndFile> {
    let decoded = read(source).and_then(|run| match run {
        SourceRun::File(bytes) => {
            let (run, format) = decode_bytes(&bytes, source)?;
            Ok((run, with_file.then(|| (format, bytes.into_owned()))))
        }
        SourceRun::Run(run) => Ok((run, None)),
    });
    decoded.map_err(|error| error.with_path(&source.path))
}

/// Reads the bytes of a run file, or a run of a container.
fn read(source: &DiscoveredRun) -> Result<SourceRun<'_>> {
    if let RunPlace::Of { runs, index } = &source.place {
        return runs.source.read(*index);
    }
    let mut bytes = Vec::with_capacity(source.num_bytes.min(MAX_RUN_BYTES) as usize + 1);
    File::open(&source.path).and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))?;
    Ok(SourceRun::File(bytes.into()))
}

/// Decodes the bytes of a run file.
fn decode_bytes(bytes: &[u8], source: &DiscoveredRun) -> Result<(Run, RunFormat)> {
    let is_too_long = matches!(source.place, RunPlace::File) && bytes.len() as u64 > MAX_RUN_BYTES;
    let decoded = if is_too_long {
        let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
        Err(Error::decode(MAX_RUN_BYTES, "length of the file", expected, "a longer file"))
    } else {
        decode_run(bytes)
    };
    decoded.map_err(|error| match &source.place {
        RunPlace::File if ContainerKind::of(bytes).is_some() => {
            let expected = "one run, as the extension says";
            Error::decode(0, "content", expected, "a file of many runs; rename it")
        }
        _ => in_source(error, source),
    })
}

/// Adds the place of the run to an error, if the run is in a container.
fn in_source(error: Error, source: &DiscoveredRun) -> Error {
    match &source.place {
        RunPlace::Of { index, runs } => runs.source.locate(*index, error),
        _ => error,
    }
}

/// Decodes a run file for an archive.
fn decode_file(bytes: Cow<'_, [u8]>, source: &DiscoveredRun, known: &KnownRuns) -> Result<Option<Box<DecodedRun>>> {
    let hash = *blake3::hash(&bytes).as_bytes();
    if known.has(&hash) {
        return Ok(None);
    }
    let (run, format) = decode_bytes(&bytes, source)?;
    let encoded = encode_run(&run, format)?;
    let same = encoded == *bytes;
    let digest = match format {
        RunFormat::A2run2 if same => hash,
        RunFormat::A2run2 => *blake3::hash(&encoded).as_bytes(),
        _ => run_digest(&run)?,
    };
    // The original file is kept if the columns cannot reproduce it byte by byte.
    let restorable = same && start_time_fits(run.meta().start_unix_s);
    let original = (!restorable).then(|| bytes.into_owned());
    finish(run, digest, SourceFormat::File(format), original, source).map(Some)
}

fn finish(
    run: Run,
    digest: [u8; 32],
    format: SourceFormat,
    original: Option<Vec<u8>>,
    source: &DiscoveredRun,
) -> Result<Box<DecodedRun>> {
    let engine_len = run.meta().engine.as_ref().map_or(0, String::len);
    if engine_len > MAX_ENGINE_BYTES {
        let expected = format!("at most {MAX_ENGINE_BYTES} bytes");
        let error = Error::decode(0, "engine", expected, format_args!("{engine_len} bytes"));
        return Err(in_source(error, source));
    }
    if run.meta().max_score > i64::MAX as u64 {
        let error = Error::decode(0, "max_score", format!("at most {}", i64::MAX), run.meta().max_score);
        return Err(in_source(error, source));
    }
    let (source_index, session, facts) = match &source.place {
        RunPlace::Of { runs, index, .. } => {
            let facts = runs.source.facts(*index);
            (Some(*index as u64), runs.session.clone(), facts)
        }
        _ => (None, None, SourceFacts::default()),
    };
    let info = RunInfo {
        digest,
        game: run.game(),
        format,
        source: source.path.to_string_lossy().into_owned(),
        source_index,
        session,
        source_id: facts.id,
        game_steps: facts.num_steps,
        verified: run.verify().is_ok(),
        original,
    };
    Ok(Box::new(DecodedRun { run, info }))
}
