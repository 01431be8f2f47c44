//! Macroxue packs: a folder with the steps of many games of the Macroxue engine.
//!
//! ```text
//!  steps.npy, or shards of it: steps-00000.npy, steps-00001.npy, …
//!  0        4            8       16           20                22         23               24         25
//!  | run_id | step_index | board | board_eval | tile_65536_mask | move_dir | valuation_type | ev_legal | max_rank |
//!  | u32    | u32        | u64   | i32        | u16             | u8       | u8             | u8       | u8       |
//!  26     30           46
//!  | seed | branch_evs |                    NumPy's header, then rows of 46 bytes. Aligned rows have 48 bytes:
//!  | u32  | f32 × 4    |                    two bytes of padding come before `seed`.
//!
//!  metadata.db           SQLite: runs(id, seed, steps, max_score, highest_tile), session(meta_key, meta_value)
//!  valuation_types.json  {"search": 0, "tuple11": 1, "tuple10": 2}: the ids in the column valuation_type
//! ```
//!
//! The rows of a run may be in any order and in any shard. Writers store them consecutively, in the order of steps. A
//! cell with the exponent 16 has the nibble 15, and its bit in the mask is set. The original packer does the same for
//! exponent 17. Only `max_rank` tells such a tile from 65536, so a row with a `max_rank` of 17 or more is rejected.
//! `ev_legal` is 0 if a step has no values.
//!
//! `max_rank` and `seed` repeat the largest exponent of the board and the low 32 bits of the run's seed. Readers do not
//! use them otherwise, and writers compute them.
//!
//! `board_eval` is a heuristic of the engine. Writers that lack it write 0. So a run whose evaluations are all 0 is
//! read as a run without evaluations. The seed -1 in `metadata.db` stands for an unknown seed, as in a session.
//!
//! **Omitted**: the final board, the engine's name, the start time and the duration.

mod reader;
mod row;
mod valuation_types;
mod writer;

pub use reader::MacroxuePack;
pub(super) use row::has_rows;
pub use writer::MacroxuePackWriter;
