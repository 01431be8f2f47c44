//! The rows of a result: as a stream, as files, as JSON and as text.
//!
//! | file | owns |
//! | --- | --- |
//! | `stream.rs` | running a plan, cancelled by dropping |
//! | `conform.rs` | converting batches to the schema of a result |
//! | `preview.rs`, `type_names.rs` | the first rows of a result, as a table; names of types for people |
//! | `result_files.rs`, `write.rs`, `json_rows.rs` | a result as files; their formats; rows as JSON, for pages |

pub(in crate::query) mod conform;
pub(in crate::query) mod json_rows;
pub(in crate::query) mod preview;
pub(in crate::query) mod result_files;
pub(in crate::query) mod stream;
pub(in crate::query) mod type_names;
pub(in crate::query) mod write;
