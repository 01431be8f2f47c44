//! Export of an archive's runs to the file formats of the field, and conversion of files without an archive.
//!
//! The entry point is [`Query::export_runs`](crate::Query::export_runs): the query selects run ids, and the runs
//! are written in the order of ids. Invariant: a run that the format cannot hold is rejected before anything is
//! written. One warning counts the runs that lose a part.
//!
//! | file | owns |
//! | --- | --- |
//! | `query` | [`Query::export_runs`](crate::Query::export_runs) |
//! | `convert` | [`convert`] |
//! | `options` | [`ExportOptions`], [`ExportReport`] |
//! | `registry` | [`ExportFormat`]: the table of formats, one line each |
//! | `run_files`, `a2pack`, `packdat`, `npy`, `session`, `macroxue`, `jsonl` | the formats |
//! | `losses` | the parts of runs that a format loses, and the warning about them |
//! | `original_pack` | the check that an exported Macroxue pack equals the original |
//! | `session_plan` | the metadata of an exported session or Macroxue pack |
//! | `target` | the interface of a format: encoder and sink |

mod a2pack;
mod convert;
mod jsonl;
mod losses;
mod macroxue;
mod npy;
mod options;
mod original_pack;
mod packdat;
mod query;
mod registry;
mod run_files;
mod session;
mod session_plan;
mod target;

pub use convert::convert;
pub use options::{ExportOptions, ExportReport};
pub use registry::ExportFormat;
