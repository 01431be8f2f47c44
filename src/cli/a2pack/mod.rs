//! The command `a2pack`, modelled on an older tool of that name.
//!
//! Results go to standard output, progress and remarks to standard error. Exit status: 0 on success, 1 if the data has
//! problems (they are listed), 2 for wrong usage and for an invalid pack in `validate`, 130 after Ctrl-C. An
//! interrupted command leaves no half-written file. `stats` and `inspect` begin with the lines of the older tool.
//!
//! | file | owns |
//! | --- | --- |
//! | `command.rs` | the entry points, and the choice of the subcommand |
//! | `args.rs` | arguments and help texts |
//! | `actions.rs` | the subcommands |
//! | `print.rs` | stats and runs as text and as JSON |

mod actions;
mod args;
mod command;
mod print;

pub use command::a2pack;
#[cfg(feature = "python")]
pub(crate) use command::run;

#[cfg(test)]
mod tests;
