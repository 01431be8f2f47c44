//! Reading a run, from a run file or from a file of many runs.

use super::run_discovery::{DiscoveredRun, RunPlace};
use crate::error::{Error, Result};
use crate::format::detect::ContainerKind;
use crate::format::run_file::{MAX_RUN_BYTES, RunFormat, decode_run};
use crate::format::source::SourceRun;
use crate::run::Run;
use std::fs::File;
use std::io::Read;

/// A run, with the bytes of its run file if it has one and the caller asked for it.
pub(in crate::format) type RunAndFile = (Run, Option<(RunFormat, Vec<u8>)>);

/// Reads a run without an archive.
pub(in crate::format) fn decode_alone(source: &DiscoveredRun, with_file: bool) -> Result<RunAndFile> {
    let decoded = read_source(source).and_then(|run| match run {
        SourceRun::File(bytes) => {
            let (run, format) = decode_bytes(&bytes, source)?;
            Ok((run, with_file.then(|| (format, bytes.into_owned()))))
        }
        SourceRun::Run(run) => Ok((run, None)),
    });
    decoded.map_err(|error| error.with_path(&source.path))
}

/// Reads the bytes of a run file, or a run of a container.
pub(crate) fn read_source(source: &DiscoveredRun) -> Result<SourceRun<'_>> {
    if let RunPlace::Of { runs, index } = &source.place {
        return runs.source.read(*index);
    }
    let mut bytes = Vec::with_capacity(source.num_bytes.min(MAX_RUN_BYTES) as usize + 1);
    File::open(&source.path).and_then(|file| file.take(MAX_RUN_BYTES + 1).read_to_end(&mut bytes))?;
    Ok(SourceRun::File(bytes.into()))
}

/// Decodes the bytes of a run file.
pub(crate) fn decode_bytes(bytes: &[u8], source: &DiscoveredRun) -> Result<(Run, RunFormat)> {
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
pub(crate) fn in_source(error: Error, source: &DiscoveredRun) -> Error {
    match &source.place {
        RunPlace::Of { index, runs } => runs.source.locate(*index, error),
        _ => error,
    }
}
