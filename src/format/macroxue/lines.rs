//! Lines of a text that may be gzipped, with their offsets in it, one in memory at a time.

use crate::error::{Error, ErrorKind, Location, Result};
use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// The longest line, with its end.
pub(super) const MAX_LINE: usize = 64 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The non-blank lines of a text, read one by one.
pub(super) struct Lines<'a> {
    text: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    /// Where the line begins and ends in the text.
    start: u64,
    end: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(bytes: impl Read + 'a) -> Result<Lines<'a>> {
        Ok(Lines { text: open(bytes)?, line: Vec::new(), start: 0, end: 0 })
    }

    /// Goes to the next line that is not blank; `false` at the end, which is then where errors are. `step` is for errors.
    pub(super) fn advance(&mut self, step: u64) -> Result<bool> {
        let before = self.end;
        loop {
            self.line.clear();
            self.start = self.end;
            // Of a longer line no more is read than shows that it is.
            let read = self.text.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line);
            self.end += self.line.len() as u64;
            if let Err(source) = read {
                return Err(match is_of_gzip(&source) {
                    true => self.error(self.line.len(), step, "gzip stream", "a whole one with its checksum", source),
                    false => source.into(),
                });
            }
            if self.line.len() > MAX_LINE {
                return Err(self.error(0, step, "line", format!("at most {MAX_LINE} bytes"), "a longer one"));
            }
            if self.line.is_empty() {
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
            // A gzip stream can hold blank lines without end.
            if self.end - before > MAX_LINE as u64 {
                return Err(self.error(0, step, "blank lines", format!("at most {MAX_LINE} bytes of them"), "more"));
            }
        }
    }

    /// The line without its end.
    pub(super) fn line(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// An error about a byte of the line.
    #[cold]
    pub(super) fn error(
        &self,
        at: usize,
        step: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Error {
        let offset = Some(self.start + at as u64);
        let location = Location { offset, step: Some(step), ..Location::default() };
        ErrorKind::Decode { location, what, expected: expected.into(), found: found.to_string() }.into()
    }
}

/// The whole of a text of at most [`MAX_LINE`] bytes.
pub(super) fn read_all(bytes: impl Read) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = open(bytes)?.take(MAX_LINE as u64 + 1).read_to_end(&mut text);
    if let Err(source) = read {
        return Err(match is_of_gzip(&source) {
            true => Error::decode(text.len() as u64, "gzip stream", "a whole one with its checksum", source),
            false => source.into(),
        });
    }
    if text.len() > MAX_LINE {
        return Err(Error::decode(0, "meta file", format!("at most {MAX_LINE} bytes of text"), "a longer one"));
    }
    Ok(text)
}

/// The text that a prefix of a file begins with; of both at most so many bytes count.
pub(super) fn inflate_prefix(prefix: &[u8], most: usize) -> Vec<u8> {
    let prefix = prefix.get(..most).unwrap_or(prefix);
    if !prefix.starts_with(&GZIP) {
        return prefix.to_vec();
    }
    let mut text = Vec::new();
    // A prefix ends before its stream does: what came out until then counts.
    let _ = MultiGzDecoder::new(prefix).take(most as u64).read_to_end(&mut text);
    text
}

fn open<'a>(bytes: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>> {
    let mut bytes = BufReader::with_capacity(MAX_LINE, bytes);
    // A file gives all that the buffer holds, or all that there is.
    if bytes.fill_buf()?.starts_with(&GZIP) {
        Ok(Box::new(BufReader::with_capacity(MAX_LINE, MultiGzDecoder::new(bytes))))
    } else {
        Ok(Box::new(bytes))
    }
}

/// Whether an error is about what was read rather than about reading.
fn is_of_gzip(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
