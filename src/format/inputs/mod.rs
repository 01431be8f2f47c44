//! The runs in files and folders of any format, found and decoded in order.
//!
//! | file | owns |
//! | --- | --- |
//! | `run_discovery.rs` | the files that may hold runs, and their runs |
//! | `decode.rs` | reading one run; reading many in parallel |

mod decode;
mod run_discovery;

pub use decode::Rejected;
pub(crate) use decode::{ReadRun, decode_bytes, decode_next, each_window, in_source, read_source};
pub(crate) use run_discovery::{DiscoveredRun, RunDiscovery, RunInput, RunPlace, runs_of_pack};
