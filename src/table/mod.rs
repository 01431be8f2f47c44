//! A query's result as rows in memory: [`StepTable`], and [`Batch`]es of its rows.
//!
//! ```text
//!  Query ──materialize──▶ StepTable: one mapping of 32-byte rows (+ extras) ──gather──▶ Batch: columns
//! ```
//!
//! Entry points are [`Query::materialize`](crate::Query::materialize) and [`StepTable::take`]. Invariant: a table's rows
//! lie in one read-only mapping, in an order that the query and the archive's version determine, and never change.
//!
//! | file | owns |
//! | --- | --- |
//! | `layout.rs` | which bytes of a row are which column |
//! | `memory.rs` | the mapping: reserved, grown, trimmed, frozen |
//! | `convert.rs` | record batches → rows |
//! | `materialize.rs` | running a query into a table |
//! | `gather.rs` | rows at any indices → columns |
//! | `batch.rs` | the columns of a batch, and their Arrow form |
//! | `export.rs` | the whole table as Arrow data |

mod batch;
mod convert;
mod export;
mod gather;
mod layout;
mod materialize;
mod memory;

pub use batch::{Batch, BatchColumn, TokenType};
pub use export::ColumnReader;
pub use layout::{ElementType, ExtraField, RowLayout};
pub use materialize::{ChosenEv, MaterializeOptions};

pub(crate) use batch::{Arena, BatchSchema, Pool};

use crate::error::{Error, ErrorKind, Result};
use crate::step::{STEP_SIZE, Step};
use memory::FrozenRegion;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Batches whose memory a table keeps for the next `take`.
const TAKES_KEPT: usize = 2;

/// Rows of a query's result in one contiguous, read-only mapping. Clones share it.
///
/// A row is a [`Step`] of 32 bytes, followed by the extra columns if there are any; see [`RowLayout`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
/// # let runs = folder.path().join("runs");
/// # a2store::simulate(&runs, &a2store::SimulateOptions { runs: 3, ..Default::default() }, &())?;
/// # archive.ingest([&runs], &Default::default(), &())?;
/// let query = archive.sql("SELECT * FROM steps", a2store::no_params())?;
/// let table = query.materialize(&a2store::MaterializeOptions::default(), &())?;
/// assert_eq!(table.num_bytes(), 32 * table.num_rows());
///
/// let batch = table.take(&[5, 0, 5])?;
/// assert_eq!(batch.num_rows(), 3);
/// assert_eq!(table.step(5).unwrap().step_index, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StepTable {
    rows: Arc<FrozenRegion>,
    num_rows: u64,
    layout: Arc<RowLayout>,
    fingerprint: Arc<str>,
    /// What `take` gives, and memory for it.
    batch: Arc<BatchSchema>,
    pool: Arc<Mutex<Pool>>,
}

impl StepTable {
    fn new(rows: FrozenRegion, layout: RowLayout, fingerprint: String) -> Result<StepTable> {
        let num_rows = (rows.bytes().len() / layout.stride()) as u64;
        let batch = BatchSchema::new(&layout, TokenType::UInt8, None)?;
        Ok(StepTable {
            rows: Arc::new(rows),
            num_rows,
            layout: Arc::new(layout),
            fingerprint: fingerprint.into(),
            batch: Arc::new(batch),
            pool: Arc::new(Mutex::new(Pool::new(TAKES_KEPT))),
        })
    }

    /// The number of rows.
    #[must_use]
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.num_rows == 0
    }

    /// The size of the rows in bytes.
    #[must_use]
    pub fn num_bytes(&self) -> u64 {
        self.num_rows * self.layout.stride() as u64
    }

    /// Which bytes of a row are which column.
    #[must_use]
    pub fn layout(&self) -> &RowLayout {
        &self.layout
    }

    /// Names the data and its order: archive, version, query, parameters and options, in hexadecimal. Tables of equal
    /// fingerprint have equal rows.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The rows, [`stride`](RowLayout::stride) bytes each.
    #[must_use]
    pub fn rows(&self) -> &[u8] {
        self.rows.bytes()
    }

    /// The step in a row, without its extra columns.
    #[must_use]
    pub fn step(&self, index: u64) -> Option<Step> {
        let start = usize::try_from(index).ok()?.checked_mul(self.layout.stride())?;
        let bytes = self.rows().get(start..)?.get(..STEP_SIZE)?;
        Some(bytemuck::pod_read_unaligned(bytes))
    }

    /// The rows at `indices`, in that order and as often as they stand there, as columns.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`] with the first index that no row has.
    pub fn take(&self, indices: &[u64]) -> Result<Batch> {
        self.check_indices(indices)?;
        let pool = || self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arena = pool().take(&self.batch, indices.len());
        gather::gather(self, indices, &self.batch, &mut arena);
        let arena = Arc::new(arena);
        pool().keep(&arena);
        Ok(Batch::new(arena, Arc::clone(&self.batch), indices.len()))
    }

    /// Fills an arena with the rows at `indices`.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfBounds`].
    pub(crate) fn gather(&self, indices: &[u64], schema: &BatchSchema, arena: &mut Arena) -> Result<()> {
        self.check_indices(indices)?;
        if indices.len() > arena.capacity() {
            return Err(Error::argument("indices", format!("at most {}", arena.capacity()), indices.len()));
        }
        gather::gather(self, indices, schema, arena);
        Ok(())
    }

    fn check_indices(&self, indices: &[u64]) -> Result<()> {
        let Some(&index) = indices.iter().find(|&&index| index >= self.num_rows) else {
            return Ok(());
        };
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        Err(ErrorKind::IndexOutOfBounds { index, len: self.num_rows }.into())
    }
}

impl fmt::Debug for StepTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepTable")
            .field("num_rows", &self.num_rows)
            .field("stride", &self.layout.stride())
            .field("fingerprint", &self.fingerprint)
            .finish()
    }
}
