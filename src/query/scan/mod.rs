//! The tables of an archive and of the user, and the plans that read them.
//!
//! | file | owns |
//! | --- | --- |
//! | `archive_table.rs`, `file_table.rs` | the tables of the archive; a user's Parquet file as a table |
//! | `annotation_view.rs` | the table `annotations` with a list for each policy |
//! | `parquet_scan.rs`, `reader_filters.rs` | plans that read Parquet; which filters run inside the reader |
//! | `run_index.rs`, `metadata_cache.rs` | the rows of each run, for run-level filters; what is cached between queries |
//! | `partition.rs` | the partitions of a plan in order, with bounded buffers |

pub(in crate::query) mod annotation_view;
pub(in crate::query) mod archive_table;
pub(in crate::query) mod file_table;
pub(in crate::query) mod metadata_cache;
pub(in crate::query) mod parquet_scan;
pub(in crate::query) mod partition;
pub(in crate::query) mod reader_filters;
pub(in crate::query) mod run_index;
