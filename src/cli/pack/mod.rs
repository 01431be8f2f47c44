//! The command `a2pack`, modelled on the field's older tool of that name.
//!
//! Results go to standard output, progress and remarks to standard error. Exit status: 0 on success, 1 if the data has
//! problems (they are listed), 2 for wrong usage, 130 after Ctrl-C. An interrupted command leaves no half-written file.

mod actions;
mod print;

use super::{conclude, exit_status};
use crate::PackOptions;
use crate::error::{Error, ErrorKind};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run files of 2048 games in one read-only file.
#[derive(Debug, Parser)]
#[command(name = "a2pack", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Show no progress and no remarks.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pack the run files of a folder and of the folders in it.
    Pack(Pack),
    /// Look for everything that is wrong with a pack.
    Validate(Validate),
    /// What a pack holds.
    Stats(Stats),
    /// Write the runs, or their steps, as JSON Lines.
    ToJsonl(ToJsonl),
    /// Write runs to files of their own.
    Extract(Extract),
    /// What one run is.
    Inspect(Inspect),
}

#[derive(Args, Debug)]
struct Pack {
    /// The folder.
    #[arg(long, value_name = "DIR")]
    input: PathBuf,
    /// The pack to write; one of that name is replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Runs begin at multiples of so many bytes: a power of two in 8..=4096.
    #[arg(long, value_name = "BYTES", default_value_t = PackOptions::default().align)]
    align: u32,
    /// How runs are stored. Other tools read only "none".
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    compress: String,
    /// Threads; one per core if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Validate {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// Look at so many runs only, evenly spread.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Threads; one per core if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Stats {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct ToJsonl {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// The file to write, - for standard output; one of that name is replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Decode and format on all cores, or on so many as --workers says.
    #[arg(long)]
    parallel: bool,
    /// A line per step.
    #[arg(long, conflicts_with = "runs_only")]
    by_step: bool,
    /// A line per run, as without it.
    #[arg(long)]
    runs_only: bool,
    /// Boards as numbers, branches as numbers and nulls; engine and uuid in the lines of runs.
    #[arg(long)]
    compact: bool,
    /// Threads; implies --parallel.
    #[arg(long)]
    workers: Option<usize>,
    /// Show no progress.
    #[arg(long)]
    no_progress: bool,
}

#[derive(Args, Debug)]
struct Extract {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// The runs, from 0: 0,5,42.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    indices: Vec<usize>,
    /// The folder to write to; no file is overwritten.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Args, Debug)]
struct Inspect {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// The run, from 0.
    #[arg(long, value_name = "N")]
    index: usize,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `a2pack` with these arguments, of which the first is the command's name.
pub fn a2pack(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2pack` like [`a2pack`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    conclude("a2pack", args, work, status_of)
}

fn work(cli: Cli) -> anyhow::Result<u8> {
    let quiet = cli.quiet;
    match cli.command {
        Command::Pack(args) => actions::pack(&args, quiet),
        Command::Validate(args) => actions::validate(&args, quiet),
        Command::Stats(args) => actions::stats(&args, quiet),
        Command::ToJsonl(args) => actions::to_jsonl(&args, quiet),
        Command::Extract(args) => actions::extract(&args),
        Command::Inspect(args) => actions::inspect(&args),
    }
}

fn status_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>().map(Error::kind) {
        Some(ErrorKind::IndexOutOfBounds { .. }) => 2,
        Some(ErrorKind::Io { source, .. }) if is_mended_by_another_path(source.kind()) => 2,
        _ => exit_status(error),
    }
}

fn is_mended_by_another_path(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{AlreadyExists, IsADirectory, NotADirectory, NotSeekable};
    matches!(kind, AlreadyExists | IsADirectory | NotADirectory | NotSeekable)
}

#[cfg(test)]
mod tests;
