//! Writing of runs in the file formats of 2048 tools. The runs come from an archive or from files.
//!
//! The entry points are [`Query::export_runs`](crate::Query::export_runs) and [`convert`]. Both call
//! `write_runs`, which encodes runs in parallel and writes them in order. Invariant: a run of an
//! archive that the format cannot hold is rejected before anything is written. One warning counts the runs that lose a
//! part.
//!
//! | file | owns |
//! | --- | --- |
//! | `write` | the path of all runs, from both sources to an output |
//! | `query`, `convert` | [`Query::export_runs`](crate::Query::export_runs), [`convert`]: the two sources of runs |
//! | `format` | [`ExportFormat`]: the formats, what they need, and what they can do |
//! | `output` | one output per format: encoder and sink |
//! | `losses` | the parts of runs that a format loses, and the warning about them |
//! | `options` | [`ExportOptions`], [`ExportReport`] |

mod convert;
mod format;
mod losses;
mod options;
mod output;
#[cfg(feature = "sql")]
mod query;
mod write;

pub use convert::convert;
pub use format::ExportFormat;
pub use options::{ExportOptions, ExportReport};
