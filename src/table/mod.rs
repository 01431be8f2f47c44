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
//! | `rows/` | the rows of a table: their layout and memory, and writing them |
//! | `materialize/` | running a query, or reading run files, into a table |
//! | `gather/` | rows at any indices as the columns of a batch |
//! | `columns/` | columns whose values lie in arrays beside the rows |
//! | `files/` | tables in files and in shared memory |
//! | `step_table.rs` | [`StepTable`]: taking rows, whole or as columns |
//! | `view.rs` | views: some of a table's rows, selected by run without a copy |
//! | `split.rs` | splits into views for training and testing |
//! | `mix.rs` | rows of several tables in batches of one schema |

mod columns;
mod files;
mod gather;
mod materialize;
mod mix;
mod rows;
mod split;
mod step_table;
#[cfg(test)]
mod tests;
mod view;

pub use columns::attached::AttachedColumn;
pub use gather::batch::{Batch, BatchColumn};
pub use gather::export::ColumnReader;
pub use materialize::from_runs::FromRunsOptions;
pub use materialize::materialize_options::{ChosenEv, MaterializeOptions};
pub use materialize::shard::Shard;
pub use rows::element::ElementType;
pub use rows::fingerprint::Fingerprint;
pub use rows::layout::{ExtraField, RowLayout};
pub use step_table::StepTable;
pub use view::RowFilter;

pub(crate) use gather::arena::{Arena, ArenaPool};
pub(crate) use gather::batch_schema::BatchSchema;
pub(crate) use gather::prefetch::prefetch;
pub(crate) use gather::symmetry::SymmetryKey;
pub(crate) use mix::{MixBuffers, TableMix};
pub(crate) use rows::runs::Origin;
pub use split::HeldOut;
