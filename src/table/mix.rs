//! The rows of one table or several, numbered one table after the other, in batches of one schema.

use crate::error::{Error, Result};
use crate::system::machine::reserve;
use crate::table::gather::arena::Arena;
use crate::table::gather::batch_schema::{BatchSchema, ColumnBuffers, ColumnSpec};
use crate::table::gather::symmetry::SymmetryKey;
use crate::table::rows::element::ElementType;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::runs::Origin;
use crate::table::step_table::StepTable;
use std::sync::Arc;

/// The number of rows that are gathered at a time, before they are copied to their places in the batch. The columns of
/// that many rows stay in the second-level cache.
const BLOCK: usize = 4096;

/// One table, or several whose batches have the same columns.
#[derive(Debug)]
pub(crate) struct TableMix {
    tables: Vec<StepTable>,
    /// The number of each table's first row.
    starts: Vec<u64>,
    num_rows: u64,
    /// Each table's batches. The places of the values in the rows differ.
    schemas: Vec<Arc<BatchSchema>>,
}

/// Memory for gathering, which is kept from batch to batch.
#[derive(Default)]
pub(crate) struct MixBuffers {
    /// The rows that a table has in a block, and their places in it.
    rows: Vec<u64>,
    places: Vec<u32>,
    /// Scratch memory for the row indices of a view.
    mapped: Vec<u64>,
    arena: Option<Arena>,
}

impl MixBuffers {
    /// Reserves memory for gathering rows of one table, so that no later batch allocates.
    pub(crate) fn reserve(&mut self, num_rows: usize) -> Result<()> {
        self.mapped.clear();
        reserve(&mut self.mapped, num_rows)
    }
}

impl Clone for MixBuffers {
    /// Returns empty buffers: each thread has its own.
    fn clone(&self) -> Self {
        MixBuffers::default()
    }
}

impl TableMix {
    /// Returns the tables in batches with these columns; `None` = all.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`](crate::ErrorKind::Argument) without tables, for unknown columns, and if the tables have
    /// other columns, types or categories than the first one.
    pub(crate) fn new(tables: Vec<StepTable>, tokens: ElementType, columns: Option<&[String]>) -> Result<TableMix> {
        let schema = |table: &StepTable| table.batch_schema(tokens, columns).map(Arc::new);
        let schemas: Vec<Arc<BatchSchema>> = tables.iter().map(schema).collect::<Result<_>>()?;
        let Some((first, others)) = schemas.split_first() else {
            return Err(Error::argument("tables", "at least one", "none"));
        };
        for (k, other) in others.iter().enumerate() {
            if let Some((expected, found)) = difference(first, other) {
                return Err(Error::argument(
                    "tables",
                    format!("{expected}, as in table 0"),
                    format!("{found} in table {}", k + 1),
                ));
            }
        }
        let (mut starts, mut num_rows) = (Vec::new(), 0);
        for table in &tables {
            starts.push(num_rows);
            num_rows += table.num_rows();
        }
        Ok(TableMix { tables, starts, num_rows, schemas })
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the schema of the batches.
    pub(crate) fn schema(&self) -> &Arc<BatchSchema> {
        &self.schemas[0]
    }

    /// Returns the table's fingerprint, or one of all tables in their order.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        match &self.tables[..] {
            [table] => table.fingerprint().clone(),
            tables => Fingerprint::of_several(tables.iter().map(StepTable::fingerprint)),
        }
    }

    /// Returns the origin that all rows have in common, without a query if the tables have several.
    pub(crate) fn origin(&self) -> Origin {
        let mut common = self.tables.first().map(|table| table.origin().clone()).unwrap_or_default();
        for other in self.tables.iter().map(|table| table.origin()) {
            if (&other.archive, other.version) != (&common.archive, common.version) {
                return Origin::default();
            }
            if other.query != common.query {
                common.query.clear();
            }
        }
        common
    }

    /// Advises the system that rows of a mapped file will be read soon, or not for long.
    pub(crate) fn advise(&self, rows: std::ops::Range<u64>, soon: bool) {
        // Only the windowed order reads in large pieces, and several tables have another order.
        if let [table] = &self.tables[..] {
            table.advise(rows, soon);
        }
    }

    /// Fills columns with rows.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory), unless the buffers were used before.
    ///
    /// # Panics
    /// If a row is not below the number of rows.
    pub(crate) fn gather(
        &self,
        rows: &[u64],
        buffers: &mut MixBuffers,
        mut columns: ColumnBuffers<'_>,
        symmetries: Option<SymmetryKey>,
    ) -> Result<()> {
        let schema = self.schema();
        if let [table] = &self.tables[..] {
            return table.gather(rows, &mut buffers.mapped, schema, columns, symmetries);
        }
        reserve(&mut buffers.rows, BLOCK)?;
        reserve(&mut buffers.places, BLOCK)?;
        reserve(&mut buffers.mapped, BLOCK)?;
        let arena = match &mut buffers.arena {
            Some(arena) => arena,
            none => none.insert(Arena::new(schema, BLOCK)?),
        };
        for rows in rows.chunks(BLOCK) {
            let mut out = schema.split_front(&mut columns, rows.len());
            for (k, (table, own)) in self.tables.iter().zip(&self.schemas).enumerate() {
                let (start, end) = (self.starts[k], self.starts[k] + table.num_rows());
                buffers.rows.clear();
                buffers.places.clear();
                for (place, &row) in (0..).zip(rows) {
                    if (start..end).contains(&row) {
                        buffers.rows.push(row - start);
                        buffers.places.push(place);
                    }
                }
                let gathered = arena.columns_mut(own, buffers.rows.len());
                table.gather(&buffers.rows, &mut buffers.mapped, own, gathered, symmetries)?;
                let gathered = arena.columns_mut(own, buffers.rows.len());
                for ((spec, values), out) in own.columns.iter().zip(gathered).zip(&mut out) {
                    scatter(spec.width(), values, &buffers.places, out);
                }
            }
        }
        Ok(())
    }
}

/// Copies each value of a column to its place.
fn scatter(width: usize, values: &[u8], places: &[u32], out: &mut [u8]) {
    fn of_width<const N: usize>(values: &[u8], places: &[u32], out: &mut [u8]) {
        let out = out.as_chunks_mut::<N>().0;
        for (value, &place) in values.as_chunks::<N>().0.iter().zip(places) {
            out[place as usize] = *value;
        }
    }
    match width {
        1 => of_width::<1>(values, places, out),
        2 => of_width::<2>(values, places, out),
        4 => of_width::<4>(values, places, out),
        8 => of_width::<8>(values, places, out),
        16 => of_width::<16>(values, places, out),
        64 => of_width::<64>(values, places, out),
        width => {
            for (value, &place) in values.chunks_exact(width).zip(places) {
                out[place as usize * width..][..width].copy_from_slice(value);
            }
        }
    }
}

/// Returns descriptions of the first different column: expected and found.
fn difference(expected: &BatchSchema, found: &BatchSchema) -> Option<(String, String)> {
    let shape =
        |column: &ColumnSpec| (column.name.clone(), column.dtype, column.values_per_row, column.categories.clone());
    let text = |column: Option<&ColumnSpec>| match column {
        None => "no other column".to_owned(),
        Some(ColumnSpec { name, categories: Some(categories), .. }) => {
            format!("{name} with the categories {}", categories.join(", "))
        }
        Some(ColumnSpec { name, dtype, values_per_row: 1, .. }) => format!("{name} {}", dtype.numpy()),
        Some(ColumnSpec { name, dtype, values_per_row, .. }) => format!("{name} {values_per_row} × {}", dtype.numpy()),
    };
    let len = expected.columns.len().max(found.columns.len());
    let mut pairs = (0..len).map(|k| (expected.columns.get(k), found.columns.get(k)));
    let (expected, found) = pairs.find(|(a, b)| a.map(shape) != b.map(shape))?;
    Some((text(expected), text(found)))
}
