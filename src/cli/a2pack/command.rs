//! The entry points of `a2pack`, and the choice of the subcommand.

use super::actions;
use super::args::{PackCli, PackCommand};
use crate::cli::exit::conclude;
use crate::cli::shell;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `a2pack` with these arguments; the first is the command's name.
pub fn a2pack(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2pack` like [`a2pack`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2pack", args, run_command)
}

fn run_command(cli: PackCli) -> anyhow::Result<u8> {
    let quiet = cli.quiet;
    match cli.command {
        PackCommand::Pack(args) => actions::pack(&args, quiet),
        PackCommand::Validate(args) => actions::validate(&args, quiet),
        PackCommand::Stats(args) => actions::stats(&args, quiet),
        PackCommand::ToJsonl(args) => actions::to_jsonl(&args, quiet),
        PackCommand::Extract(args) => actions::extract(&args),
        PackCommand::Inspect(args) => actions::inspect(&args),
        PackCommand::Completions(args) => shell::completions::<PackCli>(&args),
    }
}
