//! pack.dat: all steps of many runs in one file, little-endian, with quantised values and a checksum over everything.
//!
//! ```text
//!  0      4             8          12          20                28
//!  | 2048 | version = 1 | num_runs | num_steps | metadata_offset | rows, 32 × num_steps | runs … | CRC32C |
//!  | 4    | u32         | u32      | u64       | u64             |                      |        | u32    |
//!
//!  row
//!  0       8        12             16     17        18        26        32
//!  | board | run_id | index_in_run | move | ev_mask | ev_q    | padding |
//!  | u64   | u32    | u32          | u8   | u8      | u16 × 4 | 0 × 6   |
//!
//!  run
//!  0    4                8           12          20             24           26
//!  | id | first_step_idx | num_steps | max_score | highest_tile | engine_len | engine | start_time | elapsed_s |
//!  | u32| u32            | u32       | u64       | u32          | u16        | UTF-8  | u64        | f32       |
//! ```
//!
//! `metadata_offset` is the end of the rows. Runs are numbered from 0 in order. Each row holds its run and its
//! index in it, so two runs cannot share a row. Rows that belong to no run are ignored. If the row at `first_step_idx`
//! belongs to another run, the run's rows are found by their `run_id`. Another writer of this format stores a wrong
//! `first_step_idx` for appended runs.
//!
//! **Values** are stored as `floor(value × 65535 + 0.5)` in single precision, and read as `q / 65535`. Values outside
//! `0..=1` are clamped; NaN and infinities become 0. The chosen move always has 65535, illegal moves have 0. A step
//! without branches has an empty mask and values of 0.
//!
//! An empty mask is therefore read as no branches. A mask of only the chosen move is read as no branches too, if the
//! rules allow another move. Other formats write steps without branches in that form.
//!
//! **Omitted**: the final board, missing steps of a sampled run, unknown moves, seeds, and the difference between
//! an empty and an absent engine name.

mod layout;
mod reader;
mod writer;

#[cfg(test)]
mod tests;

pub(super) use layout::PREFIX;
pub use reader::PackDat;
pub use writer::PackDatWriter;
