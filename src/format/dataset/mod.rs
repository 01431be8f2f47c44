//! NumPy datasets: a folder with the steps of many runs in `steps.npy` and their metadata in `metadata.db`.
//!
//! ```text
//!  steps.npy, or shards of it: steps-00000.npy, steps-00001.npy, …
//!  0       8      9          10          26       30           32
//!  | board | move | ev_legal | ev_values | run_id | step_index |      NumPy's header, then rows of 32 bytes
//!  | u64   | u8   | u8       | f32 × 4   | u32    | u16        |
//!
//!  metadata.db   SQLite: runs(id, first_step_idx, num_steps, max_score, highest_tile, engine, start_time, elapsed_s)
//!  manifest.json optional: version = 1, num_steps, num_runs, created (RFC 3339), crc32c { file: "8 hex digits" }
//! ```
//!
//! **Rows of a run**: `first_step_idx` and `num_steps` give them. All rows of a run have the same `run_id`. It
//! may differ from `runs.id` if another tool appended to the dataset. Rows after those of the last run
//! remain if an append of another writer was interrupted. Readers skip them.
//!
//! **Values**: illegal branches hold 0.0. The chosen branch holds exactly 1.0, regardless of its value. A step
//! without branches has an empty mask and values of 0.0.
//!
//! An empty mask is therefore read as no branches. A mask of only the chosen move is read as no branches too, if the
//! rules allow another move. Other formats write steps without branches in that form.
//!
//! `start_time` is in Unix seconds. Numbers of 2^63 or more are stored as negative numbers (two's complement).
//!
//! **Omitted**: the final board, unknown moves, seeds, and an elapsed time that is NaN. An empty engine name and
//! an absent one are both written as empty and read as absent.

mod manifest;
mod metadata;
mod reader;
mod row;
mod writer;

#[cfg(test)]
mod tests;

pub use reader::Dataset;
pub(super) use row::has_rows;
pub use writer::DatasetWriter;
