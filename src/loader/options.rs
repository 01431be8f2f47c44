//! The options of a loader.

use crate::table::ElementType;
use derive_setters::Setters;
use std::fmt;

/// The options for serving a table.
///
/// Set fields with the `with_*` methods: `LoaderOptions::default().with_batch_size(512)`.
#[derive(Clone, Debug, Setters)]
#[setters(prefix = "with_", strip_option)]
#[non_exhaustive]
pub struct LoaderOptions {
    /// Rows per batch and rank, at least 1.
    pub batch_size: usize,
    /// The rows of an epoch and their order.
    pub sampling: Sampling,
    /// The number of rows of an epoch, over all ranks, if rows can repeat; `None` = the number of rows of the
    /// table.
    pub num_samples: Option<u64>,
    /// The seed of the orders and symmetries.
    pub seed: u64,
    /// The first epoch.
    pub epoch: u64,
    /// Whether to drop the rows at the end of an epoch that do not fill a batch on every rank. Otherwise the
    /// rows of the last step are divided evenly: the last batches of two ranks differ by at most one row.
    pub drop_last: bool,
    /// This process's rank, in `0..world_size`.
    pub rank: usize,
    /// The number of processes that share the stream, at least 1.
    pub world_size: usize,
    /// The type of tokens: `UInt8`, `Int32` or `Int64`. PyTorch's usual index type is `Int64`. An embedding layer takes each
    /// type without a cast.
    pub tokens: ElementType,
    /// Whether to turn each row by one of the board's eight symmetries. This turns board, tokens, move, values,
    /// legal moves and the extra column `tile_65536_mask`. Other extra columns stay as they are. The symmetry depends
    /// on seed, epoch and row index. It cannot be combined with attached columns and extra columns of several values
    /// per row, whose values belong to the original board.
    pub symmetries: bool,
    /// The columns to gather; `None` = all.
    pub columns: Option<Vec<String>>,
    /// The number of batches that a separate thread makes ahead; 0 = each batch is made on request.
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 4096,
            sampling: Sampling::Shuffled,
            num_samples: None,
            seed: 0,
            epoch: 0,
            drop_last: false,
            rank: 0,
            world_size: 1,
            tokens: ElementType::UInt8,
            symmetries: false,
            columns: None,
            prefetch: 2,
        }
    }
}

/// The rows of an epoch and their order. The order of an epoch is a function of seed, epoch and position. No variant
/// needs memory in proportion to the table unless its documentation says so.
///
/// `Display` lists all options as they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sampling {
    /// Every row once, in the table's order, the same in each epoch.
    Sequential,
    /// Every row once, in a different order in each epoch: a [`Permutation`](crate::loader::Permutation).
    #[default]
    Shuffled,
    /// Every row once, shuffled among about `window` rows at a time. This is for tables that are mapped from a
    /// file and larger than memory. A window is 256 blocks of rows from random places of the table; the block
    /// size is a power of two. An epoch reads each block once and contiguously. The larger the window, the
    /// closer to [`Shuffled`](Self::Shuffled).
    Windowed {
        /// Rows that are shuffled together, at least 1. Two windows should fit in memory.
        window: u64,
    },
    /// Rows drawn independently with equal probability: sampling with replacement.
    Uniform,
    /// Rows drawn independently in proportion to their weights. Takes eight bytes per row, and up to three passes
    /// over the table to make the loader.
    Weighted {
        /// An extra column of finite numbers of at least 0.
        column: String,
    },
    /// A fixed share of each stratum in every part of the stream. Within a stratum, rows come in shuffled
    /// order, each once before any is repeated. Takes four bytes per row, or up to eight in strata of fewer than 65,536
    /// rows, and one pass over the table to make the loader.
    Stratified {
        /// An extra column whose values are the strata: at most 4,096 different ones.
        column: String,
        /// The relative share of each stratum by name. A name is the string, the number, `true`, `false` or
        /// `null`. Strata without a quota are left out. `None` = equal shares.
        quotas: Option<Vec<(String, f64)>>,
    },
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::Sequential => write!(f, "sequential"),
            Sampling::Shuffled => write!(f, "shuffled"),
            Sampling::Windowed { window } => write!(f, "windowed {window}"),
            Sampling::Uniform => write!(f, "uniform"),
            Sampling::Weighted { column } => write!(f, "weighted by {column}"),
            Sampling::Stratified { column, quotas: None } => write!(f, "stratified by {column}"),
            Sampling::Stratified { column, quotas: Some(quotas) } => {
                let mut quotas: Vec<_> = quotas.iter().collect();
                quotas.sort_by(|(a, _), (b, _)| a.cmp(b));
                write!(f, "stratified by {column}:")?;
                quotas.into_iter().try_for_each(|(stratum, quota)| write!(f, " {stratum}={quota}"))
            }
        }
    }
}
