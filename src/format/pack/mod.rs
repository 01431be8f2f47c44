//! `.a2pack`: any number of run files in one file. A pack is written once and supports concurrent readers.
//!
//! ```text
//!  0          8         12      16      24           28
//!  | A2PACK00 | version | flags | count | header_crc | index: 32 × count | padding | data | stats | footer |
//!  | 8        | u32     | u32   | u64   | u32        |                   |         |      |       | 32     |
//!
//!  entry    0        8        12     14      16      20         24        32
//!           | offset | length | kind | flags | crc32c | reserved | padding |
//!           | u64    | u32    | u16  | u16   | u32    | u32      | 8       |
//!
//!  footer   0          8           12         16             24           28        32
//!           | data_end | index_crc | data_crc | stats_offset | footer_crc | padding |
//!           | u64      | u32       | u32      | u64          | u32        | 4       |
//!
//!  stats    0        4
//!           | length | varint count, total_steps, min_len, max_len, f64 mean_len, varint p50, p90, p99 |
//! ```
//!
//! All integers are little-endian. All offsets count from the start of the file. All checksums are CRC32C.
//! Entries ascend by offset, and each begins at a multiple of the alignment. The header's flags have no meaning
//! and are ignored. In a pack without runs, `data_end` is 0.
//!
//! The version is 1, or 2 if an entry is compressed. Other tools do not read compressed entries and reject
//! version 2. A reader accepts compressed entries in both versions.
//!
//! A payload is an unchanged run file of kind 1 (A2T1) or 2 (a2run2). The entry's flags give its compression:
//! none (0), one Zstandard frame (1) or one LZ4 frame (2). An entry of length 0 is a tombstone: its run was
//! removed.
//!
//! `header_crc` covers bytes 0..24, `footer_crc` the first 24 bytes of the footer, and `index_crc` the whole
//! index. An entry's `crc32c` covers its payload as stored. `data_crc` covers everything from the first payload
//! to `data_end`, including the padding between payloads. The checksums of an entry and of the data may be 0,
//! which means omitted. **No checksum covers**
//!
//! - the padding between the index and the first payload,
//! - the stats block and any gaps around it; [`PackReader::validate`] compares its values to the runs, the mean
//!   to nine digits,
//! - the footer's last four bytes,
//! - without a `data_crc`, the padding between payloads,
//!
//! and no run is read from any of these bytes.
//!
//! Entry points are [`PackReader`], [`PackBuilder`] and [`pack_folder`]. Invariant: a reader returns the run that
//! was written, or an error that names the damaged run. A damaged run does not affect the others.

mod builder;
mod compression;
mod extract;
mod folder;
mod layout;
mod lines;
mod reader;
mod stats;
mod tally;
mod validate;

pub use builder::{PackBuilder, PackOptions, PackReport};
pub use compression::Compression;
pub use extract::ExtractReport;
pub use folder::pack_folder;
pub(super) use layout::MAGIC;
pub use lines::JsonlReport;
pub use reader::{PackReader, RunSlice};
pub use stats::PackStats;
pub use validate::{ValidateOptions, ValidateReport};

#[cfg(test)]
mod tests;
