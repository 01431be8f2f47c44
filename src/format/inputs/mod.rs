//! The runs in files and folders of any format, found and decoded in order.
//!
//! | file | owns |
//! | --- | --- |
//! | `run_discovery.rs` | the files that may hold runs, and their runs |
//! | `decode.rs` | reading one run; reading many in parallel |
//! | `rejected.rs` | files that could not be read |

mod decode;
mod rejected;
mod run_discovery;

pub(crate) use decode::{ReadRun, decode_bytes, decode_next, each_window, in_source, read_source};
pub use rejected::Rejected;
pub(crate) use run_discovery::{DiscoveredRun, RunDiscovery, RunInput, RunPlace, runs_of_pack};
