//! The commands `a2store` and `a2pack`.
//!
//! [`a2store`] and [`a2pack`] are the entry points. Results go to standard output, progress and diagnostics to standard
//! error. Exit status: 0 on success, 1 if the data has problems (they are listed), 2 for wrong usage, 130 after Ctrl-C,
//! 143 after SIGTERM. An interrupted command leaves the archive unchanged.
//!
//! | file | owns |
//! | --- | --- |
//! | `a2store.rs` | the entry point of `a2store` |
//! | `commands/` | its subcommands: one file each, or one for a few |
//! | `a2pack/` | the command `a2pack` |
//! | `rows.rs` | query rows as a table, CSV, JSON, Parquet or Arrow |
//! | `terminal.rs` | the width of the terminal, and colours |
//! | `print.rs` | numbers and JSON on standard output |
//! | `values.rs` | parsers of option values |
//! | `open.rs` | opening archives, and checks of output paths |
//! | `progress.rs` | the progress bar and Ctrl-C |
//! | `logging.rs` | log lines, as `RUST_LOG` selects them |
//! | `exit.rs` | exit statuses and the printing of errors |

mod a2pack;
mod a2store;
mod commands;
mod exit;
mod logging;
mod open;
mod print;
mod progress;
mod rows;
mod terminal;
mod values;

pub use a2pack::a2pack;
pub use a2store::a2store;
