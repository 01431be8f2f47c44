//! A query result as rows in memory ([`StepTable`]), and [`Batch`]es of its rows.
//!
//! ```text
//!  Query ──materialize──▶ StepTable: one mapping of 32-byte rows (+ extras) ──gather──▶ Batch: columns
//! ```
//!
//! The entry points are [`Query::materialize`](crate::Query::materialize) and [`StepTable::take`]. Invariant: a
//! table's rows lie in one read-only mapping and never change. Rows of `steps` are in the order of run and step, other
//! rows in the order of the query's ORDER BY, or else sorted by run, step and bytes.
//!
//! | file | owns |
//! | --- | --- |
//! | `element.rs` | the types of single values |
//! | `step_column.rs` | the columns that come from a step: one table of their names, types and shapes |
//! | `layout.rs` | the byte layout of a row |
//! | `wide.rs` | columns that rows have only for rare games: tiles of 65,536, steps above 65,535 |
//! | `memory.rs`, `zeroed.rs` | the mapping of the rows: reserve, trim, freeze; the heap memory of batches |
//! | `file_identity.rs` | the identity of a mapped file |
//! | `runs.rs`, `selection.rs` | score and engine of the runs; the rows of a view |
//! | `materialize_options.rs`, `chosen_columns.rs` | the options of a query run; the columns that its rows get |
//! | `fingerprint.rs` | the fingerprint of rows and their order |
//! | `batch_schema.rs`, `arena.rs`, `batch.rs` | the columns of a batch; their memory; their Arrow form |
//! | `attached.rs` | columns whose values lie in arrays beside the rows |
//! | `gather.rs`, `column_pointers.rs`, `prefetch.rs` | rows at any indices → columns |
//! | `symmetry.rs` | turning a row by one of the board's eight symmetries |
//! | `step_table.rs` | [`StepTable`]: taking rows, whole or as columns |
//! | `view.rs` | views: some of a table's rows, selected by run without a copy |
//! | `split.rs` | splits into views for training and testing |
//! | `mix.rs` | rows of several tables in batches of one schema |
//! | `export.rs` | a whole table as Arrow data |
//! | `npy.rs`, `footer.rs`, `file.rs` | tables in `.npy` files |
//! | `step_keys.rs`, `array_file.rs`, `attach.rs` | aligning an array with the rows by run and step |
//! | `shared_memory.rs`, `region_location.rs`, `handle.rs` | one copy of a table for many processes |
//! | `categories.rs`, `row_writer.rs` | string columns → codes; record batches → rows |
//! | `threads.rs`, `row_output.rs`, `row_order.rs`, `materialize.rs` | running a query into a table on all cores |
//! | `shard.rs` | the rows of a query that one of several ranks copies |
//! | `run_rows.rs`, `from_runs.rs` | run files → a table, without an archive |

mod arena;
mod array_file;
mod attach;
mod attached;
mod batch;
mod batch_schema;
mod categories;
mod chosen_columns;
mod column_pointers;
mod element;
mod export;
mod file;
mod file_identity;
mod fingerprint;
mod footer;
mod from_runs;
mod gather;
mod handle;
mod layout;
mod materialize;
mod materialize_options;
mod memory;
mod mix;
mod npy;
mod prefetch;
mod region_location;
mod row_order;
mod row_output;
mod row_writer;
mod run_rows;
mod runs;
mod selection;
mod shard;
mod shared_memory;
mod split;
mod step_column;
mod step_keys;
mod step_table;
mod symmetry;
#[cfg(test)]
mod tests;
mod threads;
mod view;
mod wide;
mod zeroed;

pub use attached::AttachedColumn;
pub use batch::{Batch, BatchColumn};
pub use element::ElementType;
pub use export::ColumnReader;
pub use fingerprint::Fingerprint;
pub use from_runs::FromRunsOptions;
pub use layout::{ExtraField, RowLayout};
pub use materialize_options::{ChosenEv, MaterializeOptions};
pub use shard::Shard;
pub use step_column::TokenType;
pub use step_table::StepTable;
pub use view::RowFilter;

pub(crate) use arena::{Arena, ArenaPool};
pub(crate) use batch_schema::BatchSchema;
pub(crate) use mix::{MixBuffers, TableMix};
pub(crate) use prefetch::prefetch;
pub(crate) use runs::Origin;
#[cfg(feature = "python")]
pub(crate) use split::HeldOut;
pub(crate) use symmetry::SymmetryKey;
