//! The footer of a table in a file or in shared memory, which follows the rows.
//!
//! ```text
//!  0       NumPy's header, padded with spaces to a multiple of 4096 bytes
//!  4096    rows, num_rows × stride bytes
//!          JSON: rows, layout, fingerprint, phases, origin, CRC32C of the rows
//!          JSON: id, score, game and engine of each run; may be empty
//!  -40     offset of the rows u64 | their size u64 | size of the JSON u32 | of the runs u32
//!  -16     CRC32C of JSON, runs and the 24 bytes before u32 | 0 u32 | "A2TABLE" 01
//! ```
//!
//! All numbers are little-endian. NumPy reads the rows that its header counts and ignores the rest. Shared
//! memory has the same content without NumPy's header.

use crate::archive::Phases;
use crate::error::{Error, ErrorKind, Result};
use crate::system::machine::available_bytes;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::layout::RowLayout;
use crate::table::rows::runs::{Origin, Runs, TableRunFacts};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"A2TABLE\x01";
const FOOTER_LEN: usize = 40;

/// The content of a footer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::table) struct TableMeta {
    pub(in crate::table) num_rows: u64,
    pub(in crate::table) layout: RowLayout,
    pub(in crate::table) fingerprint: Fingerprint,
    pub(in crate::table) phases: Option<Phases>,
    pub(in crate::table) origin: Origin,
    /// CRC32C of the rows; `None` in shared memory.
    pub(in crate::table) rows_crc32c: Option<u32>,
    /// The offset of the rows in the file, which follows the JSON.
    #[serde(skip)]
    pub(in crate::table) rows_offset: u64,
    /// The bytes of the runs, which follow the JSON.
    #[serde(skip)]
    pub(in crate::table) runs: Vec<u8>,
}

/// Reads the footer after the rows; `None` if the file has no footer.
pub(in crate::table) fn read_footer(file: &File, path: &Path) -> Result<Option<TableMeta>> {
    let io = |error| Error::io(path, error);
    let damaged = |expected: &str, found: String| Error::damaged(path, "table", expected, found);
    let size = file.metadata().map_err(io)?.len();
    let Some(at) = size.checked_sub(FOOTER_LEN as u64) else { return Ok(None) };
    let mut tail = [0; FOOTER_LEN];
    file.read_exact_at(&mut tail, at).map_err(io)?;
    if !tail.ends_with(MAGIC) {
        return Ok(None);
    }
    let u32_at = |at: usize| tail.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let u64_at = |at: usize| tail.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
    let (json_len, runs_len) = (u64::from(u32_at(16)), u64::from(u32_at(20)));
    let Some(start) = at.checked_sub(json_len + runs_len) else {
        return Err(damaged("a footer inside of the file", format!("one of {} bytes", json_len + runs_len)));
    };
    let (rows_offset, rows_len) = (u64_at(0), u64_at(8));
    if Some(start) != rows_offset.checked_add(rows_len) {
        return Err(damaged("rows just before the footer", format!("{rows_len} bytes from byte {rows_offset}")));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact((json_len + runs_len) as usize).map_err(|_| {
        Error::from(ErrorKind::MemoryLimit { needed: json_len + runs_len, limit: available_bytes().unwrap_or(0) })
    })?;
    bytes.resize((json_len + runs_len) as usize, 0);
    file.read_exact_at(&mut bytes, start).map_err(io)?;
    let found = crc32c::crc32c_append(crc32c::crc32c(&bytes), &tail[..24]);
    let expected = u32_at(24);
    if found != expected {
        return Err(Error::checksum(start, "the footer", expected, found).with_path(path));
    }
    let meta: TableMeta = serde_json::from_slice(&bytes[..json_len as usize])
        .map_err(|error| damaged("a footer's fields", error.to_string()))?;
    if !meta.layout.is_valid() {
        return Err(damaged("the layout of a row", format!("{:?}", meta.layout)));
    }
    if meta.num_rows.checked_mul(meta.layout.stride() as u64) != Some(rows_len) {
        return Err(damaged("rows before the footer", format!("{rows_len} bytes from byte {rows_offset}")));
    }
    bytes.drain(..json_len as usize);
    Ok(Some(TableMeta { rows_offset, runs: bytes, ..meta }))
}

/// Returns a footer as bytes. Shared memory has no checksum of the rows.
pub(in crate::table) fn footer(
    num_rows: u64,
    rows_offset: u64,
    layout: &RowLayout,
    fingerprint: &Fingerprint,
    runs: &Runs,
    facts: Option<&TableRunFacts>,
    rows_crc32c: Option<u32>,
) -> Result<Vec<u8>> {
    let meta = TableMeta {
        num_rows,
        layout: layout.clone(),
        fingerprint: fingerprint.clone(),
        phases: runs.phases,
        origin: runs.origin.clone(),
        rows_crc32c,
        rows_offset,
        runs: facts.map(TableRunFacts::to_bytes).unwrap_or_default(),
    };
    let json = serde_json::to_vec(&meta).map_err(Error::other)?;
    let mut bytes = [&json[..], &meta.runs].concat();
    bytes.extend(rows_offset.to_le_bytes());
    bytes.extend((num_rows * layout.stride() as u64).to_le_bytes());
    bytes.extend((json.len() as u32).to_le_bytes());
    bytes.extend((meta.runs.len() as u32).to_le_bytes());
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(MAGIC);
    Ok(bytes)
}
