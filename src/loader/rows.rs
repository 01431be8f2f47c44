//! The rows that a loader serves: those of one table, or of several, numbered one table after the other.

use crate::error::Result;
use crate::table::{BatchSchema, ColumnBuffers, Fingerprint, MixBuffers, StepTable, SymmetryKey, TableMix};
use std::sync::Arc;

/// The rows of a loader.
#[derive(Clone, Debug)]
pub(super) enum LoaderRows {
    Table(StepTable),
    Mix(Arc<TableMix>),
}

/// Scratch memory for a gather.
#[derive(Default)]
pub(super) struct RowBuffers {
    /// The row indices of a view.
    pub(super) rows: Vec<u64>,
    mix: MixBuffers,
}

impl Clone for RowBuffers {
    /// Returns empty buffers: each thread has its own.
    fn clone(&self) -> Self {
        RowBuffers::default()
    }
}

impl LoaderRows {
    pub(super) fn tables(&self) -> &[StepTable] {
        match self {
            LoaderRows::Table(table) => std::slice::from_ref(table),
            LoaderRows::Mix(mix) => mix.tables(),
        }
    }

    pub(super) fn num_rows(&self) -> u64 {
        match self {
            LoaderRows::Table(table) => table.num_rows(),
            LoaderRows::Mix(mix) => mix.num_rows(),
        }
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        match self {
            LoaderRows::Table(table) => table.fingerprint().clone(),
            LoaderRows::Mix(mix) => mix.fingerprint(),
        }
    }

    /// Fills columns with rows.
    pub(super) fn gather(
        &self,
        rows: &[u64],
        buffers: &mut RowBuffers,
        schema: &BatchSchema,
        columns: ColumnBuffers<'_>,
        symmetries: Option<SymmetryKey>,
    ) -> Result<()> {
        match self {
            LoaderRows::Table(table) => table.gather(rows, &mut buffers.rows, schema, columns, symmetries),
            LoaderRows::Mix(mix) => mix.gather(rows, &mut buffers.mix, columns, symmetries),
        }
    }

    /// Advises the system that rows of a mapped file will be read soon, or not for long.
    pub(super) fn advise(&self, rows: std::ops::Range<u64>, soon: bool) {
        // Only the windowed order reads in large pieces, and a mix has another order.
        if let LoaderRows::Table(table) = self {
            table.advise(rows, soon);
        }
    }
}
