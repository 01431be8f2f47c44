//! The rows of a table: their layout and memory, and writing them.
//!
//! | file | owns |
//! | --- | --- |
//! | `element.rs` | the types of single values |
//! | `step_column.rs` | the columns that come from a step: one table of their names, types and shapes |
//! | `layout.rs` | the byte layout of a row |
//! | `wide.rs` | columns that rows have only for rare games: tiles of 65,536, steps above 65,535 |
//! | `memory.rs`, `zeroed.rs` | the mapping of the rows: reserve, trim, freeze; the heap memory of batches |
//! | `runs.rs`, `selection.rs` | score and engine of the runs; the rows of a view |
//! | `fingerprint.rs` | the fingerprint of rows and their order |
//! | `categories.rs`, `row_writer.rs` | string columns → codes; record batches → rows |
//! | `threads.rs`, `row_output.rs`, `row_order.rs` | work on all cores; the rows that it writes; sorting them |

pub(in crate::table) mod categories;
pub(in crate::table) mod element;
pub(in crate::table) mod fingerprint;
pub(in crate::table) mod layout;
pub(in crate::table) mod memory;
pub(in crate::table) mod row_order;
pub(in crate::table) mod row_output;
pub(in crate::table) mod row_writer;
pub(in crate::table) mod runs;
pub(in crate::table) mod selection;
pub(in crate::table) mod step_column;
pub(in crate::table) mod threads;
pub(in crate::table) mod wide;
pub(in crate::table) mod zeroed;
