//! The subcommands: each file has its options and its work.
//!
//! | file | owns |
//! | --- | --- |
//! | `simulate.rs`, `ingest.rs`, `info.rs`, `transfer.rs`, `annotate.rs`, `maintain.rs`, `bench.rs` | subcommands on runs and archives |
//! | `view.rs`, `report.rs`, `replay.rs`, `show.rs` | the explorer, the report, a page with a game, one position as text |
//! | `sql.rs`, `queries.rs` | running queries; listing named queries |
//! | `shell.rs` | completions of shells |

pub(crate) mod annotate;
pub(crate) mod bench;
pub(crate) mod info;
pub(crate) mod ingest;
pub(crate) mod maintain;
pub(crate) mod queries;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod shell;
pub(crate) mod show;
pub(crate) mod simulate;
pub(crate) mod sql;
pub(crate) mod transfer;
pub(crate) mod view;
