//! Decoding of the runs of an ingest, from run files and from files of many runs.

use super::discover::{Part, Source};
use super::known::Known;
use super::schema::{RunInfo, start_time_fits};
use crate::error::{Error, Result};
use crate::format::{
    ContainerKind, MAX_RUN_BYTES, PREFIX_LEN, RunFormat, SourceFacts, SourceFormat, SourceRun, decode_run, encode_run,
};
use crate::run::Run;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// The longest engine name. A2T1 cannot hold a longer one either.
const MAX_ENGINE_BYTES: usize = u16::MAX as usize;

/// The result of reading a source.
pub(super) enum Outcome<T> {
    Value(T),
    /// A file of many runs under the name of a run file.
    Container(ContainerKind),
}

/// A run, with the archive's facts about it.
pub(super) struct DecodedRun {
    pub(super) run: Run,
    pub(super) info: RunInfo,
}

/// Reads a run for an archive. Returns `None` if the run is known.
pub(super) fn decode_source(source: &mut Source, known: &Known) -> Result<Outcome<Option<Box<DecodedRun>>>> {
    let of_run = |run: Run, source: &Source| {
        let digest = digest(&run)?;
        let (Part::Of { runs, index }, false) = (&source.part, known.has(&digest)) else {
            return Ok(None);
        };
        if !start_time_fits(run.meta().start_unix_s) {
            let expected = "seconds since 1970 whose milliseconds are below 2^63";
            return Err(Error::decode(0, "start time", expected, run.meta().start_unix_s).in_run(*index as u64, 0));
        }
        finish(run, digest, runs.format, None, source).map(Some)
    };
    read(source, |bytes, source| decode_file(bytes, source, known), of_run)
}

/// A run, with the bytes of its run file if it has one and the caller asked for it.
pub(super) type RunAndFile = (Run, Option<(RunFormat, Vec<u8>)>);

/// Reads a run without an archive.
pub(super) fn decode_alone(source: &mut Source, with_file: bool) -> Result<Outcome<RunAndFile>> {
    let of_file = |bytes: Cow<'_, [u8]>, source: &Source| {
        let (run, format) = decode_run(&bytes).map_err(|error| in_source(error, source))?;
        Ok((run, with_file.then(|| (format, bytes.into_owned()))))
    };
    read(source, of_file, |run, _| Ok((run, None)))
}

/// Reads a source and converts it: `of_file` the bytes of a run file, `of_run` a run of a file of many.
fn read<T>(
    source: &mut Source,
    of_file: impl Fn(Cow<'_, [u8]>, &Source) -> Result<T>,
    of_run: impl Fn(Run, &Source) -> Result<T>,
) -> Result<Outcome<T>> {
    let path = source.path.clone();
    let read = match &mut source.part {
        Part::File => read_file(source, of_file),
        Part::Failed(error) => {
            Err(error.take().unwrap_or_else(|| std::io::Error::other("a file that cannot be read").into()))
        }
        Part::Of { runs, index } => {
            let (runs, index) = (Arc::clone(runs), *index);
            runs.source.read(index).and_then(|run| match run {
                SourceRun::File(bytes) => of_file(bytes, source).map(Outcome::Value),
                SourceRun::Run(run) => of_run(run, source).map(Outcome::Value),
            })
        }
    };
    read.map_err(|error| error.with_path(&path))
}

fn read_file<T>(source: &Source, of_file: impl Fn(Cow<'_, [u8]>, &Source) -> Result<T>) -> Result<Outcome<T>> {
    let mut bytes = Vec::with_capacity(source.num_bytes.min(MAX_RUN_BYTES) as usize + 1);
    File::open(&source.path).and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))?;
    let prefix = bytes.get(..PREFIX_LEN).unwrap_or(&bytes).to_vec();
    let value = if bytes.len() as u64 > MAX_RUN_BYTES {
        let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
        Err(Error::decode(MAX_RUN_BYTES, "length of the file", expected, "a longer file"))
    } else {
        of_file(Cow::Owned(bytes), source)
    };
    // A file under the name of a run file may hold many runs.
    value.map(Outcome::Value).or_else(|error| match ContainerKind::of(&prefix) {
        Some(kind) => Ok(Outcome::Container(kind)),
        None => Err(error),
    })
}

/// Adds the place of the run to an error, if the run is one of many in a file.
fn in_source(error: Error, source: &Source) -> Error {
    match &source.part {
        Part::Of { index, runs } => error.in_run(*index as u64, runs.source.offset(*index)),
        _ => error,
    }
}

/// Decodes the bytes of a run file.
fn decode_file(bytes: Cow<'_, [u8]>, source: &Source, known: &Known) -> Result<Option<Box<DecodedRun>>> {
    let hash = *blake3::hash(&bytes).as_bytes();
    if known.has(&hash) {
        return Ok(None);
    }
    let (run, format) = decode_run(&bytes).map_err(|error| in_source(error, source))?;
    let encoded = encode_run(&run, format)?;
    let same = encoded == *bytes;
    let digest = match format {
        RunFormat::A2run2 if same => hash,
        RunFormat::A2run2 => *blake3::hash(&encoded).as_bytes(),
        _ => digest(&run)?,
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
    source: &Source,
) -> Result<Box<DecodedRun>> {
    let engine_len = run.meta().engine.as_ref().map_or(0, String::len);
    if engine_len > MAX_ENGINE_BYTES {
        let expected = format!("at most {MAX_ENGINE_BYTES} bytes");
        let error = Error::decode(0, "engine", expected, format_args!("{engine_len} bytes"));
        return Err(in_source(error, source));
    }
    let (source_index, session, session_info, facts) = match &source.part {
        Part::Of { runs, index, .. } => {
            let facts = runs.source.facts(*index);
            (Some(*index as u64), runs.session.clone(), runs.session_info.clone(), facts)
        }
        _ => (None, None, None, SourceFacts::default()),
    };
    let info = RunInfo {
        digest,
        format,
        source: source.path.to_string_lossy().into_owned(),
        source_index,
        session,
        source_id: facts.id,
        game_steps: facts.num_steps,
        session_info,
        verified: run.verify().is_ok(),
        original,
    };
    Ok(Box::new(DecodedRun { run, info }))
}

/// Returns the digest by which two runs are equal.
///
/// For a whole game with normalised values, or without values, this is the hash of its canonical form, a2run2.
/// The format a2run2 cannot hold other runs, so their digest is a hash of all their parts.
pub(super) fn digest(run: &Run) -> Result<[u8; 32]> {
    let meta = run.meta();
    if run.missing().is_none() && !meta.raw_evs {
        return Ok(*blake3::hash(&encode_run(run, RunFormat::A2run2)?).as_bytes());
    }
    let engine = meta.engine.as_deref().unwrap_or_default();
    let mut bytes = Vec::with_capacity(128 + engine.len() + 30 * run.num_steps());
    for option in [
        run.final_board().map(|board| board.0),
        meta.seed,
        meta.engine.as_ref().map(|engine| engine.len() as u64),
        Some(u64::from(meta.raw_evs)),
        Some(meta.start_unix_s),
        Some(u64::from(meta.elapsed_s.to_bits())),
        Some(meta.max_score),
        Some(u64::from(meta.highest_tile)),
        Some(run.num_steps() as u64),
    ] {
        bytes.push(u8::from(option.is_some()));
        bytes.extend(option.unwrap_or_default().to_le_bytes());
    }
    bytes.extend(engine.as_bytes());
    for step in (0..run.num_steps()).map_while(|place| run.step(place)) {
        bytes.extend(step.index.to_le_bytes());
        bytes.extend(step.board.0.to_le_bytes());
        bytes.push(step.chosen.map_or(u8::MAX, |chosen| chosen as u8));
        bytes.push(step.branches.map_or(u8::MAX, |branches| branches.legal));
        let values = step.branches.map_or([0.0; 4], |branches| branches.values);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
    Ok(blake3::derive_key("a2store 2026 run that is not a whole game", &bytes))
}
