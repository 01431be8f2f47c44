//! Named queries: SQL files with a header that describes the purpose, the parameters and the columns.
//!
//! ```text
//! -- The best runs.
//! --
//! -- Parameters:
//! --   min_score int64 = 20000: the least final score of a run
//! --
//! -- Columns:
//! --   run_id uint32: the run
//! SELECT run_id FROM runs WHERE max_score >= $min_score ORDER BY run_id
//! ```
//!
//! The queries in `queries/` are compiled into the crate.
//!
//! | file | owns |
//! | --- | --- |
//! | `saved_query.rs` | a named query and its parameters; binding values to its parameters |
//! | `files.rs` | the files of the queries, and the parser of their headers |
//! | `library.rs` | finding named queries, and planning them |

mod files;
mod library;
mod saved_query;

pub use saved_query::{SavedParameter, SavedQuery};
