//! Parsing and checking of a pack's header, index and footer.

use super::Compression;
use crate::error::{Error, Result};
use crate::format::files::bytes::{ByteReader, check_crc};
use crate::format::run_file::RunFormat;
use std::fmt;

pub(in crate::format) const MAGIC: [u8; 8] = *b"A2PACK\0\0";
const VERSION: u32 = 1;
/// The version of a pack with compressed runs. Other tools reject it. Otherwise they would treat the frames as run
/// files.
const COMPRESSED_VERSION: u32 = 2;
pub(super) const HEADER_LEN: u64 = 28;
pub(super) const ENTRY_LEN: u64 = 32;
pub(super) const FOOTER_LEN: u64 = 32;
/// The bytes at the start of header and footer that their checksums cover.
const COVERED_LEN: usize = 24;

/// An entry of the index, in the layout of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct IndexEntry {
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) crc32c: u32,
    /// 4 reserved bytes and 8 bytes of padding.
    pub(super) unused: [u8; 12],
}

impl IndexEntry {
    pub(super) fn from_bytes(bytes: &[u8; ENTRY_LEN as usize]) -> IndexEntry {
        bytemuck::pod_read_unaligned(bytes)
    }

    /// Returns whether the run of this entry was removed.
    pub(super) fn is_tombstone(&self) -> bool {
        self.length == 0
    }

    pub(super) fn format(&self) -> Option<RunFormat> {
        RunFormat::ALL.into_iter().find(|format| format.version() == self.kind)
    }

    pub(super) fn compression(&self) -> Option<Compression> {
        Compression::ALL.get(usize::from(self.flags)).copied()
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// The checked contents of header and footer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackLayout {
    pub(super) num_runs: usize,
    /// The end offset of the last payload; may be 0 if there are no runs.
    pub(super) data_end: u64,
    /// CRC32C from the start of the first payload to the end of the last one; 0 = omitted.
    pub(super) data_crc: u32,
    /// The offset of the stats block; 0 = none.
    pub(super) stats_offset: u64,
}

impl PackLayout {
    /// Checks header, index and footer. Does not check payloads and the stats block.
    pub(super) fn read(bytes: &[u8]) -> Result<PackLayout> {
        let mut reader = ByteReader::new(bytes);
        let magic = reader.array::<8>("magic")?;
        if magic != MAGIC {
            let expected = MAGIC.escape_ascii().to_string();
            return Err(reader.error(8, "magic", expected, magic.escape_ascii()));
        }
        let version = reader.u32("version")?;
        if ![VERSION, COMPRESSED_VERSION].contains(&version) {
            return Err(reader.error(4, "version", format!("{VERSION} or {COMPRESSED_VERSION}"), version));
        }
        // No flag is defined yet.
        let _flags = reader.u32("flags")?;
        let num_runs = reader.u64("number of runs")?;
        let stored = reader.u32("checksum of the header")?;
        check_crc(0, "the header", stored, bytes.get(..COVERED_LEN).unwrap_or_default())?;

        let file_len = bytes.len() as u64;
        let footer_offset = num_runs
            .checked_mul(ENTRY_LEN)
            .and_then(|len| len.checked_add(HEADER_LEN))
            .and_then(|index_end| file_len.checked_sub(FOOTER_LEN).filter(|&footer| footer >= index_end));
        let Some(footer_offset) = footer_offset else {
            let most = file_len.saturating_sub(HEADER_LEN + FOOTER_LEN) / ENTRY_LEN;
            return Err(Error::decode(16, "number of runs", format!("at most {most} in {file_len} bytes"), num_runs));
        };
        let index_end = HEADER_LEN + num_runs * ENTRY_LEN;

        reader.skip((footer_offset - HEADER_LEN) as usize);
        let data_end = reader.u64("end of the data")?;
        let index_crc = reader.u32("checksum of the index")?;
        let data_crc = reader.u32("checksum of the data")?;
        let stats_offset = reader.u64("offset of the stats")?;
        let stored = reader.u32("checksum of the footer")?;
        let covered = bytes.get(footer_offset as usize..).and_then(|footer| footer.get(..COVERED_LEN));
        check_crc(footer_offset, "the footer", stored, covered.unwrap_or_default())?;
        let is_empty = num_runs == 0 && data_end == 0;
        if !is_empty && !(index_end..=footer_offset).contains(&data_end) {
            let expected = format!("{index_end}..={footer_offset}");
            return Err(Error::decode(footer_offset, "end of the data", expected, data_end));
        }
        // The block begins with a 4-byte length.
        let most = footer_offset.saturating_sub(4);
        let least = data_end.max(index_end);
        if stats_offset != 0 && !(least..=most).contains(&stats_offset) {
            let expected = format!("0 or {least}..={most}");
            return Err(Error::decode(footer_offset + 16, "offset of the stats", expected, stats_offset));
        }

        let index = bytes.get(HEADER_LEN as usize..index_end as usize).unwrap_or_default();
        check_crc(HEADER_LEN, "the index", index_crc, index)?;
        let mut free = index_end;
        for (run, entry) in (0..).zip(index.as_chunks().0) {
            let entry = IndexEntry::from_bytes(entry);
            if entry.is_tombstone() {
                continue;
            }
            let wrong = |at: u64, what, expected: String, found: &dyn fmt::Display| {
                let error = Error::decode(HEADER_LEN + run * ENTRY_LEN + at, what, expected, found);
                Err(error.located(|location| location.run = Some(run)))
            };
            if entry.offset < free || entry.offset > data_end {
                return wrong(0, "offset of the entry", format!("{free}..={data_end}"), &entry.offset);
            }
            if entry.end() > data_end {
                let expected = format!("at most {} before the end of the data", data_end - entry.offset);
                return wrong(8, "length of the entry", expected, &entry.length);
            }
            free = entry.end();
        }
        // This fits into a usize, because the index lies within `bytes`.
        let num_runs = index.len() / ENTRY_LEN as usize;
        Ok(PackLayout { num_runs, data_end, data_crc, stats_offset })
    }
}

pub(super) fn header(entries: &[IndexEntry]) -> Vec<u8> {
    let is_compressed = entries.iter().any(|entry| entry.flags != 0);
    let version = if is_compressed { COMPRESSED_VERSION } else { VERSION };
    let count = entries.len() as u64;
    let mut out = [&MAGIC[..], &version.to_le_bytes(), &0u32.to_le_bytes(), &count.to_le_bytes()].concat();
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out
}

pub(super) fn footer(data_end: u64, index_crc: u32, data_crc: u32, stats_offset: u64) -> Vec<u8> {
    let mut out = [&data_end.to_le_bytes()[..], &index_crc.to_le_bytes(), &data_crc.to_le_bytes()].concat();
    out.extend_from_slice(&stats_offset.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out
}
