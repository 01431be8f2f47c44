//! The commands `a2store` and `a2pack`.
//!
//! [`a2store`] and [`a2pack`] are the entry points. Results go to standard output, progress and diagnostics to standard
//! error. Exit status: 0 on success, 1 if the data has problems (they are listed), 2 for wrong usage, 130 after Ctrl-C,
//! 143 after SIGTERM. An interrupted command leaves the archive at its last complete version.
//!
//! | file | owns |
//! | --- | --- |
//! | `a2store.rs` | the entry point of `a2store`, and its log lines |
//! | `commands/` | its subcommands: one file each, or one for a few |
//! | `a2pack/` | the command `a2pack` |
//! | `args.rs` | shared arguments, parsers of their values, and checks of output paths |
//! | `output.rs` | reports, query rows, errors and warnings |
//! | `progress.rs` | the progress bar and Ctrl-C |
//! | `exit.rs` | exit statuses and the printing of errors |

mod a2pack;
mod a2store;
mod args;
mod commands;
mod exit;
mod output;
mod progress;

pub use a2pack::a2pack;
pub use a2store::a2store;
