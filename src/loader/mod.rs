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
//! | `orders/` | the row at each position: shuffled, weighted, stratified or in windows |
//! | `options.rs` | the options of a loader, and how rows are sampled |
//! | `position.rs` | the position of a loader: the state machine that all loaders share; each rank's share of the rows |
//! | `batch_maker.rs`, `producer.rs` | making a batch; making batches ahead |
//! | `loader.rs` | [`Loader`]: its options checked, its epochs |
//! | `state.rs` | a loader's state: saving it, and checking that it belongs to a loader |

mod batch_maker;
#[allow(clippy::module_inception)]
mod loader;
mod options;
mod orders;
mod position;
mod producer;
mod state;

#[cfg(test)]
mod tests;

pub use loader::{Loader, mix};
pub use options::{LoaderOptions, Sampling};
pub use orders::permutation::Permutation;
pub use position::{LoaderPosition, RankShare, Start};
pub use producer::Batches;
pub use state::LoaderState;
