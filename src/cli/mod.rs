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
    /// Show no progress and no remarks.
    #[arg(long, short, global = true)]
    quiet: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Play seeded games and write them as run files.
    Simulate(Simulate),
    /// Add the runs in files and folders of any format to an archive, which is created if there is none.
    Ingest(Ingest),
    /// What an archive holds.
    Info(Archived),
    /// The versions of an archive, newest first.
    History(Archived),
    /// Run a query over the tables `runs` and `steps`.
    Sql(Sql),
    /// Run a named query.
    Query(NamedQuery),
    /// The named queries, or one of them.
    Queries(Queries),
    /// The functions over boards, moves and values that queries have.
    Functions(Functions),
    /// Write the runs of an archive as files of any format.
    Export(Export),
    /// Read runs of any format and write them in another, without an archive.
    Convert(Convert),
    /// Look for everything that is wrong with an archive.
    Verify(Verify),
    /// Make an archive with damaged commits usable again; without --yes, only say what would be done.
    Repair(Repair),
    /// Rewrite small data files as large ones.
    Compact(Compact),
    /// Give up old versions, and remove the files that no kept version names.
    Expire(Expire),
    /// Gather and loader rates on this machine, beside NumPy's when Python has it.
    Bench(Bench),
}

#[derive(Args, Debug)]
struct Simulate {
    /// Games to play.
    #[arg(long, default_value_t = 100)]
    runs: u32,
    /// Equal seeds give equal files.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The folder to write to; no file is overwritten.
    #[arg(long)]
    out: PathBuf,
    /// a2run2 (with the player's values) or a2t1 (without).
    #[arg(long, default_value = "a2run2", value_parser = ["a2run2", "a2t1"])]
    format: String,
    /// Spawns to look ahead, 0 to 3.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    depth: u8,
    /// Look no spawn ahead: weaker play, millions of steps a second. The same as --depth 0.
    #[arg(long, conflicts_with = "depth")]
    fast: bool,
    /// The engine's name in the files.
    #[arg(long)]
    engine: Option<String>,
    /// Threads; one per core if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct Ingest {
    /// Run files, packs, datasets, sessions and logs, and folders of them, then the archive.
    #[arg(required = true, num_args = 2.., value_names = ["INPUT", "ARCHIVE"])]
    paths: Vec<PathBuf>,
    /// Add nothing if any file does not decode.
    #[arg(long)]
    strict: bool,
    /// Go on until Ctrl-C, looking for new and changed files every so often: 60s unless given.
    #[arg(long, value_name = "PERIOD", num_args = 0..=1, default_missing_value = "60s", value_parser = period)]
    watch: Option<Duration>,
    /// How long to wait for another process that is writing to the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    wait: Duration,
    /// Threads; one per core if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// For a new archive: the tile from which a step is of the middle game.
    #[arg(long, default_value_t = crate::Phases::default().mid)]
    mid: u32,
    /// For a new archive: the tile from which a step is of the late game.
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
    /// Which runs: a condition on the columns of `runs`, such as "max_score >= 20000"; all if not given.
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    target: Target,
    /// An older version of the archive.
    #[arg(long)]
    version: Option<u64>,
    /// Whether to compare each data file with its checksum before it is first read: true unless the archive is on an
    /// object store.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
}

#[derive(Args, Debug)]
struct Convert {
    /// Run files, packs, pack.dat files, datasets, sessions and logs, and folders of them.
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Args, Debug)]
struct Target {
    /// As what: original, a2t1, a2run2, a2pack, packdat, npy, session or jsonl.
    #[arg(long)]
    format: crate::ExportFormat,
    /// Where to: a folder for run files, npy and session, a file or a folder for the others.
    #[arg(long)]
    out: PathBuf,
    /// packdat and npy: add to what is there.
    #[arg(long)]
    append: bool,
    /// jsonl: a line for each step.
    #[arg(long)]
    by_step: bool,
    /// jsonl: in the shape that DuckDB and others read as it is.
    #[arg(long)]
    compact: bool,
    /// a2pack: how runs are stored.
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    compress: String,
    /// npy: rows to a file; all in one if not given.
    #[arg(long)]
    shard_rows: Option<u64>,
    /// Threads; one per core if not given.
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
    /// An older version of it.
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
    /// Rebuild every run: its digest, and every transition against the rules.
    #[arg(long)]
    deep: bool,
    /// Threads; one per core if not given.
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
    /// Do what is said.
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
    /// Rows from which a file is full; one with half of them is left alone.
    #[arg(long, default_value_t = crate::CompactOptions::default().file_rows, value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,
    /// Threads; one per core if not given.
    #[arg(long)]
    workers: Option<usize>,
    /// How long to wait for another process that is writing to the archive.
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
    /// Versions that were replaced longer ago than this, such as 12h or 30d; the newest is always kept.
    #[arg(long, default_value = "30d", value_parser = duration)]
    older_than: Duration,
    /// How long files that no commit names stay: they may be another machine's, which has yet to commit.
    #[arg(long, default_value = "1d", value_parser = duration)]
    grace: Duration,
    /// Only say what would go.
    #[arg(long)]
    dry_run: bool,
    /// How long to wait for another process that is writing to the archive.
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
    /// One SELECT, WITH, VALUES or EXPLAIN.
    query: String,
    #[command(flatten)]
    run: RunQuery,
    /// Run the query in a process of its own, which reads nothing but the archive where the system can see to that,
    /// and is killed at the limits of memory (2GiB if not given), time (1m) and temporary files (8GiB). Whatever it
    /// does, the exit status is 1 or 2 at worst.
    #[arg(long)]
    sandbox: bool,
    /// Be the process with the limits, whose parent this is.
    #[arg(long, value_name = "PROCESS", hide = true, requires = "sandbox")]
    sandboxed: Option<u32>,
}

#[derive(Args, Debug)]
struct NamedQuery {
    /// The archive.
    archive: PathBuf,
    /// The query's name; `a2store queries` lists them.
    name: String,
    /// A folder of queries of your own, in place of those that come with a2store.
    #[arg(long)]
    folder: Option<PathBuf>,
    #[command(flatten)]
    run: RunQuery,
}

#[derive(Args, Debug)]
struct Queries {
    /// Show all of this one: what it takes and gives, and its SQL.
    name: Option<String>,
    /// A folder of queries of your own, in place of those that come with a2store.
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
    /// A parameter of the query: `-p min=20000` for `$min`, `-p 1=20000` for `$1`. The value is a JSON scalar or else
    /// text.
    #[arg(short, long = "param", value_name = "NAME=VALUE")]
    param: Vec<String>,
    /// A Parquet file that the query can read as the table of this name.
    #[arg(long = "table", value_name = "NAME=FILE")]
    table: Vec<String>,
    /// How to print the rows: a table of the first ones, or all of them as CSV, as JSON (an object a line), as a
    /// Parquet file, or as an Arrow IPC stream.
    #[arg(long, default_value = "table")]
    format: Format,
    /// The file to write to, instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Rows that a table shows.
    #[arg(long, default_value_t = 40)]
    max_rows: usize,
    /// Print the plan instead of the rows: what is read, and the filters that run inside the Parquet reader.
    #[arg(long)]
    explain: bool,
    /// An older version of the archive.
    #[arg(long)]
    version: Option<u64>,
    /// Whether to compare each data file with its checksum before it is first read: true unless the archive is on an
    /// object store.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    checksums: Option<bool>,
    /// Memory that the query may hold, such as 512MiB; half of the machine's if not given. Sorts and groups go to
    /// temporary files before they fail.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<u64>,
    /// What those temporary files may hold; 64GiB if not given.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    spill_limit: Option<u64>,
    /// How long the query may take.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    time_limit: Option<Duration>,
    /// Rows that the result may have.
    #[arg(long, value_name = "ROWS")]
    row_limit: Option<u64>,
    /// Bytes that the result may have, as Arrow arrays.
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
