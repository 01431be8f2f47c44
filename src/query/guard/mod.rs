//! The guard, which limits what a statement may do: read the given tables and compute on them.
//!
//! It has three layers:
//!
//! 1. The text must be one statement of a few kinds, of bounded size, over known tables (`statement.rs`, `plan.rs`).
//! 2. The session has no functions that read files or the host, no table functions and no catalog. The object stores
//!    reach only the files of the tables (`engine/session.rs`).
//! 3. Resources are bounded: texts and lists (`sizes.rs`), memory, temporary files, rows, bytes and time (`options.rs`).
//!
//! It protects from mistakes and casual misuse, not from hostile statements. docs/sql.md lists the guarantees.
//!
//! | file | owns |
//! | --- | --- |
//! | `statement.rs` | checks and rewrites of a statement's syntax tree, before it is planned |
//! | `names.rs` | names and positions of columns in a statement |
//! | `plan.rs` | checks of a plan, before and after it is analyzed |
//! | `sizes.rs` | a bound on the texts and lists that functions return |
//! | `signed_sums.rs` | sums of integers and booleans as int64 |
//! | `float_extremes.rs` | `min` and `max` of floats in groups |

mod float_extremes;
mod names;
mod plan;
mod signed_sums;
mod sizes;
mod statement;

pub(super) use float_extremes::Extreme;
pub(super) use plan::check_filters;
pub(super) use signed_sums::SignedSum;
pub(super) use sizes::BOUND_SIZES;
pub(super) use statement::{check_length, planned};
