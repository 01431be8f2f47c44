//! [`Loader`]: checks the options, and serves one epoch after the other.

use crate::error::{Error, Result};
use crate::loader::batch_maker::BatchMaker;
use crate::loader::options::{LoaderOptions, Sampling};
use crate::loader::orders::order::SamplingPlan;
use crate::loader::orders::strata::Strata;
use crate::loader::position::{LoaderPosition, RankShare, Start};
use crate::loader::producer::Batches;
use crate::system::cancellation::CancellationToken;
use crate::table::{StepTable, SymmetryKey, TableMix};
use std::sync::Arc;

/// Serves batches of a table, or of several; see [`StepTable::loader`] and [`mix`].
#[derive(Debug)]
pub struct Loader {
    pub(in crate::loader) rows: Arc<TableMix>,
    pub(in crate::loader) options: LoaderOptions,
    pub(in crate::loader) plan: SamplingPlan,
    pub(in crate::loader) position: Arc<LoaderPosition>,
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
    #[cfg_attr(feature = "sql", doc = "```")]
    #[cfg_attr(not(feature = "sql"), doc = "```ignore")]
    /// # let folder = tempfile::tempdir()?;
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # let cancel = a2store::CancellationToken::new();
    /// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
    /// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
    /// # let query = archive.sql("SELECT * FROM steps", a2store::query::no_params())?;
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
        self.loader_with_cancel(options, CancellationToken::never())
    }

    /// Does the same as [`loader`](StepTable::loader), but can be cancelled while it reads the table for weights or
    /// strata.
    ///
    /// # Errors
    /// The errors of [`loader`](StepTable::loader), and [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn loader_with_cancel(&self, options: LoaderOptions, cancel: &CancellationToken) -> Result<Loader> {
        options.check()?;
        let rows = TableMix::new(vec![self.clone()], options.tokens, options.columns.as_deref())?;
        let plan = SamplingPlan::new(self, &options, cancel)?;
        Loader::new(rows, plan, options)
    }
}

/// These limits are far above any practical use, and prevent overflows of positions and of memory sizes.
impl LoaderOptions {
    /// The largest [`batch_size`](LoaderOptions::batch_size).
    pub const MAX_BATCH_SIZE: usize = 1 << 28;
    /// The largest [`world_size`](LoaderOptions::world_size).
    pub const MAX_WORLD_SIZE: usize = 1 << 24;
    /// The largest [`prefetch`](LoaderOptions::prefetch).
    pub const MAX_PREFETCH: usize = 1 << 12;
    /// The largest [`num_samples`](LoaderOptions::num_samples).
    pub const MAX_NUM_SAMPLES: u64 = 1 << 62;

    /// Checks the options that do not depend on the rows.
    fn check(&self) -> Result<()> {
        let LoaderOptions { batch_size, rank, world_size, prefetch, .. } = *self;
        Error::check_range("batch_size", 1..=Self::MAX_BATCH_SIZE, batch_size)?;
        Error::check_range("world_size", 1..=Self::MAX_WORLD_SIZE, world_size)?;
        if rank >= world_size {
            return Err(Error::argument("rank", format!("0..{world_size}"), rank));
        }
        Error::check_range("prefetch", 0..=Self::MAX_PREFETCH, prefetch)
    }
}

/// Returns a loader of several tables, each with its share of the rows. Shares are relative: 7 and 3 are the same as
/// 0.7 and 0.3. With two tables, their numbers in any window of the stream are exact to within one row, with more
/// tables to within two rows. Within a table, rows come in shuffled order, each once before any is
/// repeated. So in an epoch of `n` rows, with `m` of them from a table of `k` rows, each of its rows occurs `m / k`
/// times, rounded down or up. An epoch has [`LoaderOptions::num_samples`] rows, by default as many as all tables
/// together.
///
/// All tables must have the batch columns of the first, with the same types and categories.
/// [`LoaderOptions::columns`] can leave columns out.
///
/// # Errors
/// [`ErrorKind::Argument`](crate::ErrorKind::Argument) for options outside their range, for another
/// [`LoaderOptions::sampling`] than [`Sampling::Shuffled`], for tables with different columns, for shares that are
/// negative, not finite, or less than 1 in 65,536, and for a table without rows but with a share.
pub fn mix(tables: &[(StepTable, f64)], options: LoaderOptions) -> Result<Loader> {
    options.check()?;
    if options.sampling != Sampling::Shuffled {
        return Err(Error::argument("sampling", "shuffled", &options.sampling));
    }
    let sizes: Vec<(u64, f64)> = tables.iter().map(|(table, share)| (table.num_rows(), *share)).collect();
    let tables = tables.iter().map(|(table, _)| table.clone()).collect();
    let rows = TableMix::new(tables, options.tokens, options.columns.as_deref())?;
    let plan = SamplingPlan::Stratified(Arc::new(Strata::of_tables(&sizes)?));
    Loader::new(rows, plan, options)
}

impl Loader {
    fn new(rows: TableMix, plan: SamplingPlan, options: LoaderOptions) -> Result<Loader> {
        if let Some(column) = rows.schema().unturned().filter(|_| options.symmetries) {
            let expected = format!("false with {column}, or columns without it");
            return Err(Error::argument("symmetries", expected, true));
        }
        let num_samples = match options.num_samples {
            // Nothing can be drawn from an empty table.
            Some(num_samples) if plan.repeats() && rows.num_rows() > 0 => num_samples,
            Some(num_samples) if !plan.repeats() => {
                let expected = format!("None for a sampling that serves every row once ({})", options.sampling);
                return Err(Error::argument("num_samples", expected, num_samples));
            }
            _ => rows.num_rows(),
        };
        const MAX: u64 = LoaderOptions::MAX_NUM_SAMPLES;
        if num_samples > MAX {
            return Err(Error::argument("num_samples", format!("at most {MAX}"), num_samples));
        }
        let share = RankShare {
            num_rows: num_samples,
            batch_size: options.batch_size as u64,
            rank: options.rank as u64,
            world_size: options.world_size as u64,
            drop_last: options.drop_last,
        };
        let position = Arc::new(LoaderPosition::new(share, options.epoch));
        Ok(Loader { rows: Arc::new(rows), options, plan, position })
    }

    /// Returns the name of the order of the rows.
    #[must_use]
    pub fn order(&self) -> String {
        self.plan.name(&self.options.sampling)
    }

    /// Returns the number of rows of all tables.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.rows.num_rows()
    }

    /// Returns the options, with the first `epoch`.
    #[must_use]
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// Returns the epoch that the next [`batches`](Loader::batches) serve.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.position.next().0
    }

    /// Sets the epoch that the next [`batches`](Loader::batches) serve. They begin at the epoch's first row, or at the
    /// position of a loaded state if this state is of the same epoch and was just loaded.
    pub fn set_epoch(&self, epoch: u64) {
        self.position.set_epoch(epoch);
    }

    /// Skips batches of the epoch: the next [`batches`](Loader::batches) begin after them, at most at the end of the
    /// epoch. They are counted from the loader's position, which [`state`](Loader::state) returns. For example, skip
    /// the batches that caused a loss spike. `skip_batches(0)` continues an interrupted iteration.
    pub fn skip_batches(&self, num_batches: u64) {
        self.position.skip(num_batches);
    }

    /// Returns the number of batches of a whole epoch on this rank. It is the same on every rank.
    #[must_use]
    pub fn num_batches(&self) -> u64 {
        self.position.num_batches()
    }

    /// Returns the batches of an epoch, from its beginning or from the position of a loaded state. If the previous
    /// iteration returned a batch or ended, and no `set_epoch` followed, this is the next epoch.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if no thread can be started, and
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the memory of one batch cannot be
    /// allocated.
    pub fn batches(&self) -> Result<Batches> {
        let start @ Start { epoch, row, .. } = self.position.begin();
        let LoaderOptions { seed, symmetries, prefetch, .. } = self.options;
        let order = self.plan.order(self.rows.num_rows(), seed, epoch)?;
        let symmetries = symmetries.then(|| SymmetryKey::new(seed, epoch));
        let share = self.position.share();
        let maker = BatchMaker::new(&self.rows, order, symmetries, share, row);
        Batches::new(maker, prefetch, &self.position, start)
    }
}
