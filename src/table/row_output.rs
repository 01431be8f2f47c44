//! The destination of rows while a table is filled: memory or a file.

use super::categories::Recoding;
use crate::cancellation::CancellationToken;
use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The destination of appended rows.
pub(super) enum RowOutput<'a> {
    /// The front of reserved memory.
    Memory { bytes: &'a mut [u8], len: usize, limit: u64 },
    /// A file, from `start` on.
    File { file: &'a File, path: &'a Path, start: u64, len: u64, crc: u32 },
}

impl RowOutput<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            RowOutput::Memory { len, .. } => *len,
            RowOutput::File { len, .. } => *len as usize,
        }
    }

    pub(super) fn append(&mut self, rows: &[u8]) -> Result<()> {
        match self {
            RowOutput::Memory { bytes, len, limit } => {
                let end = *len + rows.len();
                let Some(slot) = bytes.get_mut(*len..end) else {
                    return Err(ErrorKind::MemoryLimit { needed: end as u64, limit: *limit }.into());
                };
                slot.copy_from_slice(rows);
                *len = end;
            }
            RowOutput::File { file, path, start, len, crc } => {
                file.write_all_at(rows, *start + *len).map_err(|error| Error::io(*path, error))?;
                *crc = crc32c::crc32c_append(*crc, rows);
                *len += rows.len() as u64;
            }
        }
        Ok(())
    }

    /// Returns the hash of rows in a file, which it reads in pieces.
    pub(super) fn hash_file(&self, cancel: &CancellationToken) -> Result<blake3::Hash> {
        let RowOutput::File { file, path, start, len, .. } = self else {
            return Err(Error::query("the table's rows are not in a file"));
        };
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; 8 << 20];
        let mut at = 0;
        while at < *len {
            cancel.check()?;
            let piece = (*len - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..piece];
            file.read_exact_at(piece, *start + at).map_err(|error| Error::io(*path, error))?;
            hasher.update(piece);
            at += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// Replaces the codes of rows in a file, piece by piece.
    pub(super) fn recode(&mut self, recoding: &Recoding, cancel: &CancellationToken) -> Result<()> {
        let RowOutput::File { file, path, start, len, crc } = self else {
            return Ok(());
        };
        if !recoding.is_needed() {
            return Ok(());
        }
        let io = |error| Error::io(*path, error);
        let mut buffer = vec![0; recoding.whole_rows(8 << 20)];
        *crc = 0;
        let mut at = 0;
        while at < *len {
            cancel.check()?;
            let piece = (*len - at).min(buffer.len() as u64) as usize;
            let piece = &mut buffer[..piece];
            file.read_exact_at(piece, *start + at).map_err(io)?;
            recoding.apply(piece);
            file.write_all_at(piece, *start + at).map_err(io)?;
            *crc = crc32c::crc32c_append(*crc, piece);
            at += piece.len() as u64;
        }
        Ok(())
    }
}
