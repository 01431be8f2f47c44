//! A file of an ingest → a run that is ready to be written.

use super::digests::Digests;
use super::discover::Source;
use super::schema::{RunInfo, start_time_fits};
use crate::error::{Error, ErrorKind, Location, Result};
use crate::format::{RunFormat, decode_run, encode_run};
use crate::run::Run;
use std::fs::File;
use std::io::Read;

/// A larger file is not a run: this is a million steps with values.
const MAX_RUN_BYTES: u64 = 32 << 20;
/// A longer name is not an engine's; A2T1 has no room for one either.
const MAX_ENGINE_BYTES: usize = u16::MAX as usize;

/// A run and what the archive says of it beside its content.
pub(super) struct Decoded {
    pub(super) run: Run,
    pub(super) info: RunInfo,
}

/// Reads a file. `None`: its very bytes are those of a run that is known, so it need not be decoded.
pub(super) fn decode_file(source: &Source, known: &Digests) -> Result<Option<Decoded>> {
    let path = &source.path;
    let mut bytes = Vec::with_capacity(source.num_bytes.min(MAX_RUN_BYTES) as usize + 1);
    File::open(path)
        .and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| Error::io(path, source))?;
    if bytes.len() as u64 > MAX_RUN_BYTES {
        let location = Location { path: Some(path.clone()), ..Location::default() };
        let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
        let found = "a longer file".into();
        return Err(ErrorKind::Decode { location, what: "length of the file", expected, found }.into());
    }
    let hash = *blake3::hash(&bytes).as_bytes();
    if known.contains(&hash) {
        return Ok(None);
    }
    let (run, format) = decode_run(&bytes).map_err(|error| error.with_path(path))?;
    let engine_len = run.meta().engine.as_ref().map_or(0, String::len);
    if engine_len > MAX_ENGINE_BYTES {
        let location = Location { path: Some(path.clone()), ..Location::default() };
        let (expected, found) = (format!("at most {MAX_ENGINE_BYTES} bytes"), format!("{engine_len} bytes"));
        return Err(ErrorKind::Decode { location, what: "engine", expected, found }.into());
    }
    let encoded = encode_run(&run, format)?;
    let same = encoded == bytes;
    let digest = match format {
        RunFormat::A2run2 if same => hash,
        RunFormat::A2run2 => *blake3::hash(&encoded).as_bytes(),
        _ => digest(&run)?,
    };
    // Whatever the columns cannot give back byte by byte is kept as it came.
    let restorable = same && start_time_fits(run.meta().start_unix_s);
    let info = RunInfo {
        digest,
        format,
        source: path.to_string_lossy().into_owned(),
        verified: run.verify().is_ok(),
        original: (!restorable).then_some(bytes),
    };
    Ok(Some(Decoded { run, info }))
}

/// What makes two runs one: the hash of their canonical form.
pub(super) fn digest(run: &Run) -> Result<[u8; 32]> {
    Ok(*blake3::hash(&encode_run(run, RunFormat::A2run2)?).as_bytes())
}
