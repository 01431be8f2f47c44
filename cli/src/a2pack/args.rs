//! Arguments of `a2pack`.

use crate::args::{CompletionsArgs, WorkArgs};
use a2store::format::PackOptions;
use clap::{Args, Parser, Subcommand};
use std::num::ParseIntError;
use std::path::PathBuf;

/// Packs: many run files of 2048 games in one read-only file.
#[derive(Debug, Parser)]
#[command(name = "a2pack", version, arg_required_else_help = true)]
pub(super) struct PackCli {
    #[command(subcommand)]
    pub(super) command: PackCommand,
    /// Hide progress, warnings and remarks.
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum PackCommand {
    /// Pack the run files of a folder and its subfolders.
    Pack(PackArgs),
    /// Check a pack and list every problem.
    Validate(ValidateArgs),
    /// Show the contents of a pack.
    Stats(StatsArgs),
    /// Write the runs, or their steps, as JSON Lines.
    ToJsonl(ToJsonlArgs),
    /// Write each selected run to a separate file.
    Extract(ExtractArgs),
    /// Show one run.
    Inspect(InspectArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
pub(super) struct PackArgs {
    /// Folder with run files.
    #[arg(long, value_name = "DIR")]
    pub(super) input: PathBuf,
    /// Pack to write. An existing pack or empty file is replaced; any other file is an error.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Alignment of runs in bytes, 1 to 1048576.
    #[arg(long, value_name = "BYTES", default_value_t = PackOptions::default().align)]
    pub(super) align: u32,
    /// Has no effect, because each run always gets a checksum. Accepted for compatibility.
    #[arg(long = "entry-crc")]
    _entry_crc: bool,
    /// Compression of runs. Other tools reject a compressed pack.
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    pub(super) compress: String,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Args, Debug)]
pub(super) struct ValidateArgs {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    pub(super) packfile: PathBuf,
    /// Check only this many runs, evenly spread [default: all].
    #[arg(long, value_name = "N")]
    pub(super) sample: Option<usize>,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Args, Debug)]
pub(super) struct StatsArgs {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    pub(super) packfile: PathBuf,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ToJsonlArgs {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    pub(super) packfile: PathBuf,
    /// File to write, or - for standard output. An existing file is replaced.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Decode and format on all cores, or on the number of threads in --workers.
    #[arg(long)]
    pub(super) parallel: bool,
    /// Write one line per step.
    #[arg(long, visible_alias = "steps", conflicts_with = "runs_only")]
    pub(super) by_step: bool,
    /// Write one line per run (the default).
    #[arg(long)]
    pub(super) runs_only: bool,
    /// Write boards as numbers, branches as numbers and nulls, and engine and uuid in the lines of runs.
    #[arg(long)]
    pub(super) compact: bool,
    /// Number of threads. Implies --parallel.
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Hide progress, warnings and remarks.
    #[arg(long)]
    pub(super) no_progress: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExtractArgs {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    pub(super) packfile: PathBuf,
    /// Indices of the runs, counted from 0, such as 0,5,42. Spaces and empty elements are ignored.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = index, required = true)]
    pub(super) indices: Vec<Option<usize>>,
    /// Output folder. Existing files are never overwritten.
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
}

#[derive(Args, Debug)]
pub(super) struct InspectArgs {
    /// The pack.
    #[arg(long, value_name = "FILE")]
    pub(super) packfile: PathBuf,
    /// Index of the run, counted from 0.
    #[arg(long, value_name = "N")]
    pub(super) index: usize,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Parses an element of a list of indices, which may be empty.
fn index(text: &str) -> Result<Option<usize>, ParseIntError> {
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some),
    }
}
