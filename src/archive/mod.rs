//! Archives: runs in Parquet files, and a log of commits that names these files.
//!
//! ```text
//! games.a2/
//!   _log/00000000000000000001.json   one file per commit, with a checksum and the checksum of the commit before
//!   runs/<hash>.parquet              one row per run
//!   steps/<hash>.parquet             one row per step; each row group holds whole runs
//!   annotations/<hash>.parquet       one row per annotated step of a model; only if there are annotations
//! ```
//!
//! The entry point is [`Archive`].
//!
//! Invariants: a data file that no commit names is ignored, so an interrupted write leaves the archive
//! unchanged. A commit becomes visible as a whole or not at all. A published file never changes; only a repair
//! replaces commits.
//!
//! | file | owns |
//! | --- | --- |
//! | `archive.rs` | the type [`Archive`] |
//! | `table_name.rs`, `phases.rs`, `problem.rs` | names of tables, phases of a game, problems of an archive |
//! | `schema.rs`, `runs_batch.rs`, `steps_batch.rs` | the columns of the tables; runs → rows |
//! | `row_views.rs`, `read_runs.rs` | rows → runs, and whole runs with their original files |
//! | `storage.rs`, `remote.rs`, `storage_options.rs`, `listing.rs` | files in a folder or in an object store |
//! | `lock.rs` | the lock among writers of one machine, and pauses between attempts |
//! | `commit.rs`, `data_file.rs`, `checksummed_json.rs` | the format of commits |
//! | `log_names.rs`, `last_checkpoint.rs` | the names of the files in the log; from where an object store lists them |
//! | `log.rs`, `snapshot.rs` | publishing and replaying commits; the contents of a version |
//! | `checkpoint.rs`, `digests.rs`, `checkpoint_writer.rs` | contents and run digests of a version in one file each |
//! | `transaction.rs` | one change: lock, commit, retry |
//! | `parquet_writer.rs`, `writer_thread.rs` | encodings and row groups; the thread that writes files |
//! | `parquet_reader.rs`, `parquet_footer.rs`, `parquet_input.rs` | reading columns, row groups and footers |
//! | `checked_files.rs` | the comparison of data files with their commits before their first use |
//! | `ingest.rs`, `ingest_report.rs`, `pipeline.rs` | ingest: the commit, the report, the parallel stages |
//! | `candidate_files.rs`, `run_discovery.rs` | the runs in files and folders |
//! | `decode.rs`, `parallel_decode.rs` | decoding these runs, also without an archive |
//! | `known_runs.rs`, `run_digest.rs` | which runs are new |
//! | `annotate.rs`, `annotation_rows.rs`, `annotated_steps.rs` | predictions of models; their rows, compared with `steps` |
//! | `compact.rs`, `expire.rs` | merging small files; removing old versions and unreferenced files |
//! | `chain.rs`, `lost_commits.rs` | the chain of commits, with lost ones rebuilt from a checkpoint |
//! | `verify.rs`, `verify_log.rs`, `verify_file.rs`, `verify_tables.rs` | finding problems |
//! | `repair.rs`, `repair_plan.rs`, `repair_successor.rs` | repairing damaged or missing commits |

mod annotate;
mod annotated_steps;
mod annotation_rows;
#[allow(clippy::module_inception)] // Named after its type.
mod archive;
mod candidate_files;
mod chain;
mod checked_files;
mod checkpoint;
mod checkpoint_writer;
mod checksummed_json;
mod commit;
mod compact;
mod data_file;
mod decode;
mod digests;
mod expire;
mod ingest;
mod ingest_report;
mod known_runs;
mod last_checkpoint;
mod listing;
mod lock;
mod log;
mod log_names;
mod lost_commits;
mod parallel_decode;
mod parquet_footer;
mod parquet_input;
mod parquet_reader;
mod parquet_writer;
mod phases;
mod pipeline;
mod problem;
mod read_runs;
mod remote;
mod repair;
mod repair_plan;
mod repair_successor;
mod row_views;
mod run_digest;
mod run_discovery;
mod runs_batch;
mod schema;
mod snapshot;
mod steps_batch;
mod storage;
mod storage_options;
mod table_name;
mod transaction;
mod verify;
mod verify_file;
mod verify_log;
mod verify_tables;
mod writer_thread;

pub use annotate::{AnnotateOptions, AnnotateReport, AnnotationInput, ModelInfo};
pub use archive::Archive;
pub use commit::{CommitInfo, Operation};
pub use compact::{CompactOptions, CompactReport};
pub use expire::{ExpireOptions, ExpireReport};
pub use ingest_report::{IngestOptions, IngestReport, Rejected};
pub use phases::{Phase, Phases};
pub use problem::Problem;
pub use repair::RepairReport;
pub use repair_plan::Repair;
pub use storage_options::StorageOptions;
pub use table_name::TableName;
pub use verify::VerifyReport;

pub(crate) use data_file::DataFile;
pub(crate) use parallel_decode::{ReadRun, each_window};
pub(crate) use parquet_footer::group_run_ids;
pub(crate) use read_runs::StoredRun;
pub(crate) use run_discovery::{RunInput, runs_of_pack};
pub(crate) use schema::{MOVE_NAMES, POLICIES, table_schema};
pub(crate) use snapshot::Snapshot;
pub(crate) use storage::Storage;
