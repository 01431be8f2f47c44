//! The command `a2pack`: packs, inspects and unpacks run files.
//!
//! Results go to standard output, progress and remarks to standard error. The exit statuses are those of `a2store`. An
//! interrupted command leaves no half-written file.
//!
//! | file | owns |
//! | --- | --- |
//! | `args.rs` | arguments and help texts |
//! | `actions.rs` | the subcommands |

mod actions;
mod args;
#[cfg(test)]
mod tests;

use super::exit::conclude;
use args::{PackCli, PackCommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `a2pack` with these arguments; the first is the command's name.
pub fn a2pack(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2pack` like [`a2pack`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2pack", args, |PackCli { command, quiet }| match command {
        PackCommand::Pack(args) => actions::pack(&args, quiet),
        PackCommand::Validate(args) => actions::validate(&args, quiet),
        PackCommand::Stats(args) => actions::stats(&args, quiet),
        PackCommand::ToJsonl(args) => actions::to_jsonl(&args, quiet),
        PackCommand::Extract(args) => actions::extract(&args),
        PackCommand::Inspect(args) => actions::inspect(&args),
    })
}
