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
#![cfg_attr(feature = "sql", doc = "```")]
#![cfg_attr(not(feature = "sql"), doc = "```ignore")]
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
//! Data flows one way, and **a module imports only from modules above it** in this list:
//!
//! | module | owns |
//! | --- | --- |
//! | [`error`] | the error type: what failed, where, what was expected and found |
//! | [`system`] | infrastructure: cancellation, progress, threads, durable files |
//! | [`board`] | the packed 4×4 board: rules, tables, symmetries |
//! | [`step`], [`step_details`] | the 32-byte row; details of steps that only some engines record |
//! | [`run`] | one game |
//! | [`mod@format`] | files ⇄ [`Run`]: the run formats, packs and datasets |
//! | [`archive`] | [`Run`] → Parquet: schema, writer, manifests, ingest |
//! | [`query`] | SQL → a stream of record batches |
//! | [`export`] | runs of an archive → files in any supported format |
//! | [`table`] | a query's result → [`StepTable`]; gather kernels, views, files, sharing, Arrow export |
//! | [`loader`] | [`StepTable`] → batches: orders and sampling, epochs, ranks, states |
//! | [`selfplay`] | vectorized games, players, and the recorder |
//!
//! Other packages are clients of this package: `a2store-explore` (report, explorer, replays), `a2store-cli` (the commands
//! `a2store` and `a2pack`), and `a2store-python` (`import a2store`).

#![cfg_attr(not(feature = "sql"), allow(dead_code))] // Without SQL, the helpers of queries have no use.

pub mod error;

pub mod system;

pub mod board;
pub mod step;
pub mod step_details;

pub mod run;

pub mod format;

pub mod archive;

#[cfg(feature = "sql")]
pub mod query;

pub mod export;

pub mod table;

pub mod loader;

pub mod selfplay;

pub use archive::{Archive, IngestOptions, Phases};
pub use board::{Board, Move};
pub use error::{Error, ErrorKind, Result};
pub use loader::{Loader, LoaderOptions};
#[cfg(feature = "sql")]
pub use query::{Query, ScalarValue};
pub use run::Run;
pub use selfplay::{SimulateOptions, simulate};
pub use step::Step;
pub use system::cancellation::CancellationToken;
pub use system::progress::Progress;
pub use table::{Batch, MaterializeOptions, StepTable};
