//! Archives: runs in Parquet files, and one manifest per version that lists these files.
//!
//! ```text
//! games.a2/
//!   _versions/18446744073709551614.json   the manifest of version 1: u64::MAX - version, so that the newest comes first
//!   runs/<ids>-<hash>.parquet             one row per run
//!   steps/<ids>-<hash>.parquet            one row per step; each row group holds whole runs
//!   annotations/<ids>-<hash>.parquet      one row per annotated step of a model; only if there are annotations
//! ```
//!
//! The entry point is [`Archive`].
//!
//! Invariants: a published file never changes. A data file that no manifest lists is ignored, so an interrupted write
//! leaves the archive unchanged. The newest manifest is never removed.
//!
//! | file | owns |
//! | --- | --- |
//! | `archive.rs` | the type [`Archive`] |
//! | `table_name.rs`, `phases.rs`, `problem.rs` | names of tables, phases of a game, problems of an archive |
//! | `schema.rs`, `runs_batch.rs`, `steps_batch.rs` | the columns of the tables; runs → rows |
//! | `row_views.rs`, `read_runs.rs` | rows → runs, and whole runs with their original files |
//! | `storage.rs`, `remote.rs`, `storage_options.rs`, `listing.rs` | files in a folder or in an object store |
//! | `lock.rs` | the lock among writers of one machine, and pauses between attempts |
//! | `manifest.rs`, `data_file.rs` | the contents of a version, as a file |
//! | `versions.rs`, `transaction.rs` | listing, reading and publishing manifests; one change: lock, commit, retry |
//! | `tags.rs`, `tagging.rs` | names of versions |
//! | `run_ids.rs`, `digests.rs` | the ids of new runs; the digests of the known ones |
//! | `parquet_writer.rs`, `writer_thread.rs` | encodings and row groups; the thread that writes files |
//! | `parquet_reader.rs`, `parquet_footer.rs`, `parquet_input.rs` | reading columns, row groups and footers |
//! | `checked_files.rs` | the comparison of data files with their manifest before their first use |
//! | `ingest.rs`, `ingest_report.rs`, `pipeline.rs` | ingest: the commit, the report, the parallel stages |
//! | `candidate_files.rs`, `run_discovery.rs` | the runs in files and folders |
//! | `decode.rs`, `parallel_decode.rs` | decoding these runs, also without an archive |
//! | `known_runs.rs`, `run_digest.rs` | which runs are new |
//! | `annotate.rs`, `annotation_rows.rs`, `annotated_steps.rs` | predictions of models; their rows, compared with `steps` |
//! | `compact.rs`, `expire.rs` | merging small files; removing old versions and unreferenced files |
//! | `restore.rs`, `unlisted.rs` | a new version from an older one and from unlisted files |
//! | `verify.rs`, `verify_versions.rs`, `verify_file.rs`, `verify_tables.rs` | finding problems |

mod annotate;
mod annotated_steps;
mod annotation_rows;
#[allow(clippy::module_inception)] // Named after its type.
mod archive;
mod candidate_files;
mod checked_files;
mod compact;
mod data_file;
mod decode;
mod digests;
mod expire;
mod ingest;
mod ingest_report;
mod known_runs;
mod listing;
mod lock;
mod manifest;
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
mod restore;
mod row_views;
mod run_digest;
mod run_discovery;
mod run_ids;
mod runs_batch;
mod schema;
mod steps_batch;
mod storage;
mod storage_options;
mod table_name;
mod tagging;
mod tags;
mod transaction;
mod unlisted;
mod verify;
mod verify_file;
mod verify_tables;
mod verify_versions;
mod versions;
mod writer_thread;

pub use annotate::{AnnotateOptions, AnnotateReport, AnnotationInput, ModelInfo};
pub use archive::Archive;
pub use compact::{CompactOptions, CompactReport};
pub use expire::{ExpireOptions, ExpireReport};
pub use ingest_report::{IngestOptions, IngestReport, Rejected};
pub use manifest::{CommitInfo, Operation};
pub use phases::{Phase, Phases};
pub use problem::Problem;
pub use restore::RestoreReport;
pub use storage_options::StorageOptions;
pub use table_name::TableName;
pub use tags::VersionName;
pub use verify::VerifyReport;

pub(crate) use data_file::DataFile;
pub(crate) use manifest::Manifest;
pub(crate) use parallel_decode::{ReadRun, each_window};
pub(crate) use parquet_footer::group_run_ids;
pub(crate) use read_runs::StoredRun;
pub(crate) use run_discovery::{RunInput, runs_of_pack};
pub(crate) use schema::{MOVE_NAMES, POLICIES, table_schema};
pub(crate) use storage::Storage;
