//! StepTable → shuffled batches, epoch after epoch, on any number of ranks.
//!
//! ```text
//!  epoch   = a keyed permutation of 0..n, computed, not stored
//!  stream  : 0 ─────────────── position ──────────────────────────────── n
//!                              │ rank 0 │ rank 1 │ rank 2 │ rank 0 │ …
//!                              └──────── a step ──────────┘
//! ```
//!
//! Entry point is [`StepTable::loader`]. All ranks read one stream: a step takes the next `world_size × batch_size`
//! positions, and each rank its share of them. So the position alone says where a run stands, and it can go on with
//! another batch size or another number of ranks. Invariant: an epoch serves every row exactly once over all ranks
//! (without `drop_last`), and every rank takes the same number of steps.

mod permutation;
mod producer;

pub use permutation::Permutation;
pub use producer::Batches;

use crate::error::{Error, ErrorKind, Result};
use crate::table::{BatchSchema, StepTable, TokenType};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, PoisonError};

/// How to serve a table.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Rows per batch and rank, at least 1.
    pub batch_size: usize,
    /// Whether each epoch has an order of its own, or all have the table's.
    pub shuffle: bool,
    /// What the orders follow from.
    pub seed: u64,
    /// The epoch to begin with.
    pub epoch: u64,
    /// Whether to leave out the rows at the end of an epoch that do not fill a batch on every rank. Otherwise the last
    /// step's rows are divided evenly: the last batch of a rank is shorter, by at most one row more than another's.
    pub drop_last: bool,
    /// This process's number, in `0..world_size`.
    pub rank: usize,
    /// The number of processes that share the stream, at least 1.
    pub world_size: usize,
    /// The type of tokens.
    pub tokens: TokenType,
    /// The columns to gather; `None` = all.
    pub columns: Option<Vec<String>>,
    /// Batches that are made ahead, on a thread of their own; 0 = each is made when it is asked for.
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 4096,
            shuffle: true,
            seed: 0,
            epoch: 0,
            drop_last: false,
            rank: 0,
            world_size: 1,
            tokens: TokenType::UInt8,
            columns: None,
            prefetch: 2,
        }
    }
}

/// Serves batches of a table; see [`StepTable::loader`].
#[derive(Debug)]
pub struct Loader {
    table: StepTable,
    options: LoaderOptions,
    schema: Arc<BatchSchema>,
    shard: Shard,
    cursor: Arc<Mutex<Cursor>>,
}

/// Where a loader stands.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    epoch: u64,
    /// Where the next iteration begins.
    resume: u64,
    /// Rows of the epoch that all ranks together have been given by the newest iteration.
    position: u64,
    /// Counts iterations and jumps: older iterations no longer move the position.
    generation: u64,
}

impl Cursor {
    /// Begins anew, in an epoch at a position.
    fn jump(&mut self, epoch: u64, position: u64) {
        *self = Cursor { epoch, resume: position, position, generation: self.generation + 1 };
    }
}

/// Where a [`Loader`] stands, and in which order of which rows. Small, and a JSON object when serialized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoaderState {
    /// The version of this structure, 1.
    pub version: u32,
    /// The table's [`fingerprint`](StepTable::fingerprint).
    pub fingerprint: String,
    /// The table's number of rows.
    pub num_rows: u64,
    /// The loader's `shuffle`.
    pub shuffle: bool,
    /// The loader's `seed`.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// Rows of the epoch that all ranks together have been given.
    pub position: u64,
}

const STATE_VERSION: u32 = 1;

impl StepTable {
    /// A loader of this table's rows.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for options outside their range.
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
        let LoaderOptions { batch_size, rank, world_size, prefetch, epoch, .. } = options;
        // Far above any use, and far below where the arithmetic of positions or the memory of batches ends.
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
        let schema = BatchSchema::new(self.layout(), options.tokens, options.columns.as_deref())?.into();
        let shard = Shard {
            num_rows: self.num_rows(),
            batch_size: batch_size as u64,
            rank: rank as u64,
            world_size: world_size as u64,
            drop_last: options.drop_last,
        };
        let cursor = Arc::new(Mutex::new(Cursor { epoch, resume: 0, position: 0, generation: 0 }));
        Ok(Loader { table: self.clone(), options, schema, shard, cursor })
    }
}

impl Loader {
    /// The table.
    #[must_use]
    pub fn table(&self) -> &StepTable {
        &self.table
    }

    /// The options, `epoch` as it was at the beginning.
    #[must_use]
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The epoch that [`batches`](Loader::batches) serves.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.cursor().epoch
    }

    /// Turns to an epoch. Turning to the current one keeps the position of a state that was just loaded.
    pub fn set_epoch(&self, epoch: u64) {
        let mut cursor = self.cursor();
        if cursor.epoch != epoch {
            cursor.jump(epoch, 0);
        }
    }

    /// The number of batches of a whole epoch on this rank, the same on each.
    #[must_use]
    pub fn num_batches(&self) -> u64 {
        self.shard.num_steps(0)
    }

    /// The batches of the epoch: from its beginning, or once from where a loaded state stood.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) when no thread could be started.
    pub fn batches(&self) -> Result<Batches> {
        let mut cursor = self.cursor();
        let (epoch, start) = (cursor.epoch, cursor.resume);
        cursor.jump(epoch, start);
        cursor.resume = 0;
        Batches::new(self, *cursor)
    }

    /// Where the loader stands: after the batches that were handed out, whatever was made ahead.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        let cursor = *self.cursor();
        LoaderState {
            version: STATE_VERSION,
            fingerprint: self.table.fingerprint().to_owned(),
            num_rows: self.table.num_rows(),
            shuffle: self.options.shuffle,
            seed: self.options.seed,
            epoch: cursor.epoch,
            position: cursor.position,
        }
    }

    /// Goes on where a state stood: the next [`batches`](Loader::batches) begins there. Batch size, rank, number of
    /// ranks, columns and tokens may differ from the loader's that made the state.
    ///
    /// # Errors
    /// [`ErrorKind::StateMismatch`] for a state of other rows or another order; the loader stays as it was.
    pub fn load_state(&self, state: &LoaderState) -> Result<()> {
        let own = self.state();
        fn same<T: PartialEq + ToString>(field: &'static str, expected: &T, found: &T) -> Result<()> {
            if expected == found {
                return Ok(());
            }
            let (expected, found) = (expected.to_string(), found.to_string());
            Err(ErrorKind::StateMismatch { field, expected, found }.into())
        }
        same("version", &own.version, &state.version)?;
        same("fingerprint", &own.fingerprint, &state.fingerprint)?;
        same("num_rows", &own.num_rows, &state.num_rows)?;
        same("shuffle", &own.shuffle, &state.shuffle)?;
        same("seed", &own.seed, &state.seed)?;
        if state.position > own.num_rows {
            let expected = format!("0..={}", own.num_rows);
            let found = state.position.to_string();
            return Err(ErrorKind::StateMismatch { field: "position", expected, found }.into());
        }
        self.cursor().jump(state.epoch, state.position);
        Ok(())
    }

    fn cursor(&self) -> std::sync::MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank's share of a stream of rows.
#[derive(Clone, Copy, Debug)]
struct Shard {
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

    /// The number of steps from a position to the end of the epoch.
    fn num_steps(&self, position: u64) -> u64 {
        let rest = self.num_rows.saturating_sub(position);
        match self.drop_last {
            true => rest / self.rows_per_step(),
            false => rest.div_ceil(self.rows_per_step()),
        }
    }

    /// This rank's share of the step that begins at a position, and where the next begins.
    fn share(&self, position: u64) -> (std::ops::Range<u64>, u64) {
        let step = self.rows_per_step().min(self.num_rows.saturating_sub(position));
        // Of a full step every rank gets `batch_size`; the last one's rows are divided as evenly as they go.
        let bound = |rank: u64| position + (u128::from(step) * u128::from(rank) / u128::from(self.world_size)) as u64;
        (bound(self.rank)..bound(self.rank + 1), position + step)
    }
}
