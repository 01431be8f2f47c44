//! String columns as codes. Each distinct string is a category, and its code is its index in ascending order.
//!
//! Threads meet strings in an unpredictable order. So each string gets the next free code first. After the last
//! row, the codes are replaced by those of the sorted categories.

use crate::error::{Error, Result};
use crate::system::process::lock;
use crate::system::workers;
use crate::table::rows::layout::RowLayout;
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, Int32Type};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The greatest number of categories of a column.
pub(in crate::table) const MAX_CATEGORIES: usize = i16::MAX as usize + 1;

/// The code of a null.
const NULL: i16 = -1;

/// The categories of one column, in the order of their first use.
#[derive(Debug, Default)]
pub(in crate::table) struct Categories(Mutex<HashMap<String, i16>>);

/// Returns whether a column of this type holds categories.
pub(in crate::table) fn is_categorical(dtype: &DataType) -> bool {
    match dtype {
        DataType::Dictionary(_, values) => is_categorical(values),
        dtype => dtype.is_string(),
    }
}

impl Categories {
    /// Returns the codes of a batch's strings.
    pub(in crate::table) fn encode(&self, column: &str, array: &ArrayRef) -> Result<Vec<i16>> {
        let dictionary = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
        let array = cast(array, &dictionary).map_err(std::io::Error::other)?;
        let array = array.as_dictionary::<Int32Type>();
        let (keys, values) = (array.keys(), array.values());
        let values = cast(values, &DataType::Utf8).map_err(std::io::Error::other)?;
        let values: &StringArray = values.as_string();
        // A dictionary may hold unused strings.
        let mut codes = vec![None; values.len()];
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(key) = key.map(|key| key.as_usize()).filter(|&key| values.is_valid(key)) else {
                out.push(NULL);
                continue;
            };
            let code = match codes[key] {
                Some(code) => code,
                None => *codes[key].insert(self.code(column, values.value(key))?),
            };
            out.push(code);
        }
        Ok(out)
    }

    /// Gives strings the next codes, in this order.
    pub(in crate::table) fn preset(&self, column: &str, strings: &[String]) -> Result<()> {
        strings.iter().try_for_each(|string| self.code(column, string).map(|_| ()))
    }

    fn code(&self, column: &str, category: &str) -> Result<i16> {
        let mut codes = lock(&self.0);
        if let Some(&code) = codes.get(category) {
            return Ok(code);
        }
        let code = i16::try_from(codes.len()).map_err(|_| {
            let expected = format!("at most {MAX_CATEGORIES} different strings");
            Error::column(column, None, expected, "more")
        })?;
        codes.insert(category.to_owned(), code);
        Ok(code)
    }

    /// Returns the categories in ascending order, and the final code of each provisional code.
    fn sorted(&self) -> (Arc<[String]>, Vec<i16>) {
        let codes = lock(&self.0);
        let mut categories: Vec<(&String, i16)> = codes.iter().map(|(name, &code)| (name, code)).collect();
        categories.sort_unstable();
        let mut becomes = vec![0; categories.len()];
        for (k, (_, code)) in categories.iter().enumerate() {
            if let Some(slot) = becomes.get_mut(*code as usize) {
                *slot = k as i16;
            }
        }
        (categories.into_iter().map(|(name, _)| name.clone()).collect(), becomes)
    }
}

/// A mapping from provisional codes in rows to those of the sorted categories.
pub(in crate::table) struct Recoding {
    stride: usize,
    columns: Vec<(usize, Vec<i16>)>,
}

impl Recoding {
    /// Returns the recoding of all category columns of a layout, and the layout with their categories.
    pub(in crate::table) fn new(layout: &RowLayout, categories: &[Categories]) -> (RowLayout, Recoding) {
        let coded = layout.extras().iter().filter(|extra| extra.categories.is_some());
        let sorted: Vec<_> = categories.iter().map(Categories::sorted).collect();
        let columns = coded.zip(&sorted).map(|(extra, (_, becomes))| (extra.offset, becomes.clone()));
        // Codes that were assigned in ascending order are final.
        let columns = columns.filter(|(_, becomes)| !becomes.is_sorted()).collect();
        let layout = layout.clone().with_categories(sorted.into_iter().map(|(names, _)| names).collect());
        (layout.clone(), Recoding { stride: layout.stride(), columns })
    }

    pub(in crate::table) fn is_needed(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Replaces the codes in all rows, on all cores.
    pub(in crate::table) fn apply(&self, rows: &mut [u8]) -> Result<()> {
        let replace = |row: &mut [u8]| {
            for (offset, becomes) in &self.columns {
                let Some(slot) = row.get_mut(*offset..).and_then(|bytes| bytes.first_chunk_mut::<2>()) else {
                    continue;
                };
                if let Some(code) = becomes.get(i16::from_le_bytes(*slot) as usize) {
                    *slot = code.to_le_bytes();
                }
            }
        };
        let parts = rows.par_chunks_mut(self.stride << 16);
        workers::shared()?.install(|| parts.for_each(|rows| rows.chunks_exact_mut(self.stride).for_each(replace)));
        Ok(())
    }
}
