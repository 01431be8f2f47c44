//! Running a query, or reading run files, into a table.
//!
//! | file | owns |
//! | --- | --- |
//! | `materialize_options.rs`, `chosen_columns.rs` | the options of a query run; the columns that its rows get |
//! | `from_query.rs` | running a query into a table on all cores |
//! | `shard.rs`, `pieces.rs` | the rows of a query that one of several ranks copies |
//! | `from_runs.rs` | run files → a table, without an archive |

pub(in crate::table) mod chosen_columns;
#[cfg(feature = "sql")]
pub(in crate::table) mod from_query;
pub(in crate::table) mod from_runs;
pub(in crate::table) mod materialize_options;
#[cfg(feature = "sql")]
pub(in crate::table) mod pieces;
pub(in crate::table) mod shard;
