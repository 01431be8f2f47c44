//! Run files: one run of either format per file.

use crate::error::{Error, Result};
use crate::format::a2run2;
use crate::format::a2t1;
use crate::run::Run;
use crate::system::names::text_form;
use std::path::Path;

/// The number of bytes at the start of a file that detection reads.
pub(crate) const PREFIX_LEN: usize = 4096;

/// The largest run file, in bytes: a million steps with values. Readers reject a larger one.
pub(crate) const MAX_RUN_BYTES: u64 = 32 << 20;

/// A format with one run per file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunFormat {
    /// A2T1, version 1: boards, moves and a checksum.
    A2t1,
    /// a2run2, version 2: boards, moves and branches, without a checksum.
    A2run2,
}

impl RunFormat {
    /// Every format, oldest first.
    pub const ALL: [RunFormat; 2] = [RunFormat::A2t1, RunFormat::A2run2];

    /// Returns `"a2t1"` or `"a2run2"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            RunFormat::A2t1 => "a2t1",
            RunFormat::A2run2 => "a2run2",
        }
    }

    /// Returns the version of the format, 1 or 2. The index of a pack has this number for each run.
    #[must_use]
    pub const fn version(self) -> u16 {
        match self {
            RunFormat::A2t1 => 1,
            RunFormat::A2run2 => 2,
        }
    }

    /// Returns the file extension that the original tools use: `"bin"` or `"a2run2"`.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            RunFormat::A2t1 => "bin",
            RunFormat::A2run2 => "a2run2",
        }
    }
}

text_form!(RunFormat, "format", "a2t1 or a2run2");

/// Decodes one run of either format from the bytes of its file.
///
/// # Errors
/// [`ErrorKind::Decode`](crate::ErrorKind::Decode) and [`ErrorKind::Checksum`](crate::ErrorKind::Checksum), with
/// the byte offset. Errors about a step also name the step.
///
/// # Examples
/// ```
/// use a2store::{Board, Move, Run};
/// use a2store::format::RunFormat;
/// use a2store::run::RunMeta;
/// let mut steps = Run::builder(1);
/// steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
/// let run = steps.finish(RunMeta::default(), Board(0x2100_0000_0000_0000))?;
///
/// let bytes = a2store::format::encode_run(&run, RunFormat::A2t1)?;
/// assert_eq!(a2store::format::decode_run(&bytes)?, (run, RunFormat::A2t1));
/// # Ok::<(), a2store::Error>(())
/// ```
pub fn decode_run(bytes: &[u8]) -> Result<(Run, RunFormat)> {
    if !bytes.starts_with(a2t1::MAGIC) {
        let decoded = a2run2::decode(bytes).map_err(|error| content_error(bytes).unwrap_or(error));
        return decoded.map(|run| (run, RunFormat::A2run2));
    }
    // a2run2 has no magic, so a file of that format may begin with the magic of A2T1. Only the checksum tells
    // them apart.
    let decoded = a2t1::decode(bytes).map(|run| (run, RunFormat::A2t1));
    decoded.or_else(|error| a2run2::decode(bytes).map(|run| (run, RunFormat::A2run2)).map_err(|_| error))
}

/// Decodes a whole run file, which [`MAX_RUN_BYTES`] limits.
pub(in crate::format) fn decode_file(bytes: &[u8]) -> Result<(Run, RunFormat)> {
    if bytes.len() as u64 > MAX_RUN_BYTES {
        let expected = format!("at most {MAX_RUN_BYTES} bytes in a run's file");
        return Err(Error::decode(MAX_RUN_BYTES, "length of the file", expected, "a longer file"));
    }
    decode_run(bytes)
}

/// Returns an error that names the content, if the first bytes identify something other than a run. An error about a
/// field of an a2run2 would mislead here, because that format has no magic.
fn content_error(bytes: &[u8]) -> Option<Error> {
    /// A shorter prefix could be text by chance.
    const MIN_TEXT_LEN: usize = 16;
    let prefix = &bytes[..bytes.len().min(PREFIX_LEN)];
    let text = match std::str::from_utf8(prefix) {
        Ok(text) => text,
        // The prefix may end in the middle of a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&prefix[..error.valid_up_to()]).ok()?,
        Err(_) => "",
    };
    let is_text = text.len() >= MIN_TEXT_LEN && !text.contains(|c: char| c.is_control() && !"\t\n\r".contains(c));
    let found = if bytes.is_empty() {
        "an empty file"
    } else if is_text && text.trim_start().starts_with(['{', '[']) {
        "JSON"
    } else if is_text {
        "text"
    } else {
        return None;
    };
    Some(Error::decode(0, "content", "a run", found))
}

/// Encodes a run exactly as the original tools do.
///
/// A2T1 cannot hold branches and omits them. Raw values are normalized ([`Run::normalized`]).
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) if the run is not a whole game, or if the engine's name
/// exceeds 65,535 bytes in A2T1.
pub fn encode_run(run: &Run, format: RunFormat) -> Result<Vec<u8>> {
    match format {
        RunFormat::A2t1 => a2t1::encode(run),
        RunFormat::A2run2 => a2run2::encode(run),
    }
}

/// Reads and decodes a run file.
///
/// # Errors
/// The errors of [`decode_run`], and [`ErrorKind::Io`](crate::ErrorKind::Io). Each error names the file.
pub fn read_run(path: impl AsRef<Path>) -> Result<(Run, RunFormat)> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| Error::io(path, source))?;
    decode_run(&bytes).map_err(|error| error.with_path(path))
}

/// Returns whether a file with this prefix may be a run file.
pub(in crate::format) fn is_run(prefix: &[u8]) -> bool {
    prefix.starts_with(a2t1::MAGIC) || a2run2::begins(prefix)
}
