//! Access of the Parquet reader to a file: concurrent reads, and panics as errors.

use crate::system::process::catch_panic;
use arrow::error::ArrowError;
use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A file that several threads can read at once, each at its own offset. Clones of a `File` would share one
/// offset.
#[derive(Clone)]
pub(in crate::archive) struct SharedFile(pub(super) Arc<File>);

/// A reader that begins at an offset.
pub(in crate::archive) struct ReadAt {
    file: SharedFile,
    offset: u64,
}

impl Read for ReadAt {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.file.0.read_at(bytes, self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<ReadAt>;

    fn get_read(&self, offset: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(ReadAt { file: self.clone(), offset }))
    }

    fn get_bytes(&self, offset: u64, len: usize) -> parquet::errors::Result<Bytes> {
        let available = self.len().saturating_sub(offset);
        if len as u64 > available {
            return Err(ParquetError::EOF(format!("expected {len} bytes at {offset}, found {available}")));
        }
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, offset)?;
        Ok(bytes.into())
    }
}

/// Converts a panic of the Parquet reader on damaged data into an error.
pub(in crate::archive) fn guarded<T>(work: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    catch_panic(work).unwrap_or_else(|| Err(ArrowError::ParquetError("the reader panicked".into())))
}
