//! A line reader for text that may be gzipped. Memory holds one line.

use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

/// The maximum length of a line in bytes, with its newline.
pub(super) const MAX_LINE: usize = 64 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A reader of the non-blank lines of a text.
pub(super) struct LineReader<'a> {
    text: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    /// The range of the line in the text.
    start: u64,
    end: u64,
}

impl<'a> LineReader<'a> {
    pub(super) fn new(bytes: impl Read + 'a) -> Result<LineReader<'a>> {
        Ok(LineReader { text: open(bytes)?, line: Vec::new(), start: 0, end: 0 })
    }

    /// Reads the next line that is not blank. Returns `false` at the end of the text. `step` is for errors.
    pub(super) fn advance(&mut self, step: u64) -> Result<bool> {
        let before = self.end;
        loop {
            self.line.clear();
            self.start = self.end;
            // One extra byte detects a line that is too long.
            let read = self.text.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut self.line);
            self.end += self.line.len() as u64;
            read.map_err(|source| read_error(self.end, source).located(|location| location.step = Some(step)))?;
            if self.line.len() > MAX_LINE {
                return Err(self.error(0, step, "line", format!("at most {MAX_LINE} bytes"), "a longer line"));
            }
            if self.line.is_empty() {
                return Ok(false);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
            // A gzip stream can expand to endless blank lines.
            if self.end - before > MAX_LINE as u64 {
                return Err(self.error(0, step, "blank lines", format!("at most {MAX_LINE} bytes of them"), "more"));
            }
        }
    }

    /// Returns the line without trailing whitespace.
    pub(super) fn line(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// Returns an error about the byte at offset `at` of the line.
    #[cold]
    pub(super) fn error(
        &self,
        at: usize,
        step: u64,
        what: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Error {
        let error = Error::decode(self.start + at as u64, what, expected, found);
        error.located(|location| location.step = Some(step))
    }
}

/// Reads a whole text of at most [`MAX_LINE`] bytes.
pub(super) fn read_all(bytes: impl Read) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = open(bytes)?.take(MAX_LINE as u64 + 1).read_to_end(&mut text);
    read.map_err(|source| read_error(text.len() as u64, source))?;
    if text.len() > MAX_LINE {
        return Err(Error::decode(0, "meta file", format!("at most {MAX_LINE} bytes of text"), "a longer text"));
    }
    Ok(text)
}

/// Decompresses a prefix of a file, if it is gzipped. Uses at most `most` bytes of the prefix and of the text.
pub(super) fn inflate_prefix(prefix: &[u8], most: usize) -> Vec<u8> {
    let prefix = prefix.get(..most).unwrap_or(prefix);
    if !prefix.starts_with(&GZIP) {
        return prefix.to_vec();
    }
    let mut text = Vec::new();
    // A prefix ends before its stream does. The text up to that point is enough.
    let _ = MultiGzDecoder::new(prefix).take(most as u64).read_to_end(&mut text);
    text
}

fn open<'a>(bytes: impl Read + 'a) -> Result<Box<dyn BufRead + 'a>> {
    let mut bytes = BufReader::with_capacity(MAX_LINE, bytes);
    // The first read of a file fills the buffer or reaches the end of the file.
    if bytes.fill_buf()?.starts_with(&GZIP) {
        Ok(Box::new(BufReader::with_capacity(MAX_LINE, MultiGzDecoder::new(bytes))))
    } else {
        Ok(Box::new(bytes))
    }
}

/// Returns the error of reading a text up to an offset. It may be about the gzip data.
fn read_error(offset: u64, source: io::Error) -> Error {
    match source.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
            Error::decode(offset, "gzip stream", "a complete stream with its checksum", source)
        }
        _ => source.into(),
    }
}
