//! Archives: runs in Parquet files, and one manifest per version that lists these files.
//!
//! ```text
//! games.a2/
//!   _versions/18446744073709551614.json   the manifest of version 1: u64::MAX - version, so that the newest comes first
//!   runs/<ids>-<hash>.parquet             one row per run
//!   steps/<ids>-<hash>.parquet            one row per step; each row group holds whole runs
//!   annotations/<ids>-<hash>.parquet      one row per annotated step of a model; only if there are annotations
//!   _tags/<name>.json                     names of versions
//!   _ids/<number>.json                    reserved run ids; only in object stores
//! ```
//!
//! The entry point is [`Archive`].
//!
//! Invariants: a published file never changes. A data file that no manifest lists is ignored, so an interrupted write
//! leaves the archive unchanged. The newest manifest is never removed.
//!
//! | part | owns |
//! | --- | --- |
//! | `archive.rs` | the type [`Archive`] |
//! | `table_name.rs`, `phases.rs`, `problem.rs`, `schema.rs` | names of tables, phases of a game, problems of an archive, columns |
//! | `storage/` | files in a folder or in an object store; the lock among writers of one machine |
//! | `parquet/` | data files |
//! | `manifest/` | versions: their manifests, tags, and transactions |
//! | `ingest/` | reading and decoding runs, and adding the new ones |
//! | `annotations/` | predictions of models |
//! | `maintenance/` | compaction, expiry, restoring, verification |

mod annotations;
#[allow(clippy::module_inception)] // Named after its type.
mod archive;
mod ingest;
mod maintenance;
mod manifest;
mod parquet;
mod phases;
mod problem;
mod schema;
mod storage;
mod table_name;
#[cfg(test)]
mod tests;

pub use annotations::{AnnotateOptions, AnnotateReport, AnnotationInput, ModelInfo};
pub use archive::Archive;
pub use ingest::ingest_report::{IngestOptions, IngestReport};
pub use maintenance::compact::{CompactOptions, CompactReport};
pub use maintenance::expire::{ExpireOptions, ExpireReport};
pub use maintenance::restore::RestoreReport;
pub use maintenance::verify::VerifyReport;
pub use manifest::tags::VersionName;
pub use manifest::{CommitInfo, Operation};
pub use phases::{Phase, Phases};
pub use problem::Problem;
pub use storage::storage_options::StorageOptions;
pub use table_name::TableName;

#[cfg(feature = "sql")]
pub(crate) use manifest::data_file::DataFile;
pub use parquet::read_runs::StoredRun;
#[cfg(feature = "sql")]
pub(crate) use parquet::reader::group_run_ids;
pub use schema::{MOVE_NAMES, POLICIES, table_schema};
#[cfg(feature = "sql")]
pub(crate) use storage::{Storage, io_kind};
