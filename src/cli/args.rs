//! Arguments of `a2store`, except for those of queries.

use super::logging::LogLevel;
use super::query_args::{FunctionsArgs, NamedQueryArgs, QueriesArgs, SqlArgs};
use super::shell::{CompletionsArgs, ManArgs};
use super::values::{conversion_format, duration, export_format, period, report_groups};
use crate::board::Palette;
use crate::explore::Thresholds;
use crate::{ExportFormat, ReportGroups};
use clap::{Args, ColorChoice, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// 2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.
#[derive(Debug, Parser)]
#[command(name = "a2store", version, arg_required_else_help = true)]
pub(super) struct StoreCli {
    #[command(subcommand)]
    pub(super) command: StoreCommand,
    /// Hide progress and remarks.
    #[arg(long, short, global = true)]
    pub(super) quiet: bool,
    /// When to print colours. By default, only on a terminal, unless `NO_COLOR` or `CLICOLOR_FORCE` is set.
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto")]
    pub(super) color: ColorChoice,
    /// Write log events of this level and above to standard error. By default, the environment variable `RUST_LOG` sets
    /// the filter, for example `a2store::query=debug`.
    #[arg(long, value_name = "LEVEL", global = true)]
    pub(super) log_level: Option<LogLevel>,
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Play seeded games and write them as run files.
    Simulate(SimulateArgs),
    /// Add the runs of files and folders in any format to an archive. Creates the archive if it does not exist.
    Ingest(IngestArgs),
    /// Show the contents of an archive.
    Info(ArchiveArgs),
    /// List the versions of an archive, newest first.
    History(ArchiveArgs),
    /// Write an HTML report of an archive: one file that works offline.
    Report(ReportArgs),
    /// Explore an archive in a browser: runs, replays, positions, SQL, and the report.
    View(ViewArgs),
    /// Print one position of a game: the board, the engine's values, and the predictions of models.
    Show(ShowArgs),
    /// Replay a game in the terminal.
    Replay(ReplayArgs),
    /// List the columns of the tables `runs`, `steps` and `annotations`.
    Schema(SchemaArgs),
    /// Run a query over the tables `runs`, `steps` and `annotations`.
    Sql(SqlArgs),
    /// Run a named query.
    Query(NamedQueryArgs),
    /// List the named queries, or show one.
    Queries(QueriesArgs),
    /// List the SQL functions over boards, moves and values.
    Functions(FunctionsArgs),
    /// Write the runs of an archive to files in any format.
    Export(ExportArgs),
    /// Convert run files from any format to another, without an archive.
    Convert(ConvertArgs),
    /// Add the predictions of a model for the steps of an archive, list the annotated models, or drop one.
    Annotate(AnnotateArgs),
    /// Check an archive and list every problem.
    Verify(VerifyArgs),
    /// Make an archive with damaged commits usable again. Without --yes, only show what would change.
    Repair(RepairArgs),
    /// Merge small data files into large ones.
    Compact(CompactArgs),
    /// Remove old versions, and the files that no remaining version references. Without --yes, only show what would be
    /// removed.
    Expire(ExpireArgs),
    /// Measure gather and loader rates on this machine, compared with NumPy if Python has it.
    Bench(BenchArgs),
    /// Write embeddings of a session's steps, or train a critic on them. Needs the Python package.
    #[command(disable_help_flag = true)]
    Critic(CriticArgs),
    /// Print the completion script of a shell.
    Completions(CompletionsArgs),
    /// Write the man pages of all commands to a folder.
    Man(ManArgs),
}

#[derive(Args, Debug)]
pub(super) struct SimulateArgs {
    /// Number of games to play.
    #[arg(long, default_value_t = 100)]
    pub(super) runs: u32,
    /// Random seed. Equal seeds produce equal files.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// Output folder. Existing files are never overwritten.
    #[arg(short, long, alias = "out")]
    pub(super) output: PathBuf,
    /// File format: a2run2 (with the player's values) or a2t1 (without).
    #[arg(long, default_value = "a2run2", value_parser = ["a2run2", "a2t1"])]
    pub(super) format: String,
    /// Search depth in tile spawns, 0 to 3.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(super) depth: u8,
    /// Same as --depth 0: weaker play, but millions of steps per second.
    #[arg(long, conflicts_with = "depth")]
    pub(super) fast: bool,
    /// Engine name to store in the files. It does not change how the built-in player plays.
    #[arg(long, value_name = "NAME")]
    pub(super) label: Option<String>,
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct IngestArgs {
    /// Run files, packs, datasets, sessions and logs, or folders of them. The archive comes last: like `cp`, this command
    /// has any number of sources and one target.
    #[arg(required = true, value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,
    /// The archive.
    pub(super) archive: PathBuf,
    /// Add nothing if any file fails to decode.
    #[arg(long)]
    pub(super) strict: bool,
    /// Keep or skip a new run of a game that the archive already has, for example in another format.
    #[arg(long, value_name = "ACTION", default_value = "keep", value_parser = ["keep", "skip"])]
    pub(super) on_twin: String,
    /// Keep running until Ctrl-C, and ingest new and changed files once per period (60s if no period is given).
    #[arg(long, value_name = "PERIOD", num_args = 0..=1, default_missing_value = "60s", value_parser = period)]
    pub(super) watch: Option<Duration>,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub(super) wait: Duration,
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// New archives only: the highest tile at which the middle game begins.
    #[arg(long, default_value_t = crate::Phases::default().mid)]
    pub(super) mid: u32,
    /// New archives only: the highest tile at which the late game begins.
    #[arg(long, default_value_t = crate::Phases::default().late)]
    pub(super) late: u32,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    pub(super) condition: Option<String>,
    /// Output format. `original` restores the ingested run files.
    #[arg(long, value_parser = export_format())]
    pub(super) format: ExportFormat,
    #[command(flatten)]
    pub(super) target: ExportTargetArgs,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    pub(super) version: Option<u64>,
    /// Verify the checksum of each data file before its first read [default: true, but false on an object store].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) checksums: Option<bool>,
}

#[derive(Args, Debug)]
pub(super) struct ConvertArgs {
    /// Run files, packs, pack.dat files, datasets, sessions and logs, or folders of them.
    #[arg(required = true)]
    pub(super) inputs: Vec<PathBuf>,
    /// Output format.
    #[arg(long, value_parser = conversion_format())]
    pub(super) format: ExportFormat,
    #[command(flatten)]
    pub(super) target: ExportTargetArgs,
}

#[derive(Args, Debug)]
pub(super) struct ExportTargetArgs {
    /// Output path: a folder for run files, npy, session and macroxue, a file or folder for the other formats.
    #[arg(short, long, alias = "out")]
    pub(super) output: PathBuf,
    /// packdat, npy, macroxue: append to existing output.
    #[arg(long)]
    pub(super) append: bool,
    /// jsonl: write one line per step instead of per run.
    #[arg(long)]
    pub(super) by_step: bool,
    /// jsonl: use the compact layout, which DuckDB and other tools read directly.
    #[arg(long)]
    pub(super) compact: bool,
    /// a2pack: compression of runs.
    #[arg(long, default_value = "none", value_parser = ["none", "zstd", "lz4"])]
    pub(super) compress: String,
    /// npy, session, macroxue: rows per file [default: all in one file].
    #[arg(long)]
    pub(super) shard_rows: Option<u64>,
    /// session: whether to write the moves [default: true if the first run has all of its moves].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(super) moves: Option<bool>,
    /// Skip and list runs that the format cannot hold, instead of stopping at the first one. `convert` also skips runs
    /// and files that cannot be read.
    #[arg(long)]
    pub(super) skip_errors: bool,
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ViewArgs {
    /// Archive.
    pub(super) archive: PathBuf,
    /// Version to show, without later ones [default: the newest, and those that are committed meanwhile].
    #[arg(long)]
    pub(super) version: Option<u64>,
    /// Port on this machine [default: any free one].
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    pub(super) port: u16,
    /// Print the address only.
    #[arg(long)]
    pub(super) no_browser: bool,
    /// File of the notes, created with the first note [default: ARCHIVE.notes.parquet beside the archive].
    #[arg(long, value_name = "FILE")]
    pub(super) notes: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// The file to write.
    #[arg(short, long, default_value = "report.html")]
    pub(super) output: PathBuf,
    /// Replace an existing file.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// SQL condition on the columns of `runs`, such as "max_score >= 20000" [default: all runs].
    #[arg(long = "where", value_name = "CONDITION")]
    pub(super) condition: Option<String>,
    /// The groups of runs to compare. For recordings and sessions, the engine is the tag of the model.
    #[arg(long, value_name = "GROUPS", default_value = "engine", value_parser = report_groups())]
    pub(super) by: ReportGroups,
    /// Compare these two groups only.
    #[arg(long, num_args = 2, value_names = ["A", "B"])]
    pub(super) compare: Option<Vec<String>>,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    pub(super) version: Option<u64>,
}

/// A game, and how to show it.
#[derive(Args, Debug)]
pub(super) struct GameArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// The run's id: `run_id` of the tables `runs` and `steps`.
    #[arg(id = "run_id", value_name = "RUN")]
    pub(super) run: u32,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    pub(super) version: Option<u64>,
    /// Smallest loss of a blunder: the best value minus the value of the played move, both from 0 to 1.
    #[arg(long, value_name = "LOSS", default_value_t = Thresholds::default().min_loss)]
    pub(super) min_loss: f32,
    /// Largest gap of a hard move: the best value minus the second best, both from 0 to 1. A gap of 0 is not a
    /// hard move.
    #[arg(long, value_name = "GAP", default_value_t = Thresholds::default().max_gap)]
    pub(super) max_gap: f32,
    /// Colours of the tiles: those of the game, or colours that are in order of lightness.
    #[arg(long, value_name = "COLORS", default_value = "classic", value_parser = ["classic", "viridis"])]
    tiles: String,
}

impl GameArgs {
    /// Returns the colours of the tiles.
    pub(super) fn palette(&self) -> Palette {
        if self.tiles == "viridis" { Palette::Viridis } else { Palette::Classic }
    }
}

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    pub(super) game: GameArgs,
    /// The step to show: `step_index` of the table `steps` [default: the last position].
    #[arg(long)]
    pub(super) step: Option<u32>,
}

#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    #[command(flatten)]
    pub(super) game: GameArgs,
    /// The step to begin at: `step_index` of the table `steps` [default: the first].
    #[arg(long)]
    pub(super) step: Option<u32>,
    /// Write a page that replays the game in any browser, without network, to this file.
    #[arg(short, long, value_name = "FILE.html")]
    pub(super) output: Option<PathBuf>,
    /// Replace an existing file.
    #[arg(long, requires = "output")]
    pub(super) overwrite: bool,
}

#[derive(Args, Debug)]
pub(super) struct ArchiveArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    pub(super) version: Option<u64>,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// The table [default: all].
    #[arg(value_parser = crate::TableName::ALL.map(crate::TableName::name))]
    pub(super) table: Option<String>,
    /// Version of the archive to read [default: the newest].
    #[arg(long)]
    pub(super) version: Option<u64>,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct AnnotateArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// The model's name in the table `annotations`. Without a model, list the annotated models.
    pub(super) model: Option<String>,
    /// A folder with annotations.npy or shards of it, and with the metadata.db of the annotated games.
    #[arg(value_name = "FOLDER")]
    pub(super) annotations: Option<PathBuf>,
    /// The path that the annotated games were ingested from, or a folder above it [default: any].
    #[arg(long)]
    pub(super) source: Option<PathBuf>,
    /// Replace the model's annotations.
    #[arg(long)]
    pub(super) replace: bool,
    /// Allow steps without annotations in annotated runs.
    #[arg(long)]
    pub(super) partial: bool,
    /// Drop the model's annotations.
    #[arg(long, conflicts_with_all = ["annotations", "source", "replace", "partial"])]
    pub(super) drop: bool,
    /// Only check, and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub(super) wait: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Also rebuild every run, and check its digest and each transition against the rules.
    #[arg(long)]
    pub(super) deep: bool,
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct RepairArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    #[command(flatten)]
    pub(super) consent: ConsentArgs,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

// The options of a command that removes versions from the history. A doc comment here would become help text.
#[derive(Args, Debug)]
pub(super) struct ConsentArgs {
    /// Change the archive. Versions that this removes cannot be restored.
    #[arg(long)]
    pub(super) yes: bool,
    /// Change nothing, and only show what would change (the default).
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

#[derive(Args, Debug)]
pub(super) struct CompactArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Target number of rows per data file. A file with at least half of them is left alone.
    #[arg(long, default_value_t = crate::CompactOptions::default().file_rows, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) file_rows: u64,
    /// Only show what would be merged.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Number of threads [default: one per core].
    #[arg(long)]
    pub(super) workers: Option<usize>,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub(super) wait: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct ExpireArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Remove versions that were replaced longer ago than this, such as 12h or 30d. The newest version always stays.
    #[arg(long, default_value = "30d", value_parser = duration)]
    pub(super) older_than: Duration,
    /// How long unreferenced files stay. They may belong to another machine's commit in progress.
    #[arg(long, default_value = "1d", value_parser = duration)]
    pub(super) grace: Duration,
    #[command(flatten)]
    pub(super) consent: ConsentArgs,
    /// How long to wait for another writer's lock on the archive.
    #[arg(long, default_value = "10m", value_parser = duration)]
    pub(super) wait: Duration,
    /// Print the report as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Args, Debug)]
pub(super) struct CriticArgs {
    /// What to do.
    #[arg(value_parser = ["embed", "train"])]
    pub(super) command: String,
    /// Arguments, as listed by `a2store critic embed --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) arguments: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(super) struct BenchArgs {
    /// The archive.
    pub(super) archive: PathBuf,
    /// Rows per batch.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) batch_size: u32,
    /// Print as JSON.
    #[arg(long)]
    pub(super) json: bool,
}
