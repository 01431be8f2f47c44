//! The addresses that the server answers.
//!
//! | file | owns |
//! | --- | --- |
//! | `archive.rs` | the description of the archive; the names that statements can use; events of new versions |
//! | `runs.rs` | the list of runs |
//! | `games.rs` | a run with its positions; the places where a position occurs |
//! | `statements.rs` | statements and named queries: their rows, and results as files |
//! | `reports.rs` | the report as a page |

pub(crate) mod archive;
pub(crate) mod games;
pub(crate) mod reports;
pub(crate) mod runs;
pub(crate) mod statements;
