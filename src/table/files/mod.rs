//! Tables in files and in shared memory.
//!
//! | file | owns |
//! | --- | --- |
//! | `npy.rs`, `footer.rs`, `file.rs` | tables in `.npy` files |
//! | `shared_memory.rs`, `region_location.rs`, `handle.rs` | one copy of a table for many processes |

pub(in crate::table) mod file;
pub(in crate::table) mod footer;
pub(in crate::table) mod handle;
pub(in crate::table) mod npy;
pub(in crate::table) mod region_location;
pub(in crate::table) mod shared_memory;
