//! The bytes that travel between processes: a header as JSON, and blocks of bytes.

use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::Cursor;

/// The level at which rows are compressed.
const ZSTD_LEVEL: i32 = 1;

/// Writes the length of the header, the header with the lengths of the blocks, and the blocks.
pub(super) fn encode(header: &impl Serialize, blocks: &[Vec<u8>]) -> Result<Vec<u8>> {
    let lengths: Vec<usize> = blocks.iter().map(Vec::len).collect();
    let header = serde_json::to_vec(&(header, lengths)).map_err(|error| Error::query(error.to_string()))?;
    let mut bytes = Vec::with_capacity(8 + header.len() + blocks.iter().map(Vec::len).sum::<usize>());
    bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&header);
    blocks.iter().for_each(|block| bytes.extend_from_slice(block));
    Ok(bytes)
}

/// Parses the result of [`encode`].
pub(super) fn decode<H: DeserializeOwned>(bytes: &[u8]) -> Result<(H, Vec<Vec<u8>>)> {
    let cut_short = || Error::query("a message of a task: expected more bytes, found its end");
    let (len, rest) = bytes.split_first_chunk().ok_or_else(cut_short)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
    let (header, mut rest) = rest.split_at_checked(len).ok_or_else(cut_short)?;
    let (header, lengths): (H, Vec<usize>) = serde_json::from_slice(header)
        .map_err(|error| Error::query(format!("a message of a task: expected a header, found {error}")))?;
    let mut blocks = Vec::with_capacity(lengths.len());
    for len in lengths {
        let (block, after) = rest.split_at_checked(len).ok_or_else(cut_short)?;
        blocks.push(block.to_vec());
        rest = after;
    }
    Ok((header, blocks))
}

/// Rows as a compressed Arrow IPC stream, written batch by batch.
pub(super) struct RowWriter(StreamWriter<zstd::Encoder<'static, Vec<u8>>>);

impl RowWriter {
    pub(super) fn new(schema: &arrow::datatypes::Schema) -> Result<RowWriter, ArrowError> {
        let compressed = zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
        Ok(RowWriter(StreamWriter::try_new(compressed, schema)?))
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(batch)
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, ArrowError> {
        Ok(self.0.into_inner()?.finish()?)
    }
}

/// Reads what a [`RowWriter`] wrote, batch by batch.
pub(super) fn read_rows(
    bytes: Vec<u8>,
) -> Result<impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send, ArrowError> {
    StreamReader::try_new(zstd::Decoder::new(Cursor::new(bytes))?, None)
}
