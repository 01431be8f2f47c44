//! StepTable → shuffled batches, epoch after epoch, on any number of ranks.
//!
//! ```text
//!  epoch   = a keyed permutation of 0..n, computed, not stored
//!  stream  : 0 ─────────────── position ──────────────────────────────── n
//!                              │ rank 0 │ rank 1 │ rank 2 │ rank 0 │ …
//!                              └──────── a step ──────────┘
//! ```
//!
//! The entry point is [`StepTable::loader`]. All ranks read one stream: a step takes the next `world_size ×
//! batch_size` positions, and each rank takes its share of them. The position alone determines the progress of
//! training, so training can resume with another batch size or another number of ranks. Invariant: every rank
//! takes the same number of steps. An epoch serves every row exactly once over all ranks, unless rows are drawn
//! with repetition or the tail is dropped.
//!
//! | file | owns |
//! | --- | --- |
//! | `order.rs` | position → row |
//! | `permutation.rs` | every row once, in a computed shuffled order |
//! | `windowed.rs` | the same within windows, for tables on disk |
//! | `alias.rs` | weighted draws |
//! | `strata.rs` | strata with quotas |
//! | `state.rs` | a loader's state: saving it, and checking that it belongs to a loader |
//! | `producer.rs` | making batches ahead |

mod alias;
mod order;
mod permutation;
mod producer;
mod state;
mod strata;
mod windowed;

pub use permutation::Permutation;
pub use producer::Batches;
pub use state::LoaderState;

use crate::error::{Error, Result};
use crate::progress::{Progress, check};
use crate::table::{BatchSchema, StepTable, TokenType};
use order::Plan;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// How to serve a table.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Rows per batch and rank, at least 1.
    pub batch_size: usize,
    /// Which rows an epoch has, and in what order.
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
    /// The type of tokens.
    pub tokens: TokenType,
    /// Whether to turn each row by one of the board's eight symmetries. This turns board, tokens, move, values
    /// and mask, but no extra column. The symmetry depends on seed, epoch and row index. It cannot be combined
    /// with attached columns, whose values belong to the original board.
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
            tokens: TokenType::UInt8,
            symmetries: false,
            columns: None,
            prefetch: 2,
        }
    }
}

/// Which rows an epoch has, and in what order. The order of an epoch is a function of seed, epoch and position.
/// No variant needs memory in proportion to the table unless its documentation says so.
///
/// `Display` lists all options as they were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Sampling {
    /// Every row once, in the table's order, the same in each epoch.
    Sequential,
    /// Every row once, in a different order in each epoch: a [`Permutation`].
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
    /// Rows drawn independently in proportion to their weights. Takes eight bytes per row, and two passes over
    /// the table to make the loader.
    Weighted {
        /// An extra column of finite numbers of at least 0.
        column: String,
    },
    /// A fixed share of each stratum in every part of the stream. Within a stratum, rows come in shuffled
    /// order, each once before any is repeated. Takes four bytes per row, or six in strata of fewer than 65,536
    /// rows, and one pass over the table to make the loader.
    Stratified {
        /// An extra column whose values are the strata: at most 4,096 different ones.
        column: String,
        /// The relative share of each stratum by name. A name is the string, the number, `true`, `false` or
        /// `null`. Strata without a quota are left out. `None` = equal shares.
        quotas: Option<Vec<(String, f64)>>,
    },
}

/// Serves batches of a table; see [`StepTable::loader`].
#[derive(Debug)]
pub struct Loader {
    table: StepTable,
    options: LoaderOptions,
    plan: Plan,
    schema: Arc<BatchSchema>,
    shard: Shard,
    cursor: Arc<Mutex<Cursor>>,
}

/// The position of a loader.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    epoch: u64,
    /// The position at which the next iteration begins.
    resume: u64,
    /// Rows of the epoch that the newest iteration has returned on all ranks together.
    position: u64,
    /// The number of iterations and jumps. Older iterations no longer move the position.
    generation: u64,
}

impl Cursor {
    /// Moves to a position of an epoch.
    fn jump(&mut self, epoch: u64, position: u64) {
        *self = Cursor { epoch, resume: position, position, generation: self.generation + 1 };
    }
}

impl StepTable {
    /// Returns a loader of this table's rows.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for options outside their range;
    /// [`ErrorKind::Column`](crate::ErrorKind::Column) for invalid weights and strata;
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if their memory cannot be allocated.
    ///
    /// # Examples
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 3, ..Default::default() }, &())?;
    /// # archive.ingest([&runs], &Default::default(), &())?;
    /// # let query = archive.sql("SELECT * FROM steps", a2store::no_params())?;
    /// # let table = query.materialize(&Default::default(), &())?;
    /// let loader = table.loader(a2store::LoaderOptions { batch_size: 256, seed: 1, ..Default::default() })?;
    /// let mut rows = 0;
    /// for batch in loader.batches()? {
    ///     let tokens: &[u8] = batch.column("tokens").unwrap().bytes;
    ///     assert_eq!(tokens.len(), 16 * batch.num_rows());
    ///     rows += batch.num_rows() as u64;
    /// }
    /// assert_eq!(rows, table.num_rows());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn loader(&self, options: LoaderOptions) -> Result<Loader> {
        self.loader_unless_cancelled(options, &())
    }

    /// [`loader`](StepTable::loader) that can be cancelled while it reads the table for weights or strata.
    ///
    /// # Errors
    /// As [`loader`](StepTable::loader), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn loader_unless_cancelled(&self, options: LoaderOptions, progress: &dyn Progress) -> Result<Loader> {
        let LoaderOptions { batch_size, rank, world_size, prefetch, epoch, .. } = options;
        // These limits are far above any practical use, and prevent overflows of positions and of memory sizes.
        const MAX_BATCH: usize = 1 << 28;
        const MAX_RANKS: usize = 1 << 24;
        const MAX_PREFETCH: usize = 1 << 12;
        if !(1..=MAX_BATCH).contains(&batch_size) {
            return Err(Error::argument("batch_size", format!("1..={MAX_BATCH}"), batch_size));
        }
        if !(1..=MAX_RANKS).contains(&world_size) {
            return Err(Error::argument("world_size", format!("1..={MAX_RANKS}"), world_size));
        }
        if rank >= world_size {
            return Err(Error::argument("rank", format!("0..{world_size}"), rank));
        }
        if prefetch > MAX_PREFETCH {
            return Err(Error::argument("prefetch", format!("0..={MAX_PREFETCH}"), prefetch));
        }
        let schema = Arc::new(self.batch_schema(options.tokens, options.columns.as_deref())?);
        if let Some(name) = schema.attached().filter(|_| options.symmetries) {
            // Its values belong to the original board.
            let expected = format!("false with the attached column {name}, or columns without it");
            return Err(Error::argument("symmetries", expected, true));
        }
        let plan = Plan::new(self, &options, progress)?;
        let num_samples = match options.num_samples {
            // Nothing can be drawn from an empty table.
            Some(num_samples) if plan.repeats() && !self.is_empty() => num_samples,
            Some(num_samples) if !plan.repeats() => {
                let expected = format!("None for a sampling that serves every row once ({})", options.sampling);
                return Err(Error::argument("num_samples", expected, num_samples));
            }
            _ => self.num_rows(),
        };
        // The position after a step must not overflow.
        const MAX_SAMPLES: u64 = 1 << 62;
        if num_samples > MAX_SAMPLES {
            return Err(Error::argument("num_samples", format!("at most {MAX_SAMPLES}"), num_samples));
        }
        let shard = Shard {
            num_rows: num_samples,
            batch_size: batch_size as u64,
            rank: rank as u64,
            world_size: world_size as u64,
            drop_last: options.drop_last,
        };
        let cursor = Arc::new(Mutex::new(Cursor { epoch, resume: 0, position: 0, generation: 0 }));
        Ok(Loader { table: self.clone(), options, plan, schema, shard, cursor })
    }
}

impl Loader {
    /// The table.
    #[must_use]
    pub fn table(&self) -> &StepTable {
        &self.table
    }

    /// The options, with the first `epoch`.
    #[must_use]
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The epoch that [`batches`](Loader::batches) serves.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.cursor().epoch
    }

    /// Sets the epoch. Setting the current epoch keeps the position of a state that was just loaded.
    pub fn set_epoch(&self, epoch: u64) {
        let mut cursor = self.cursor();
        if cursor.epoch != epoch {
            cursor.jump(epoch, 0);
        }
    }

    /// The number of batches of a whole epoch on this rank. It is the same on every rank.
    #[must_use]
    pub fn num_batches(&self) -> u64 {
        self.shard.num_steps(0)
    }

    /// Returns the batches of the epoch. They start at its beginning, or once at the position of a loaded
    /// state.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if no thread can be started, and
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the memory of one batch cannot be
    /// allocated.
    pub fn batches(&self) -> Result<Batches> {
        let mut cursor = self.cursor();
        let (epoch, start) = (cursor.epoch, cursor.resume);
        cursor.jump(epoch, start);
        cursor.resume = 0;
        Batches::new(self, *cursor)
    }

    fn cursor(&self) -> std::sync::MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

/// Checks for cancellation every million rows.
fn check_at(row: u64, progress: &dyn Progress) -> Result<()> {
    if row > 0 && row.is_multiple_of(1 << 20) { check(progress) } else { Ok(()) }
}

/// One rank's share of a stream of rows.
#[derive(Clone, Copy, Debug)]
struct Shard {
    /// Rows of an epoch, over all ranks.
    num_rows: u64,
    batch_size: u64,
    rank: u64,
    world_size: u64,
    drop_last: bool,
}

impl Shard {
    /// Rows that all ranks take together in a step.
    fn rows_per_step(&self) -> u64 {
        self.batch_size * self.world_size
    }

    /// Returns the number of steps from a position to the end of the epoch.
    fn num_steps(&self, position: u64) -> u64 {
        let rest = self.num_rows.saturating_sub(position);
        match self.drop_last {
            true => rest / self.rows_per_step(),
            false => rest.div_ceil(self.rows_per_step()),
        }
    }

    /// Returns this rank's share of the step that begins at a position.
    fn share(&self, position: u64) -> std::ops::Range<u64> {
        let step = self.rows_per_step().min(self.num_rows.saturating_sub(position));
        // Every rank gets `batch_size` rows of a full step. The rows of the last step are divided as evenly as
        // possible.
        let bound = |rank: u64| position + (u128::from(step) * u128::from(rank) / u128::from(self.world_size)) as u64;
        bound(self.rank)..bound(self.rank + 1)
    }
}
