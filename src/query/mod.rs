//! SQL over the tables `runs` and `steps` of an archive version, as a stream of record batches.
//!
//! The entry point is [`Archive::sql`](crate::Archive::sql). It plans the query, so it reports mistakes at once. The
//! query runs each time its result is requested.
//!
//! Invariant: a query without grouping or join over `steps` returns its rows in the order of `(run_id,
//! step_index)`, on any number of threads, without sorting.
//!
//! | file | owns |
//! | --- | --- |
//! | `planned.rs` | a planned query: planning, parameters, and running it |
//! | `options.rs`, `limits.rs` | user tables and limits; enforcing the limits while a result is delivered |
//! | `user_tables.rs` | tables that the user adds to a query |
//! | `guard/` | what a statement may do |
//! | `refused.rs` | the statements that DataFusion answers wrongly, and how to say them differently |
//! | `functions/`, `udf.rs` | the functions over boards, moves and EVs; their form for DataFusion |
//! | `saved/` | named queries with parameters |
//! | `session.rs` | the DataFusion session of a query: tables, object stores, settings, rules |
//! | `archive_table.rs`, `file_table.rs` | the tables of the archive; a user's Parquet file as a table |
//! | `annotation_view.rs` | the table `annotations` with a list for each policy |
//! | `scan.rs`, `reader_filters.rs` | plans that read Parquet; which filters run inside the reader |
//! | `run_index.rs`, `metadata_cache.rs` | the rows of each run, for run-level filters; what is cached between queries |
//! | `rewrites/` | plan rewrites, and corrections of DataFusion's own |
//! | `step_join/` | joins of `steps` and `annotations` by run and step |
//! | `engine.rs`, `scatter/` | engines of tasks; queries on a cluster, by shipping the question |
//! | `order.rs`, `volatility.rs` | plans that keep the natural order; queries with random numbers or the time |
//! | `stream.rs`, `partition.rs` | running a plan: partitions in order, with bounded buffers, cancelled by dropping |
//! | `result_filter.rs` | filters that a consumer adds to a planned query |
//! | `conform.rs` | converting batches to the schema of a result |
//! | `plan_function.rs` | scalar functions that plans use and statements cannot call |
//! | `explain.rs` | the physical plan as text |
//! | `preview.rs`, `type_names.rs` | the first rows of a result, as a table; names of types for people |
//! | `output.rs`, `write.rs`, `json_rows.rs` | a result as files; their formats; rows as JSON, for pages |
//! | `errors.rs` | DataFusion's errors as errors of this crate |

mod annotation_view;
mod archive_table;
mod conform;
mod engine;
mod errors;
mod explain;
mod file_table;
mod functions;
mod guard;
mod json_rows;
mod limits;
mod metadata_cache;
mod options;
mod order;
mod output;
mod partition;
mod plan_function;
mod planned;
mod preview;
mod reader_filters;
mod refused;
mod result_filter;
mod rewrites;
mod run_index;
mod saved;
mod scan;
mod scatter;
mod session;
mod step_join;
mod stream;
mod type_names;
mod udf;
mod user_tables;
mod volatility;
mod write;

pub use datafusion::common::ParamValues;
pub use datafusion::scalar::ScalarValue;
pub use engine::{Cluster, Engine, RunningTask, TaskDone};
pub use functions::{Function, functions};
pub use options::QueryOptions;
pub use planned::{Query, no_params};
pub use preview::Preview;
pub use saved::{SavedParameter, SavedQuery};
pub use stream::QueryStream;
pub use user_tables::UserTable;
pub use write::RowFormat;

pub(crate) use errors::query_error;
pub(crate) use json_rows::{is_board, json_rows, json_scalar, short};
pub(crate) use limits::QueryLimits;
pub(crate) use order::Execution;
pub(crate) use partition::Partition;
#[cfg(feature = "python")]
pub(crate) use stream::ArrowReader;
#[cfg(feature = "explore")]
pub(crate) use type_names::type_name;
#[cfg(feature = "cli")]
pub(crate) use write::FirstError;
