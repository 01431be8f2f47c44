//! The commands `a2store` and `a2pack`.
//!
//! [`main`] and [`a2pack`] are the entry points. Results go to standard output, progress and diagnostics to standard
//! error. Exit status: 0 on success, 1 if the data has problems (they are listed), 2 for wrong usage, 130 after Ctrl-C,
//! 143 after SIGTERM. An interrupted command leaves the archive unchanged.
//!
//! | file | owns |
//! | --- | --- |
//! | `a2store.rs` | the entry points of `a2store`, and the choice of the subcommand |
//! | `args.rs`, `query_args.rs`, `values.rs` | arguments, help texts, and parsers of option values |
//! | `simulate.rs`, `ingest.rs`, `info.rs`, `transfer.rs`, `maintain.rs`, `bench.rs` | subcommands on runs and archives |
//! | `replay/` | one position of a game, and a game in the terminal |
//! | `view.rs` | the explorer in the browser |
//! | `report.rs` | the page that shows what an archive holds |
//! | `annotate.rs` | adding, listing and dropping annotations |
//! | `critic.rs` | the error of `critic` without the Python package |
//! | `sql.rs`, `queries.rs` | running queries; listing named queries and functions |
//! | `rows.rs`, `table.rs` | query rows as a table, CSV, JSON, Parquet or Arrow; the table |
//! | `terminal.rs` | the width of the terminal, and colours |
//! | `print.rs` | numbers and JSON on standard output |
//! | `shell.rs` | completions of shells, and man pages |
//! | `open.rs` | opening archives and telling folders from URLs |
//! | `progress.rs` | the progress bar and Ctrl-C |
//! | `logging.rs` | `--log-level` and `RUST_LOG` |
//! | `exit.rs` | exit statuses and the printing of errors |
//! | `a2pack/` | the command `a2pack` |

mod a2pack;
mod a2store;
mod annotate;
mod args;
mod bench;
mod critic;
mod exit;
mod info;
mod ingest;
mod logging;
mod maintain;
mod open;
mod print;
mod progress;
mod queries;
mod query_args;
mod replay;
mod report;
mod rows;
mod shell;
mod simulate;
mod sql;
mod table;
mod terminal;
mod transfer;
mod values;
mod view;

pub use a2pack::a2pack;
#[cfg(feature = "python")]
pub(crate) use a2pack::run as run_a2pack;
pub use a2store::main;
#[cfg(feature = "python")]
pub(crate) use a2store::run as run_a2store;
