//! Reading bytes with an offset. The decoders of binary formats use [`ByteReader`].

use crate::error::{Error, Result};
use std::fmt;

/// A cursor over untrusted bytes. Each read takes the name of the field, for the error message.
pub(in crate::format) struct ByteReader<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// The step that errors name.
    pub(in crate::format) step: Option<u64>,
}

impl<'a> ByteReader<'a> {
    pub(in crate::format) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, step: None }
    }

    pub(in crate::format) fn offset(&self) -> usize {
        self.offset
    }

    pub(in crate::format) fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// Returns an error about the bytes that start `back` bytes before the cursor.
    #[cold]
    pub(in crate::format) fn error(
        &self,
        back: usize,
        what: &'static str,
        expected: impl Into<String>,
        found: impl fmt::Display,
    ) -> Error {
        let error = Error::decode((self.offset - back) as u64, what, expected, found);
        error.located(|location| location.step = self.step)
    }

    /// Returns the next `N` bytes without moving the cursor, or `None` if fewer remain.
    #[inline]
    pub(in crate::format) fn window<const N: usize>(&self) -> Option<&'a [u8; N]> {
        self.bytes[self.offset..].first_chunk()
    }

    /// Moves the cursor forward, at most to the end.
    #[inline]
    pub(in crate::format) fn skip(&mut self, len: usize) {
        self.offset = (self.offset + len).min(self.bytes.len());
    }

    pub(in crate::format) fn take(&mut self, len: usize, what: &'static str) -> Result<&'a [u8]> {
        let taken = self.bytes[self.offset..].get(..len).ok_or_else(|| self.too_short(len, what))?;
        self.offset += len;
        Ok(taken)
    }

    #[inline]
    pub(in crate::format) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let array = *self.window::<N>().ok_or_else(|| self.too_short(N, what))?;
        self.offset += N;
        Ok(array)
    }

    #[cold]
    fn too_short(&self, len: usize, what: &'static str) -> Error {
        self.error(0, what, format!("{len} bytes"), format_args!("{} before the end", self.remaining()))
    }

    #[inline]
    pub(in crate::format) fn u8(&mut self, what: &'static str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(in crate::format) fn u16(&mut self, what: &'static str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(in crate::format) fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(in crate::format) fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    #[inline]
    pub(in crate::format) fn f32(&mut self, what: &'static str) -> Result<f32> {
        self.array(what).map(f32::from_le_bytes)
    }

    pub(in crate::format) fn utf8(&mut self, len: usize, what: &'static str) -> Result<&'a str> {
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes)
            .map_err(|error| self.error(len - error.valid_up_to(), what, "UTF-8", "an invalid byte"))
    }

    #[inline]
    pub(in crate::format) fn varint_u64(&mut self, what: &'static str) -> Result<u64> {
        self.varint::<64>(what)
    }

    #[inline]
    pub(in crate::format) fn varint_u32(&mut self, what: &'static str) -> Result<u32> {
        self.varint::<32>(what).map(|value| value as u32)
    }

    /// Reads an unsigned LEB128 number of at most `BITS` bits.
    #[inline]
    fn varint<const BITS: usize>(&mut self, what: &'static str) -> Result<u64> {
        let max_len = BITS.div_ceil(7);
        let rest = &self.bytes[self.offset..];
        let mut value = 0;
        for (i, &byte) in rest.iter().take(max_len).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                if i + 1 == max_len && u32::from(byte) >> (BITS % 7) != 0 {
                    break;
                }
                self.offset += i + 1;
                return Ok(value);
            }
        }
        if rest.len() < max_len && rest.iter().all(|&byte| byte >= 0x80) {
            return Err(self.error(0, what, "a varint", format_args!("{} bytes before the end", rest.len())));
        }
        Err(self.error(0, what, format!("a varint of at most {BITS} bits"), "a longer varint"))
    }
}

/// Appends an unsigned LEB128 number.
#[inline]
pub(in crate::format) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns [`ErrorKind::Checksum`](crate::ErrorKind::Checksum) unless the bytes, which start at an offset, have the
/// expected CRC32C.
pub(in crate::format) fn check_crc(offset: u64, what: &'static str, expected: u32, bytes: &[u8]) -> Result<()> {
    let found = crc32c::crc32c(bytes);
    if found == expected { Ok(()) } else { Err(Error::checksum(offset, what, expected, found)) }
}
