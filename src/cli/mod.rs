//! The commands `a2store` and `a2pack`.
//!
//! [`a2store`] and [`a2pack`] are the entry points. Results go to standard output, progress and diagnostics to standard
//! error. Exit status: 0 on success, 1 if the data has problems (they are listed), 2 for wrong usage, 130 after Ctrl-C,
//! 143 after SIGTERM. An interrupted command leaves the archive unchanged.
//!
//! | file | owns |
//! | --- | --- |
//! | `a2store.rs` | the entry point of `a2store`, and its subcommands |
//! | `simulate.rs`, `ingest.rs`, `info.rs`, `transfer.rs`, `annotate.rs`, `maintain.rs`, `bench.rs` | subcommands on runs and archives |
//! | `view.rs`, `report.rs`, `replay.rs`, `show.rs` | the explorer, the report, a page with a game, one position as text |
//! | `sql.rs`, `queries.rs` | running queries; listing named queries |
//! | `rows.rs` | query rows as a table, CSV, JSON, Parquet or Arrow |
//! | `shell.rs` | completions of shells |
//! | `terminal.rs` | the width of the terminal, and colours |
//! | `print.rs` | numbers and JSON on standard output |
//! | `values.rs` | parsers of option values |
//! | `open.rs` | opening archives, and checks of output paths |
//! | `progress.rs` | the progress bar and Ctrl-C |
//! | `logging.rs` | log lines, as `RUST_LOG` selects them |
//! | `exit.rs` | exit statuses and the printing of errors |
//! | `a2pack/` | the command `a2pack` |

mod a2pack;
mod a2store;
mod annotate;
mod bench;
mod exit;
mod info;
mod ingest;
mod logging;
mod maintain;
mod open;
mod print;
mod progress;
mod queries;
mod replay;
mod report;
mod rows;
mod shell;
mod show;
mod simulate;
mod sql;
mod terminal;
mod transfer;
mod values;
mod view;

pub use a2pack::a2pack;
pub use a2store::a2store;
