//! Decoding of the runs of an ingest, from run files and from files of many runs.

use super::known_runs::KnownRuns;
use super::run_digest::run_digest;
use crate::archive::parquet::run_rows::{RunRow, start_time_fits};
use crate::error::{Error, Result};
use crate::format::inputs::{DiscoveredRun, RunPlace, decode_bytes, in_source, read_source};
use crate::format::{RunFormat, SourceFacts, SourceFormat, SourceRun, encode_run};
use crate::run::Run;
use std::borrow::Cow;

/// The longest engine name. A2T1 cannot hold a longer one either.
const MAX_ENGINE_BYTES: usize = u16::MAX as usize;

/// A run to write, and its row of `runs`.
pub(in crate::archive) struct IngestedRun {
    pub(in crate::archive) run: Run,
    pub(in crate::archive) row: RunRow,
}

/// Reads a run for an archive. Returns `None` if the run is known.
pub(in crate::archive) fn decode_source(source: &DiscoveredRun, known: &KnownRuns) -> Result<Option<Box<IngestedRun>>> {
    let decoded = read_source(source).and_then(|run| match run {
        SourceRun::File(bytes) => decode_file(bytes, source, known),
        SourceRun::Run(run) => {
            let run = if start_time_fits(run.meta().start_unix_s) { run } else { run.without_start_time() };
            let digest = run_digest(&run)?;
            let (RunPlace::Of { runs, .. }, false) = (&source.place, known.has(&digest)) else {
                return Ok(None);
            };
            finish(run, digest, runs.format, None, source).map(Some)
        }
    });
    decoded.map_err(|error| error.with_path(&source.path))
}

/// Decodes a run file for an archive.
fn decode_file(bytes: Cow<'_, [u8]>, source: &DiscoveredRun, known: &KnownRuns) -> Result<Option<Box<IngestedRun>>> {
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
) -> Result<Box<IngestedRun>> {
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
    let row = RunRow {
        run_id: 0,
        digest,
        game: run.game(),
        format: format.name().to_owned(),
        source: source.path.to_string_lossy().into_owned(),
        source_index,
        session,
        source_id: facts.id,
        game_steps: facts.num_steps,
        meta: run.meta().clone(),
        num_steps: run.num_steps() as u32,
        final_board: run.final_board(),
        verified: run.verify().is_ok(),
        original,
    };
    Ok(Box::new(IngestedRun { run, row }))
}
