//! The command `a2pack`, modelled on an older tool of that name.
//!
//! Results go to standard output, progress and remarks to standard error. Exit status: 0 on success, 1 if the data has
//! problems (they are listed), 2 for wrong usage and for an invalid pack in `validate`, 130 after Ctrl-C. An
//! interrupted command leaves no half-written file. `stats` and `inspect` begin with the lines of the older tool.
//!
//! | file | owns |
//! | --- | --- |
//! | `args.rs` | arguments and help texts |
//! | `actions.rs` | the subcommands |
//! | `print.rs` | stats and runs as text and as JSON |

mod actions;
mod args;
mod print;

use super::exit::conclude;
use crate::args::completions;
use args::{PackCli, PackCommand};
use std::ffi::OsString;

/// Runs `a2pack` with these arguments, and returns the exit status. The first argument is the command's name.
pub fn a2pack(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2pack", args, |cli: PackCli| {
        let quiet = cli.quiet;
        match cli.command {
            PackCommand::Pack(args) => actions::pack(&args, quiet),
            PackCommand::Validate(args) => actions::validate(&args, quiet),
            PackCommand::Stats(args) => actions::stats(&args, quiet),
            PackCommand::ToJsonl(args) => actions::to_jsonl(&args, quiet),
            PackCommand::Extract(args) => actions::extract(&args),
            PackCommand::Inspect(args) => actions::inspect(&args),
            PackCommand::Completions(args) => completions::<PackCli>(&args),
        }
    })
}

#[cfg(test)]
mod tests;
