//! Attaching an array to a table: finding the array's row for each row of the table.

#[cfg(test)]
mod tests;

use crate::board::Board;
use crate::error::{Error, ErrorKind, Result};
use crate::system::cancellation::CancellationToken;
use crate::system::progress::{Progress, ReportedWork, Unit};
use crate::system::publish::parent;
use crate::system::workers;
use crate::table::columns::array_file::ArrayFiles;
use crate::table::columns::attached::{NO_PLACE, RowPlaces};
use crate::table::columns::step_keys::{StepKey, StepKeys, key_of};
use crate::table::files::file::absolute;
use crate::table::rows::memory::Region;
use crate::table::rows::step_column::is_reserved;
use crate::table::step_table::{StepTable, within};
use rayon::prelude::*;
use std::path::Path;
use std::sync::Arc;

/// Rows that are aligned together.
const CHUNK: usize = 1 << 16;

impl StepTable {
    /// Returns this table with one more column, whose values lie in a `.npy` file of `[rows, D]` numbers. For a
    /// folder, the file is `embeddings.npy`, or its shards `embeddings-<number>.npy` beside the shards of `steps.npy`.
    /// Batches, takes and [`column_reader`](StepTable::column_reader) have the column with D values per row,
    /// gathered in the same pass. Views and loaders of the returned table have it too. The tables share the
    /// rows. The row layout, the fingerprint, saved files ([`save`](StepTable::save)) and loader states do not
    /// include the column.
    ///
    /// A row gets the values of its step. The key file `steps` names the step of each array row by `run_id` and step
    /// index. It is a `.npy` file of records with integers `run_id` and `step_idx` or `step_index`, or a folder with
    /// `steps.npy` or its shards; `None` = the folder of the array. If the array has the table's rows
    /// contiguously and in the same order, the column takes no memory. Otherwise it takes four bytes per row of
    /// the table. The array must have less than 2^32 - 1 rows, and may have rows that the table does not have.
    ///
    /// The elements are floats of 2, 4 or 8 bytes, integers, or **bfloat16**, which NumPy lacks. A bfloat16
    /// array has type `<u2`, and its description says so in `dtype_bits` or `dtype`. The description is a JSON
    /// object beside the array: `embeddings.json` for `embeddings.bf16.npy`. Its `D` and its type must match
    /// the array.
    ///
    /// The file is mapped and must not change while it is in use. Board symmetries cannot turn an attached column, so a
    /// loader rejects the combination.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if the name is taken; [`ErrorKind::Header`] if a file is not such an array, the
    /// numbers of rows differ, or the description does not match; [`ErrorKind::Column`] if the array lacks the
    /// step of a table row or has a step twice; [`ErrorKind::Io`]; [`ErrorKind::Cancelled`].
    ///
    /// # Examples
    /// ```no_run
    /// use a2store::{CancellationToken, StepTable};
    /// let cancel = CancellationToken::new();
    /// let table = StepTable::from_session("selfplay/1", None, &(), &cancel)?;
    /// let table = table.attach("embedding", "selfplay/1/embeddings.bf16.npy", None, &(), &cancel)?;
    /// let batch = table.take(&[5, 0])?;
    /// assert_eq!(batch.column("embedding").unwrap().dtype, a2store::table::ElementType::BFloat16);
    /// # Ok::<(), a2store::Error>(())
    /// ```
    pub fn attach(
        &self,
        name: &str,
        path: impl AsRef<Path>,
        steps: Option<&Path>,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<StepTable> {
        self.check_unused(name)?;
        let path = absolute(path.as_ref())?;
        let steps = match steps {
            Some(steps) => absolute(steps)?,
            None if path.is_dir() => path.clone(),
            None => parent(&path).to_owned(),
        };
        // The array is opened first, so that a missing array is reported before an error of the folder beside
        // it.
        let array = ArrayFiles::open(&path)?;
        let keys = StepKeys::open(&steps, cancel)?;
        array.check_rows(&keys)?;
        let places = self.places(name, array.path(), &keys, progress, cancel)?;
        self.with_column(array.column(name, places)?)
    }

    /// Returns an error if a new column cannot have this name.
    fn check_unused(&self, name: &str) -> Result<()> {
        let is_taken = is_reserved(name)
            || self.layout.extra(name).is_some()
            || self.attached.iter().any(|column| column.name() == name);
        match is_taken || name.is_empty() {
            true => Err(Error::argument("name", "an unused column name", format!("{name:?}"))),
            false => Ok(()),
        }
    }

    /// Finds the array's row for each row of the table or view.
    fn places(
        &self,
        name: &str,
        path: &Path,
        keys: &StepKeys,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<RowPlaces> {
        let ranges = self.ranges();
        let (Some(first), Some(end)) = (ranges.first().map(|range| range.start), ranges.last().map(|range| range.end))
        else {
            return Ok(RowPlaces::Shifted(0));
        };
        if keys.num_rows() >= NO_PLACE.into() {
            return Err(Error::argument("path", format!("less than {NO_PLACE} rows"), keys.num_rows()));
        }
        let (index, threads) = (keys.index(cancel)?, workers::shared()?);
        let len = (end - first) as usize * size_of::<u32>();
        let mut places = Region::reserve(len as u64)?;
        let slots: &mut [u32] = bytemuck::cast_slice_mut(&mut places.bytes_mut()[..len]);
        // Fills the places of a chunk of rows. Returns the first row without a place, if any.
        let fill = |(number, slots): (usize, &mut [u32])| {
            if cancel.is_cancelled() {
                return None;
            }
            let start = first + (number * CHUNK) as u64;
            // Rows that the view does not show have no place.
            slots.fill(NO_PLACE);
            let mut next = 0;
            for row in within(&ranges, start..start + slots.len() as u64).flatten() {
                match index.find(self.key(row), &mut next) {
                    Some(found) if keys.is_of(found, self.board(row)) => slots[(row - start) as usize] = found as u32,
                    _ => return Some(row),
                }
            }
            progress.advance(slots.len() as u64);
            None
        };
        let _work = ReportedWork::begin(progress, "attach", Unit::Rows, end - first);
        let missing = threads.install(|| slots.par_chunks_mut(CHUNK).enumerate().filter_map(fill).min());
        cancel.check()?;
        if let Some(row) = missing {
            let before = ranges.iter().take_while(|range| range.start <= row);
            let position = before.map(|range| range.end.min(row) - range.start).sum();
            let key = self.key(row);
            let found = match index.find(key, &mut 0) {
                Some(place) => format!("another board in row {place} of {}", keys.path().display()),
                None => format!("none in {}", keys.path().display()),
            };
            let expected = format!("a row of run {}, step {}", key >> 32, key as u32);
            let (path, column) = (Some(path.to_owned()), name.to_owned());
            return Err(ErrorKind::Column { path, column, row: Some(position), expected, found }.into());
        }
        let is_shifted = |(slot, &place): (u32, &u32)| place == NO_PLACE || place.wrapping_sub(slot) == slots[0];
        match (0..).zip(slots.iter()).all(is_shifted) {
            true => Ok(RowPlaces::Shifted(u64::from(slots[0]).wrapping_sub(first))),
            false => Ok(RowPlaces::Listed(first, Arc::new(places.freeze(len)?))),
        }
    }

    /// Returns the key of a row of the mapping.
    #[inline]
    fn key(&self, row: u64) -> StepKey {
        let row = self.all_rows().at(row);
        key_of(Some(self.layout.step_of(row).run_id), Some(self.layout.step_index_of(row)))
    }

    #[inline]
    fn board(&self, row: u64) -> Board {
        self.layout.step_of(self.all_rows().at(row)).board
    }
}
