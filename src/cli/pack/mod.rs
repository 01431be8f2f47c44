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

/// Packs: many run files of 2048 games in one read-only file.
#[derive(Debug, Parser)]
#[command(name = "a2pack", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Hide progress and remarks.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Pack the run files of a folder and its subfolders.
    Pack(Pack),
    /// Check a pack and list every problem.
    Validate(Validate),
    /// Show the contents of a pack.
    Stats(Stats),
    /// Write the runs, or their steps, as JSON Lines.
    ToJsonl(ToJsonl),
    /// Write each selected run to a separate file.
    Extract(Extract),
    /// Show one run.
    Inspect(Inspect),
}

#[derive(Args, Debug)]
struct Pack {
    /// Folder with run files.
    #[arg(long, value_name = "DIR")]
    input: PathBuf,
    /// Pack to write. An existing file is replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Alignment of runs: a power of two in 8..=4096.
    #[arg(long, value_name = "BYTES", default_value_t = PackOptions::default().align)]
    align: u32,
    /// Compression of runs. Other tools read only "none".
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    compress: String,
    /// Number of threads [default: one per core].
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
    /// Check only this many runs, evenly spread [default: all].
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Number of threads [default: one per core].
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
    /// File to write, or - for standard output. An existing file is replaced.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// Decode and format on all cores, or on the number of threads in --workers.
    #[arg(long)]
    parallel: bool,
    /// Write one line per step.
    #[arg(long, conflicts_with = "runs_only")]
    by_step: bool,
    /// Write one line per run (the default).
    #[arg(long)]
    runs_only: bool,
    /// Write boards as numbers, branches as numbers and nulls, and engine and uuid in the lines of runs.
    #[arg(long)]
    compact: bool,
    /// Number of threads. Implies --parallel.
    #[arg(long)]
    workers: Option<usize>,
    /// Hide progress.
    #[arg(long)]
    no_progress: bool,
}

#[derive(Args, Debug)]
struct Extract {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// Indices of the runs, counted from 0, such as 0,5,42.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    indices: Vec<usize>,
    /// Output folder. Existing files are never overwritten.
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Args, Debug)]
struct Inspect {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    packfile: PathBuf,
    /// Index of the run, counted from 0.
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
