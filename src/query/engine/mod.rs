//! The DataFusion session of a query: its settings, limits, errors and extensions.
//!
//! | file | owns |
//! | --- | --- |
//! | `limits.rs` | enforcing the limits while a result is delivered |
//! | `udf.rs` | functions in the form of DataFusion |
//! | `session.rs` | the DataFusion session of a query: tables, object stores, settings, rules |
//! | `execution.rs` | the physical plan of a query, and the order in which its partitions are read |
//! | `plan_function.rs` | scalar functions that plans use and statements cannot call |
//! | `errors.rs` | DataFusion's errors as errors of this crate |

pub(in crate::query) mod errors;
pub(in crate::query) mod execution;
pub(in crate::query) mod limits;
pub(in crate::query) mod plan_function;
pub(in crate::query) mod session;
pub(in crate::query) mod udf;
