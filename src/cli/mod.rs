//! The commands `a2store` and `a2pack`.
//!
//! Results go to standard output, progress and diagnostics to standard error. Exit status: 0 on success, 1 if the
//! data has problems (they are listed), 2 for wrong usage, 130 after Ctrl-C. An interrupted command leaves the
//! archive unchanged.

mod bench;
mod commands;
mod interrupt;
mod maintain;
mod output;
mod pack;
#[cfg(unix)]
mod sandbox;
mod sql;
mod transfer;

pub use pack::a2pack;
#[cfg(feature = "python")]
pub(crate) use pack::run as run_a2pack;

use crate::error::{Error, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// 2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.
#[derive(Debug, Parser)]
#[command(name = "a2store", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Hide progress and remarks.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play seeded games and write them as run files.
    Simulate(Simulate),
    /// Add the runs of files and folders in any format to an archive. Creates the archive if it does not exist.
    Ingest(Ingest),
    /// Show the contents of an archive.
    Info(Archived),
    /// List the versions of an archive, newest first.
    History(Archived),
    /// Run a query over the tables `runs` and `steps`.
    Sql(Sql),
    /// Run a named query.
    Query(NamedQuery),
    /// List the named queries, or show one.
    Queries(Queries),
    /// List the SQL functions over boards, moves and values.
    Functions(Functions),
    /// Write the runs of an archive to files in any format.
    Export(Export),
    /// Convert run files from any format to another, without an archive.
    Convert(Convert),
    /// Check an archive and list every problem.
    Verify(Verify),
    /// Make an archive with damaged commits usable again. Without --yes, only show the plan.
    Repair(Repair),
    /// Merge small data files into large ones.
    Compact(Compact),
    /// Remove old versions, and the files that no remaining version references.
    Expire(Expire),
    /// Measure gather and loader rates on this machine, compared with NumPy if Python has it.
    Bench(Bench),
}

#[derive(Args, Debug)]
struct Simulate {
    /// Number of games to play.
    #[arg(long, default_value_t = 100)]
    runs: u32,
    /// Random seed. Equal seeds produce equal files.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Output folder. Existing files are never overwritten.
    #[arg(long)]
    out: PathBuf,
    /// File format: a2run2 (with the player's values) or a2t1 (without).
    #[arg(long, default_value = "a2run2", value_parser = ["a2run2", "a2t1"])]
    format: String,
    /// Search depth in tile spawns, 0 to 3.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    depth: u8,
    /// Same as --depth 0: weaker play, but millions of steps per second.
    #[arg(long, conflicts_with = "depth")]
    fast: bool,
    /// Engine name to store in the files.
    #[arg(long)]
    engine: Option<String>,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Ingest {
    /// Inputs, then the archive. An input is a run file, pack, dataset, session or log, or a folder of them.
    #[arg(required = true, num_args = 2.., value_names = ["INPUT", "ARCHIVE"])]
    paths: Vec<PathBuf>,
    /// Add nothing if any file fails to decode.
    #[arg(long)]
    strict: bool,
    /// Keep running until Ctrl-C, and ingest new and changed files once per period (60s if no period is given).
    #[arg(long, value_name = "PERIOD", num_args = 0..=1, default_missing_value = "60s", value_parser = period)]
    watch: Option<Duration>,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    wait: Duration,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// New archives only: the highest tile at which the middle game begins.
    #[arg(long, default_value_t = crate::Phases::default().mid)]
    mid: u32,
    /// New archives only: the highest tile at which the late game begins.
    #[arg(long, default_value_t = crate::Phases::default().late)]
    late: u32,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Export {
    /// The archive.
    archive: PathBuf,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    version: Option<u64>,
    /// Verify the checksum of each data file before its first read [default: true, but false on an object store].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
}

#[derive(Args, Debug)]
struct Convert {
    /// Run files, packs, pack.dat files, datasets, sessions and logs, or folders of them.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
struct Target {
    /// Output format: original, a2t1, a2run2, a2pack, packdat, npy, session or jsonl.
    #[arg(long)]
    format: crate::ExportFormat,
    /// Output path: a folder for run files, npy and session, a file or folder for the other formats.
    #[arg(long)]
    out: PathBuf,
    /// packdat, npy: append to existing output.
    #[arg(long)]
    append: bool,
    /// jsonl: write one line per step instead of per run.
    #[arg(long)]
    by_step: bool,
    /// jsonl: use the compact layout, which DuckDB and other tools read directly.
    #[arg(long)]
    compact: bool,
    /// a2pack: compression of runs.
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    compress: String,
    /// npy: rows per file [default: all in one file].
    #[arg(long)]
    shard_rows: Option<u64>,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Archived {
    /// The archive.
    archive: PathBuf,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    version: Option<u64>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Verify {
    /// The archive.
    archive: PathBuf,
    /// Also rebuild every run, and check its digest and each transition against the rules.
    #[arg(long)]
    deep: bool,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Repair {
    /// The archive.
    archive: PathBuf,
    /// Carry out the plan.
    #[arg(long)]
    yes: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Compact {
    /// The archive.
    archive: PathBuf,
    /// Target number of rows per data file. A file with at least half of them is left alone.
    #[arg(long, default_value_t = crate::CompactOptions::default().file_rows, value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,
    /// Number of threads [default: one per core].
    #[arg(long)]
    workers: Option<usize>,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    wait: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Expire {
    /// The archive.
    archive: PathBuf,
    /// Remove versions that were replaced longer ago than this, such as 12h or 30d. The newest version always stays.
    #[arg(long, default_value = "30d", value_parser = duration)]
    older_than: Duration,
    /// How long unreferenced files stay. They may belong to another machine's commit in progress.
    #[arg(long, default_value = "1d", value_parser = duration)]
    grace: Duration,
    /// Only show what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    wait: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// Parses the period between two looks for new files, 100 ms to 365 days.
fn period(text: &str) -> Result<Duration, String> {
    let period = duration(text).map_err(|error| error.to_string())?;
    let range = Duration::from_millis(100)..=Duration::from_secs(365 * 24 * 60 * 60);
    if range.contains(&period) { Ok(period) } else { Err("expected 100ms to 365d".into()) }
}

/// Parses a duration: `90s`, `15m`, `12h`, `30d`, or a sum such as `1h 30m`.
fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text)
}

#[derive(Args, Debug)]
struct Sql {
    /// The archive.
    archive: PathBuf,
    /// A single SELECT, WITH, VALUES or EXPLAIN statement.
    query: String,
    #[command(flatten)]
    run: RunQuery,
    /// Run the query in a separate process that is killed when it exceeds its limits. The defaults are 2GiB of memory,
    /// 1m of time and 8GiB of temporary files. On Linux with Landlock, the process reads only the archive. If the
    /// process crashes, the exit status is 1.
    #[arg(long)]
    sandbox: bool,
    /// Act as the confined process, started by the process with this id.
    #[arg(long, value_name = "PROCESS", hide = true, requires = "sandbox")]
    sandboxed: Option<u32>,
}

#[derive(Args, Debug)]
struct NamedQuery {
    /// The archive.
    archive: PathBuf,
    /// Name of the query, as listed by `a2store queries`.
    name: String,
    /// Folder with your own queries. Replaces the queries that come with a2store.
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    run: RunQuery,
}

#[derive(Args, Debug)]
struct Queries {
    /// Show this query in full: its parameters, its columns and its SQL.
    name: Option<String>,
    /// Folder with your own queries. Replaces the queries that come with a2store.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Functions {
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// The options of a query: parameters, tables, limits and output.
#[derive(Args, Debug)]
struct RunQuery {
    /// Query parameter: `-p min=20000` sets `$min`, `-p 1=20000` sets `$1`. A value that is no JSON scalar is text.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// Parquet file to query as a table with this name.
    #[arg(long = "table", value_name = "NAME=FILE")]
    table: Vec<String>,
    /// Output format: a table of the first rows, or all rows as CSV, as JSON (one object per line), as a Parquet file,
    /// or as an Arrow IPC stream.
    #[arg(long, default_value = "table")]
    format: Format,
    /// Output file [default: standard output].
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Maximum number of rows that a table shows.
    #[arg(long, default_value_t = 40)]
    max_rows: usize,
    /// Print the query plan instead of the rows, with the filters that run inside the Parquet reader.
    #[arg(long)]
    explain: bool,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    version: Option<u64>,
    /// Verify the checksum of each data file before its first read [default: true, but false on an object store].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
    /// Memory limit, such as 512MiB [default: half of the machine's memory]. Sorts and groupings spill to temporary
    /// files before they fail.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// Limit for those temporary files [default: 64GiB].
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    spill_limit: Option<u64>,
    /// Time limit.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    time_limit: Option<Duration>,
    /// Maximum number of rows in the result.
    #[arg(long, value_name = "ROWS")]
    row_limit: Option<u64>,
    /// Maximum size of the result as Arrow arrays.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    byte_limit: Option<u64>,
}

/// Parses a number of bytes, plain or with a binary unit: `512MiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "kib" | "k" => Some(10),
        "mib" | "m" => Some(20),
        "gib" | "g" => Some(30),
        "tib" | "t" => Some(40),
        _ => None,
    };
    let bytes =
        digits.trim_end().parse::<u64>().ok().zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "expected a number of bytes such as 4096, 512MiB or 2GiB".into())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
    Parquet,
    Arrow,
}

#[derive(Args, Debug)]
struct Bench {
    /// The archive.
    archive: PathBuf,
    /// Rows per batch.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_size: u32,
    /// Print as JSON.
    #[arg(long)]
    json: bool,
}

/// The exit status after Ctrl-C, by the convention of shells: 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs `a2store` with these arguments, of which the first is the command's name.
pub fn main(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> ExitCode {
    ExitCode::from(run(args))
}

/// Runs `a2store` like [`main`] and returns the exit status as a number.
pub(crate) fn run(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> u8 {
    run_as(args, None)
}

/// Runs `a2store` like [`run`] inside another program, such as Python.
///
/// `program` is the command line that starts `a2store` again. `None` means that this executable is `a2store`.
pub(crate) fn run_as(args: impl IntoIterator<Item = impl Into<OsString> + Clone>, program: Option<&[OsString]>) -> u8 {
    conclude("a2store", args, |cli| commands::run(cli, program), exit_status)
}

/// Parses a command line, calls `work`, prints its error, and returns the exit status.
fn conclude<C: Parser>(
    name: &str,
    args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    work: impl FnOnce(C) -> anyhow::Result<u8>,
    status_of: impl FnOnce(&anyhow::Error) -> u8,
) -> u8 {
    let cli = match C::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    match work(cli) {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            eprintln!("{name}: {error:#}");
            match error.downcast_ref::<Error>().map(Error::kind) {
                Some(ErrorKind::Cancelled) => INTERRUPTED,
                _ => status_of(&error),
            }
        }
    }
}

/// Returns whether the reader of standard output closed the pipe, which counts as success.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause.downcast_ref::<io::Error>().or_else(|| match cause.downcast_ref::<Error>()?.kind() {
            ErrorKind::Io { source, .. } => Some(source),
            _ => None,
        });
        io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

/// Returns 2 for an error that another command line avoids, 1 for a problem with the data.
fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>().map(Error::kind) {
        Some(
            ErrorKind::Argument { .. }
            | ErrorKind::Query { .. }
            | ErrorKind::QueryRefused { .. }
            | ErrorKind::NotAnArchive { .. }
            | ErrorKind::ArchiveExists { .. }
            | ErrorKind::VersionNotFound { .. },
        ) => 2,
        Some(ErrorKind::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) =>
        {
            2
        }
        None if error.is::<Usage>() => 2,
        _ => 1,
    }
}

/// A usage error, which another command line avoids.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);
