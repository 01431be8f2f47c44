//! The subcommands: each file has their options and their work.
//!
//! | file | owns |
//! | --- | --- |
//! | `simulate.rs`, `bench.rs` | playing games; measuring rates |
//! | `transfer.rs` | runs into an archive, out of it, and from format to format |
//! | `info.rs`, `maintain.rs` | the contents of an archive; changing and checking it |
//! | `sql.rs` | running and listing queries |
//! | `explore.rs` | the report, the explorer, one position as text, a page with a game |

pub(crate) mod bench;
pub(crate) mod explore;
pub(crate) mod info;
pub(crate) mod maintain;
pub(crate) mod simulate;
pub(crate) mod sql;
pub(crate) mod transfer;
