//! The row at each position: shuffled, weighted, stratified or in windows.
//!
//! | file | owns |
//! | --- | --- |
//! | `permutation.rs` | every row once, in a computed shuffled order |
//! | `windowed.rs` | the same within windows, for tables on disk |
//! | `draws.rs` | independent draws, uniform or weighted |
//! | `extra_column.rs`, `strata.rs` | reading an extra column; strata with quotas |
//! | `order.rs` | position → row |

pub(in crate::loader) mod draws;
pub(in crate::loader) mod extra_column;
pub(in crate::loader) mod order;
pub(in crate::loader) mod permutation;
pub(in crate::loader) mod strata;
pub(in crate::loader) mod windowed;
