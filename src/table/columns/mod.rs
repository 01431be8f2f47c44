//! Columns whose values lie in arrays beside the rows.
//!
//! | file | owns |
//! | --- | --- |
//! | `attached.rs` | columns whose values lie in arrays beside the rows |
//! | `step_keys.rs`, `array_file.rs`, `attach.rs` | aligning an array with the rows by run and step |

pub(in crate::table) mod array_file;
pub(in crate::table) mod attach;
pub(in crate::table) mod attached;
pub(in crate::table) mod step_keys;
