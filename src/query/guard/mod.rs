//! The guard, which limits what a statement may do: read the given tables and compute on them.
//!
//! It has three layers:
//!
//! 1. The text must be one statement of a few kinds, of bounded size, over known tables (`statement.rs`, `plan.rs`).
//! 2. The session has no dangerous functions or tables (`configure.rs`, `session.rs`). No function reads files,
//!    reveals the host or makes large results from small arguments. There are no table functions and no catalog, and
//!    the object stores reach only the files of the tables.
//! 3. Resources are bounded: results of functions that enlarge their input (`bounded_functions.rs`), memory,
//!    temporary files, rows, bytes and time (`options.rs`).
//!
//! It protects from mistakes and casual misuse. Against malicious statements, run a separate process, as
//! `a2store sql --sandbox` does. docs/sql.md lists the guarantees.
//!
//! | file | owns |
//! | --- | --- |
//! | `statement.rs` | checks of a statement's syntax tree, before it is planned |
//! | `plan.rs` | checks of a plan, before it is analyzed |
//! | `configure.rs` | restricting a session to what statements may use |
//! | `allowed_functions.rs` | the functions that statements may call, and why others are excluded |
//! | `bounded_functions.rs` | bounds on functions whose result may be much larger than their arguments |
//! | `plain_numbers.rs` | numbers of texts as plain columns |
//! | `signed_sums.rs` | sums of integers and booleans as int64 |
//! | `large_filters.rs` | the size of filters after inlining; sessions without filter pushdown |

mod allowed_functions;
mod bounded_functions;
mod configure;
mod large_filters;
mod plain_numbers;
mod plan;
mod signed_sums;
mod statement;

pub(super) use configure::{configure, quoted};
pub(super) use large_filters::{has_large_filter, without_pushdown};
pub(super) use plan::check as check_plan;
pub(super) use statement::{check as check_statement, check_length, name_derived_tables, parse, replace_functions};
