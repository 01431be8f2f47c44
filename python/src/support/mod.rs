//! What the classes share.
//!
//! | file | owns |
//! | --- | --- |
//! | `arrow.rs`, `numpy.rs`, `memory.rs` | record batches and arrays over the crate's memory |
//! | `integers.rs`, `indices.rs`, `values.rs` | arguments: integers in a range, indices of rows, values of SQL |
//! | `results.rs`, `structured.rs`, `steps.rs` | values that Python classes describe: reports, columns, positions of games |
//! | `interrupt.rs`, `progress.rs`, `logging.rs` | long work: Ctrl-C, progress, log records |
//! | `interpreter.rs` | leaving and entering the interpreter |

pub(crate) mod arrow;
pub(crate) mod indices;
pub(crate) mod integers;
pub(crate) mod interpreter;
pub(crate) mod interrupt;
pub(crate) mod logging;
pub(crate) mod memory;
pub(crate) mod numpy;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod steps;
pub(crate) mod structured;
pub(crate) mod values;
