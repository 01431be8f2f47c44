//! The entry points of `a2pack`, the choice of the subcommand, and the exit status.

use super::actions;
use super::args::{PackCli, PackCommand};
use crate::cli::exit::{conclude, exit_status};
use crate::cli::shell;
use crate::cli::terminal::choose_colors;
use crate::error::{Error, ErrorKind};
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

/// Runs `a2pack` with these arguments; the first is the command's name.
pub fn a2pack(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2pack` like [`a2pack`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2pack", args, run_command, status_of)
}

fn run_command(cli: PackCli) -> anyhow::Result<u8> {
    choose_colors(cli.color);
    let quiet = cli.quiet;
    match cli.command {
        PackCommand::Pack(args) => actions::pack(&args, quiet),
        PackCommand::Validate(args) => actions::validate(&args, quiet),
        PackCommand::Stats(args) => actions::stats(&args, quiet),
        PackCommand::ToJsonl(args) => actions::to_jsonl(&args, quiet),
        PackCommand::Extract(args) => actions::extract(&args),
        PackCommand::Inspect(args) => actions::inspect(&args),
        PackCommand::Completions(args) => shell::completions::<PackCli>(&args),
        PackCommand::Man(args) => shell::man::<PackCli>(&args),
    }
}

/// Returns the exit status for an error: 2 if the command line is wrong, and 1 for a problem with the data.
fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>().map(Error::kind) {
        Some(ErrorKind::IndexOutOfBounds { .. }) => 2,
        Some(ErrorKind::Io { source, .. }) if another_path_helps(source.kind()) => 2,
        _ => exit_status(error),
    }
}

fn another_path_helps(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotSeekable};
    matches!(kind, AlreadyExists | IsADirectory | NotADirectory | NotSeekable)
}
