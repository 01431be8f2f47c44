//! StepTable → shuffled batches, epoch after epoch, on any number of ranks.
//!
//! ```text
//!  epoch   = a keyed permutation of 0..n, computed, not stored
//!  stream  : 0 ─────────────── position ──────────────────────────────── n
//!                              │ rank 0 │ rank 1 │ rank 2 │ rank 0 │ …
//!                              └──────── a step ──────────┘
//! ```
//!
//! The entry point is [`StepTable::loader`](crate::StepTable::loader). All ranks read one stream: a step takes
//! the next `world_size × batch_size` positions, and each rank takes its share of them. The position alone
//! determines the progress of training, so training can resume with another batch size or another number of
//! ranks. Invariant: every rank takes the same number of steps. An epoch serves every row exactly once over all
//! ranks, unless rows are drawn with repetition or the tail is dropped.
//!
//! | file | owns |
//! | --- | --- |
//! | `options.rs` | the options of a loader, and how rows are sampled |
//! | `stream.rs` | the stream of rows and each rank's share of it |
//! | `position.rs` | the position of a loader: the state machine that all loaders share |
//! | `permutation.rs` | every row once, in a computed shuffled order |
//! | `windowed.rs` | the same within windows, for tables on disk |
//! | `draws.rs`, `alias.rs` | independent draws, uniform or weighted |
//! | `extra_column.rs`, `strata.rs` | reading an extra column; strata with quotas |
//! | `order.rs` | position → row |
//! | `batch_maker.rs`, `producer.rs` | making a batch; making batches ahead |
//! | `loader.rs` | [`Loader`]: its options checked, its epochs |
//! | `state.rs` | a loader's state: saving it, and checking that it belongs to a loader |

mod alias;
mod batch_maker;
mod draws;
mod extra_column;
#[allow(clippy::module_inception)]
mod loader;
mod options;
mod order;
mod permutation;
mod position;
mod producer;
mod state;
mod strata;
mod stream;
mod windowed;

#[cfg(test)]
mod tests;

pub use loader::{Loader, mix};
pub use options::{LoaderOptions, Sampling};
pub use permutation::Permutation;
#[cfg(feature = "python")]
pub(crate) use position::{Position, Start};
pub use producer::Batches;
pub use state::LoaderState;
#[cfg(feature = "python")]
pub(crate) use stream::RankShare;
