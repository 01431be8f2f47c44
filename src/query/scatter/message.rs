//! The bytes that travel between processes: blocks of bytes, and then a header as JSON.

use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Cursor;

/// The level at which rows are compressed.
const ZSTD_LEVEL: i32 = 1;

/// A block of rows: a compressed Arrow IPC stream, written batch by batch to the bytes of the message.
pub(super) type RowWriter = StreamWriter<zstd::Encoder<'static, Vec<u8>>>;

/// The blocks of a message that is being made, one after the other.
#[derive(Default)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Blocks {
    /// Begins a block of rows, which [`end`](Blocks::end) ends.
    pub(super) fn begin(&mut self, schema: &Schema) -> Result<RowWriter, ArrowError> {
        StreamWriter::try_new(zstd::Encoder::new(std::mem::take(&mut self.bytes), ZSTD_LEVEL)?, schema)
    }

    pub(super) fn end(&mut self, rows: RowWriter) -> Result<(), ArrowError> {
        self.bytes = rows.into_inner()?.finish()?;
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Adds the header with the ends of the blocks, and the length of the header.
    pub(super) fn with_header(mut self, header: &impl Serialize) -> Result<Vec<u8>> {
        let header = serde_json::to_vec(&(header, self.ends)).map_err(|error| Error::query(error.to_string()))?;
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        Ok(self.bytes)
    }
}

/// Returns the header of a message, and its blocks.
pub(super) fn parse<H: DeserializeOwned>(bytes: &[u8]) -> Result<(H, Vec<&[u8]>)> {
    let cut_short = || Error::query("a message of a task: expected more bytes, found its end");
    let (rest, len) = bytes.split_last_chunk().ok_or_else(cut_short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
    let start = rest.len().checked_sub(len).ok_or_else(cut_short)?;
    let (header, ends): (H, Vec<usize>) = serde_json::from_slice(&rest[start..])
        .map_err(|error| Error::query(format!("a message of a task: expected a header, found {error}")))?;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let blocks = starts.zip(&ends).map(|(from, &to)| rest[..start].get(from..to).ok_or_else(cut_short));
    Ok((header, blocks.collect::<Result<_>>()?))
}

/// Reads a block of rows, batch by batch.
pub(super) fn read_rows(
    block: Vec<u8>,
) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send, ArrowError> {
    StreamReader::try_new(zstd::Decoder::new(Cursor::new(block))?, None)
}
