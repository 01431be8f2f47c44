//! `.a2pack`: any number of run files in one file, to be read by many and written once.
//!
//! ```text
//!  0          8         12      16      24           28
//!  | A2PACK00 | version | flags | count | header_crc | index: 32 × count | padding | data | stats | footer |
//!  | 8        | u32 = 1 | u32   | u64   | u32        |                   |         |      |       | 32     |
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
//! All integers are little-endian, all offsets count from the start of the file, all checksums are CRC32C. Entries ascend by
//! offset, and each begins at a multiple of the alignment. A payload is a run file, byte by byte: of kind 1 (A2T1) or 2
//! (a2run2), and by its flags stored as it is (0), as a Zstandard frame (1) or as an LZ4 frame (2). An entry of length 0 is a
//! tombstone: the run that stood there was taken out. The header's flags have no meaning, and are passed over.
//!
//! `header_crc` covers bytes 0..24, `footer_crc` the footer's first 24, `index_crc` the whole index, an entry's `crc32c` its
//! payload as stored, and `data_crc` everything from the first payload's first byte to `data_end`, the padding between payloads
//! included. An entry's and the data's may be 0: omitted. So **no checksum covers**
//!
//! - the padding between the index and the first payload,
//! - the stats block, and what may stand between it and its neighbours: [`PackReader::validate`] compares its values to the
//!   runs, the mean to nine digits,
//! - the footer's last four bytes,
//! - without a `data_crc`, the padding between payloads,
//!
//! and no run is read from any of these.
//!
//! Entry points are [`PackReader`], [`PackBuilder`] and [`pack_folder`]. Invariant: what a reader gives is the run that was
//! written, or an error that says which run is damaged; a damaged run never costs another.

mod builder;
mod compression;
mod extract;
mod folder;
mod iter;
mod layout;
mod lines;
mod reader;
mod stats;
mod validate;

pub use builder::{PackBuilder, PackOptions, PackReport};
pub use compression::Compression;
pub use folder::pack_folder;
pub use iter::PackIter;
pub use layout::RunKind;
pub use lines::JsonlReport;
pub use reader::{PackReader, RunSlice};
pub use stats::PackStats;
pub use validate::{ValidateOptions, ValidateReport};

use super::MAX_RUN_BYTES;

#[cfg(test)]
mod tests;
