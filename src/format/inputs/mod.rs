//! The runs in files and folders of any format, found and decoded in order.
//!
//! | file | owns |
//! | --- | --- |
//! | `candidate_files.rs`, `run_discovery.rs` | the files that may hold runs; their runs |
//! | `read_source.rs`, `parallel_decode.rs` | reading one run; reading many in parallel |
//! | `rejected.rs` | files that could not be read |

mod candidate_files;
mod parallel_decode;
mod read_source;
mod rejected;
mod run_discovery;

pub(crate) use parallel_decode::{ReadRun, decode_next, each_window};
pub(crate) use read_source::{decode_bytes, in_source, read_source};
pub use rejected::Rejected;
pub(crate) use run_discovery::{DiscoveredRun, RunDiscovery, RunInput, RunPlace, runs_of_pack};
