//! One copy of a table for many processes.
//!
//! A table's rows begin as private memory of one process. For other processes, they move into a sealed memory
//! file (`memfd_create(2)`). They move in pieces and keep their address, so there are never two copies. Every
//! process of the same user can map the file through `/proc/<pid>/fd/<fd>` while this process holds the table.
//! The file has no name in any folder, so the system frees its memory when the last process ends. Rows in a file are
//! shared by its path.
//!
//! The memory file holds the rows from byte 0 on, then a [`footer`](crate::table::files::footer). Attached columns are shared by the
//! path of their files, and a list of places in the same way as rows.

use crate::error::{Error, Result};
use crate::table::columns::attached::{AttachedColumn, RowPlaces, ValueFile};
use crate::table::files::footer::footer;
use crate::table::files::region_location::RegionLocation;
use crate::table::rows::element::ElementType;
use crate::table::rows::fingerprint::Fingerprint;
use crate::table::rows::selection::Selection;
use crate::table::step_table::StepTable;
use std::sync::Arc;

/// A handle to a table.
#[derive(serde::Serialize, serde::Deserialize)]
struct TableHandle {
    rows: RegionLocation,
    /// The fingerprint of all rows, including those that a view does not show.
    fingerprint: Fingerprint,
    /// The attached columns, in their order.
    attached: Vec<ColumnHandle>,
    /// The first row and the length of each range of a view.
    selection: Option<Vec<[u64; 2]>>,
}

/// A handle to an attached column.
#[derive(serde::Serialize, serde::Deserialize)]
struct ColumnHandle {
    name: String,
    dtype: ElementType,
    values_per_row: usize,
    /// The first row and the place of each file of values.
    values: Vec<(u64, RegionLocation)>,
    /// The shift of the rows, or the first row of the table that has a place, and the list of places.
    shift: u64,
    places: Option<RegionLocation>,
}

impl StepTable {
    /// Returns a small handle, bytes of JSON, with which another process of the same user on the same machine opens
    /// this table without a copy. It is valid while this process holds the table, or while the mapped files stay
    /// unchanged. The first call moves the rows into shared memory in place, at about the speed of a copy.
    /// References to the rows stay valid.
    ///
    /// A forked process already has its parent's tables and needs no handle.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the system cannot create a memory file.
    pub fn handle(&self) -> Result<Vec<u8>> {
        let no_footer = || Ok(Vec::new());
        let column = |column: &AttachedColumn| {
            let value = |shard: &ValueFile| Ok((shard.first_row, shard.values.location(no_footer)?));
            let (shift, places) = match &column.places {
                RowPlaces::Shifted(by) => (*by, None),
                RowPlaces::Listed(first, places) => (*first, Some(places.location(no_footer)?)),
            };
            Ok(ColumnHandle {
                name: column.name().to_owned(),
                dtype: column.dtype,
                values_per_row: column.values_per_row,
                values: column.values.iter().map(value).collect::<Result<_>>()?,
                shift,
                places,
            })
        };
        let rows_footer = || {
            // A table can be shared without its archive. The other process then cannot filter by score or engine.
            let facts = self.runs.facts().ok().flatten();
            let (num_rows, fingerprint) = (self.num_all_rows(), &self.whole_fingerprint);
            footer(num_rows, 0, &self.layout, fingerprint, &self.runs, facts.as_deref(), None)
        };
        let handle = TableHandle {
            rows: self.rows.location(rows_footer)?,
            fingerprint: self.whole_fingerprint.clone(),
            attached: self.attached.iter().map(column).collect::<Result<_>>()?,
            selection: self.selection.as_ref().map(|selection| selection.to_pairs()),
        };
        serde_json::to_vec(&handle).map_err(Error::other)
    }

    /// Opens the table of a handle. It neither reads nor copies rows. It takes a few milliseconds at most, for
    /// the table's list of runs.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::ErrorKind::Io) if the process that made the handle no longer holds the table, or a file
    /// is missing; [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if something else is in its place;
    /// [`ErrorKind::Decode`](crate::ErrorKind::Decode) for bytes that are no handle.
    pub fn from_handle(handle: &[u8]) -> Result<StepTable> {
        let handle: TableHandle = serde_json::from_slice(handle)
            .map_err(|error| Error::decode(None, "handle of a table", "the result of StepTable::handle", error))?;
        let mut table = match handle.rows.is_memory {
            true => StepTable::of_memory(&handle.rows)?,
            false => {
                handle.rows.open()?;
                StepTable::of_file(handle.rows.path(), Some(&handle.fingerprint))?
            }
        };
        for column in &handle.attached {
            table = table.with_column(column.open(table.num_all_rows(), handle.selection.as_deref())?)?;
        }
        let Some(pairs) = &handle.selection else { return Ok(table) };
        let num_rows = table.num_all_rows();
        let selection = Selection::from_pairs(pairs, num_rows);
        let expected = || format!("ascending ranges below {num_rows}");
        Ok(table.of_selection(selection.map_err(|found| Error::decode(None, "rows of a view", expected(), found))?))
    }
}

impl ColumnHandle {
    /// Opens the column of a table with `num_rows` rows.
    fn open(&self, num_rows: u64, selection: Option<&[[u64; 2]]>) -> Result<AttachedColumn> {
        let value = |(first_row, location): &(u64, RegionLocation)| {
            Ok(ValueFile { first_row: *first_row, values: location.map()? })
        };
        let places = match &self.places {
            None => RowPlaces::Shifted(self.shift),
            Some(places) => RowPlaces::Listed(self.shift, Arc::new(places.map()?)),
        };
        let column = AttachedColumn {
            name: self.name.as_str().into(),
            dtype: self.dtype,
            values_per_row: self.values_per_row,
            values: self.values.iter().map(value).collect::<Result<_>>()?,
            places,
        };
        // The rows of a view begin at its first range and end with its last range.
        let rows = match selection {
            None => 0..num_rows,
            Some([[first, len]]) => *first..first.saturating_add(*len),
            Some([[first, _], .., [start, len]]) => *first..start.saturating_add(*len),
            Some([]) => 0..0,
        };
        match column.covers(rows) {
            true => Ok(column),
            false => Err(Error::argument("handle", "values for each row of the table", &self.name)),
        }
    }
}
