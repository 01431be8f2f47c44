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
//! | `scan/` | the tables of an archive and of the user, and the plans that read them |
//! | `output/` | the rows of a result: as a stream, as files, as JSON and as text |
//! | `engine/` | the DataFusion session of a query: its settings, limits, errors and extensions |
//! | `query.rs` | a planned query: planning, parameters, and running it |
//! | `options.rs` | user tables and limits of a query |
//! | `user_tables.rs` | tables that the user adds to a query |
//! | `guard/` | what a statement may do |
//! | `refused.rs` | the statements that DataFusion answers wrongly, and how to say them differently |
//! | `functions/` | the functions over boards, moves and EVs |
//! | `named/` | named queries with parameters |
//! | `rewrites/` | plan rewrites, and corrections of DataFusion's own |
//! | `step_join/` | joins of `steps`, `annotations` and `runs` by run and step, or by run |
//! | `tasks.rs`, `scatter/` | engines of tasks; a query as tasks for the workers of a cluster |
//! | `explain.rs` | the physical plan as text |

mod engine;
mod explain;
mod functions;
mod guard;
mod named;
mod options;
mod output;
#[allow(clippy::module_inception)]
mod query;
mod refused;
mod rewrites;
mod scan;
mod scatter;
mod step_join;
mod tasks;
mod user_tables;

pub use datafusion::common::ParamValues;
pub use datafusion::scalar::ScalarValue;
pub use functions::{Function, functions};
pub use named::{SavedParameter, SavedQuery};
pub use options::QueryOptions;
pub use output::preview::Preview;
pub use output::stream::QueryStream;
pub use output::write::RowFormat;
pub use query::{Query, no_params};
pub use tasks::{Cluster, Engine, TaskCancel, TaskDone};
pub use user_tables::UserTable;

pub(crate) use engine::errors::query_error;
pub(crate) use engine::execution::{Execution, Rows};
pub(crate) use engine::limits::QueryLimits;
pub use output::json_rows::{is_board, json_rows, json_scalar, short};
pub use output::type_names::type_name;
pub(crate) use scan::partition::Partition;
