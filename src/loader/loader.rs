//! [`Loader`]: checks the options, and serves one epoch after the other.

use super::batch_maker::BatchMaker;
use super::options::LoaderOptions;
use super::order::SamplingPlan;
use super::producer::Batches;
use super::stream::{Cursor, RankShare};
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::table::{BatchSchema, StepTable, SymmetryKey};
use std::sync::{Arc, Mutex, PoisonError};

/// Serves batches of a table; see [`StepTable::loader`].
#[derive(Debug)]
pub struct Loader {
    pub(super) table: StepTable,
    pub(super) options: LoaderOptions,
    pub(super) plan: SamplingPlan,
    schema: Arc<BatchSchema>,
    pub(super) share: RankShare,
    cursor: Arc<Mutex<Cursor>>,
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
    /// # let cancel = a2store::CancellationToken::new();
    /// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
    /// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
    /// # let query = archive.sql("SELECT * FROM steps", a2store::no_params())?;
    /// # let table = query.materialize(&Default::default(), &(), &cancel)?;
    /// let loader = table.loader(a2store::LoaderOptions::default().with_batch_size(256).with_seed(1))?;
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
        self.loader_unless_cancelled(options, CancellationToken::never())
    }

    /// Does the same as [`loader`](StepTable::loader), but can be cancelled while it reads the table for weights or
    /// strata.
    ///
    /// # Errors
    /// The errors of [`loader`](StepTable::loader), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn loader_unless_cancelled(&self, options: LoaderOptions, cancel: &CancellationToken) -> Result<Loader> {
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
        if let Some(column) = schema.unturned().filter(|_| options.symmetries) {
            let expected = format!("false with {column}, or columns without it");
            return Err(Error::argument("symmetries", expected, true));
        }
        let plan = SamplingPlan::new(self, &options, cancel)?;
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
        let share = RankShare {
            num_rows: num_samples,
            batch_size: batch_size as u64,
            rank: rank as u64,
            world_size: world_size as u64,
            drop_last: options.drop_last,
        };
        let cursor = Arc::new(Mutex::new(Cursor { epoch, resume: 0, position: 0, generation: 0 }));
        Ok(Loader { table: self.clone(), options, plan, schema, share, cursor })
    }
}

impl Loader {
    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> &StepTable {
        &self.table
    }

    /// Returns the options, with the first `epoch`.
    #[must_use]
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Returns the epoch that [`batches`](Loader::batches) serves.
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

    /// Returns the number of batches of a whole epoch on this rank. It is the same on every rank.
    #[must_use]
    pub fn num_batches(&self) -> u64 {
        self.share.num_steps(0)
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
        let LoaderOptions { seed, symmetries, prefetch, .. } = self.options;
        let order = self.plan.order(self.table.num_rows(), seed, epoch)?;
        let symmetries = symmetries.then(|| SymmetryKey::new(seed, epoch));
        let maker = BatchMaker::new(&self.table, &self.schema, order, symmetries, self.share, start);
        Batches::new(maker, prefetch, &self.cursor, cursor.generation)
    }

    pub(super) fn cursor(&self) -> std::sync::MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
