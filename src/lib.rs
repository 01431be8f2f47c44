//! 2048 self-play games as a Parquet archive, SQL over it, and shuffled training batches at memory speed.
//!
//! ```text
//! runs ──ingest──▶ Archive (Parquet + manifests) ──SQL──▶ StepTable in RAM ──gather──▶ batches
//! a2t1 a2run2 a2pack   DuckDB, pyarrow, polars read it       32-byte rows, NumPy,          shuffled, resumable,
//! pack.dat npy …                                             Arrow C                       never touch Parquet
//! ```
//!
//! # A tour
//!
//! ```
//! use a2store::{
//!     Archive, CancellationToken, IngestOptions, LoaderOptions, MaterializeOptions, Phases, ScalarValue, SimulateOptions,
//! };
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! // `&()` ignores progress reports. The token stops long work: another thread may cancel a clone of it.
//! let cancel = CancellationToken::new();
//!
//! // Write run files. An engine usually does this; here the built-in player does.
//! a2store::simulate(root.join("runs"), &SimulateOptions::default().with_runs(4).with_seed(1), &(), &cancel)?;
//!
//! // Ingest them: new runs are added, files that do not decode are reported.
//! let mut archive = Archive::create(root.join("games.a2"), Phases::default())?;
//! let report = archive.ingest([root.join("runs")], &IngestOptions::default(), &(), &cancel)?;
//! assert_eq!((report.accepted, report.rejected), (4, 0));
//!
//! // Choose the steps by SQL. `$min` is a bound parameter.
//! let query = archive.sql(
//!     "SELECT * FROM steps WHERE max_score >= $min AND phase <> 'late'",
//!     vec![("min", ScalarValue::from(1_000_u64))],
//! )?;
//!
//! // Copy the chosen rows into one contiguous table in memory.
//! let table = query.materialize(&MaterializeOptions::default(), &(), &cancel)?;
//! assert_eq!(table.layout().stride(), 32);
//!
//! // Load them: every epoch serves each row once, in a new order.
//! let loader = table.loader(LoaderOptions::default().with_batch_size(512).with_seed(1))?;
//! for epoch in 0..2 {
//!     loader.set_epoch(epoch);
//!     let rows: usize = loader.batches()?.map(|batch| batch.num_rows()).sum();
//!     assert_eq!(rows as u64, table.num_rows());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The modules
//!
//! Data flows one way, and **a module imports only from those above it** in this list:
//!
//! | module | owns |
//! | --- | --- |
//! | `error` | the error type: what failed, where, what was expected and found |
//! | `cancellation` | cancellation of long work |
//! | `clock` | the system clock |
//! | `machine` | the memory of this machine, allocations that can fail |
//! | `names` | the text form of enums whose variants have names |
//! | `progress` | progress reporting |
//! | `process` | per-process singletons, recreated after a fork |
//! | `publish` | atomic and durable creation of files |
//! | `random` | random seeds and ids; a hash of integers |
//! | `runtime` | the threads for asynchronous work |
//! | `workers` | the threads for parallel work |
//! | `board` | the packed 4×4 board: rules, tables, symmetries |
//! | `step`, `step_details` | the 32-byte row; details of steps that only some engines record |
//! | `run` | one game |
//! | `format` | files ⇄ [`Run`]: the run formats, packs and datasets |
//! | `archive` | [`Run`] → Parquet: schema, writer, manifests, ingest |
//! | `query` | SQL → a stream of record batches |
//! | `export` | runs of an archive → files in any supported format |
//! | `table` | a query's result → [`StepTable`]; gather kernels, views, files, sharing, Arrow export |
//! | `loader` | [`StepTable`] → batches: orders and sampling, epochs, ranks, states |
//! | `selfplay` | vectorized games, players, and the recorder |
//! | `report` | what an archive holds, as tables and as one HTML page |
//! | `explore` | games to look at: positions with values and predictions; the explorer in the browser |
//! | `cli` | the commands `a2store` and `a2pack` (feature `cli`, on by default) |
//! | `python` | `import a2store` (feature `python`) |

mod error;

mod cancellation;
mod clock;
mod machine;
mod names;
mod process;
mod progress;
mod publish;
mod random;
mod runtime;
mod workers;

mod board;
mod step;
mod step_details;

mod run;

mod format;

mod archive;

mod query;

mod export;

mod table;

mod loader;

mod selfplay;

mod report;

#[cfg(feature = "explore")]
mod explore;

#[cfg(feature = "cli")]
pub mod cli;

#[cfg(feature = "python")]
mod python;

pub use archive::{
    AnnotateOptions, AnnotateReport, AnnotationInput, Archive, CommitInfo, CompactOptions, CompactReport,
    ExpireOptions, ExpireReport, IngestOptions, IngestReport, ModelInfo, Operation, Phase, Phases, Problem,
    RestoreReport, StorageOptions, TableName, VerifyReport, VersionName,
};
pub use board::{Board, Move, Symmetry, WideBoard};
pub use cancellation::CancellationToken;
pub use error::{Error, ErrorKind, Location, Result};
pub use export::{ExportFormat, ExportOptions, ExportReport, convert};
pub use format::{
    Compression, Dataset, DatasetWriter, ExtractReport, JsonlOptions, JsonlReport, Macroxue, MacroxuePack,
    MacroxuePackWriter, PackBuilder, PackDat, PackDatWriter, PackIter, PackOptions, PackReader, PackReport, PackStats,
    Rejected, RunFormat, RunSlice, Session, SessionOptions, SessionWriter, SourceFormat, ValidateOptions,
    ValidateReport, decode_run, encode_run, pack_folder, read_run,
};
pub use loader::{Batches, Loader, LoaderOptions, LoaderState, Permutation, Sampling, mix};
pub use progress::{Progress, ProgressBar, Unit};
pub use query::{
    Cluster, Engine, Function, ParamValues, Preview, Query, QueryOptions, QueryStream, RowFormat, RunningTask,
    SavedParameter, SavedQuery, ScalarValue, TaskDone, UserTable, functions, no_params,
};
pub use report::{Report, ReportGroups, ReportOptions, ReportTable};
pub use run::{Branches, Run, RunBuilder, RunMeta, RunStep, Violation};
pub use selfplay::{
    Choices, GameRecording, IllegalMoves, PlayOptions, PlayReport, PlayedGame, Player, Positions, Recorder,
    RecorderOptions, RecorderStats, SimulateOptions, SimulateReport, VectorEnv, play, simulate,
};
pub use step::Step;
pub use step_details::{StepDetail, StepDetails};
pub use table::{
    AttachedColumn, Batch, BatchColumn, ChosenEv, ColumnReader, ElementType, ExtraField, Fingerprint, FromRunsOptions,
    MaterializeOptions, RowFilter, RowLayout, Shard, StepTable, TokenType,
};
