//! Self-play sessions: a folder with the boards of many runs in `steps.npy` and their metadata in `metadata.db`.
//!
//! ```text
//!  steps.npy, or shards of it: steps-000001.npy, steps-000002.npy, …
//!  0        8          12        28       29
//!  | run_id | step_idx | exps    | action |      NumPy's header, then rows of 28 bytes, or of 29 with the action
//!  | u64    | u32      | u8 × 16 | u8     |
//!
//!  metadata.db   SQLite: runs(id, seed, steps, max_score, highest_tile), session(meta_key, meta_value: JSON)
//! ```
//!
//! The rows of a run are those whose `run_id` equals its `id`. They may be in any order and in any shard, because a
//! recorder may append rows while its games run. A cancelled game may have one row more than `steps`. That row has the
//! board at the time of cancellation. The action is the move, 0 to 3.
//!
//! **Without actions** the move of a step is derived by the rules. It is known if the next step of the game is
//! present and exactly one move leads to its board. The last move is never known. Sampled sessions hold only some
//! steps of a game, each with its index.
//!
//! Seeds and ids are stored as two's complement. The seeds -1 and NULL stand for an unknown seed. The writers store -1,
//! because an existing Rust reader of sessions rejects NULL. That reader also rejects rows with actions, so exports and
//! conversions can omit them. **Omitted**: the final board, branches, start time, duration, and engines of
//! single runs. A session has one engine, the `tag` of its `model`.

mod indexed_runs;
mod metadata;
mod reader;
mod row;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use indexed_runs::{IndexedRuns, IndexedSource};
pub(crate) use metadata::SessionRun;
pub(super) use metadata::{read_runs, runs_in, stored_seed};
pub use reader::Session;
pub(super) use row::has_rows;
pub use writer::{SessionOptions, SessionWriter};
