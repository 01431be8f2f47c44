//! Rows at any indices as the columns of a batch.
//!
//! | file | owns |
//! | --- | --- |
//! | `batch_schema.rs`, `arena.rs`, `batch.rs` | the columns of a batch; their memory; their Arrow form |
//! | `take.rs`, `column_pointers.rs`, `prefetch.rs` | rows at any indices → columns |
//! | `symmetry.rs` | turning a row by one of the board's eight symmetries |
//! | `export.rs` | a whole table as Arrow data |

pub(in crate::table) mod arena;
pub(in crate::table) mod batch;
pub(in crate::table) mod batch_schema;
pub(in crate::table) mod column_pointers;
pub(in crate::table) mod export;
pub(in crate::table) mod prefetch;
pub(in crate::table) mod symmetry;
pub(in crate::table) mod take;
