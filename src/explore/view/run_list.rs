//! The runs and their orders in RAM, so that the list of runs responds at once.

use super::lock::lock;
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::{Error, Result};
use crate::query::{QueryOptions, no_params, query_error};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Float32Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
use rayon::prelude::*;
use std::sync::{Arc, Mutex};

/// The columns of the list. They take about 50 bytes per run.
pub(super) const COLUMNS: [&str; 10] = [
    "run_id",
    "engine",
    "max_score",
    "highest_tile",
    "num_steps",
    "format",
    "start_time",
    "elapsed_s",
    "session",
    "raw_evs",
];

/// The maximum number of cached orders. Each takes four bytes per run.
const MAX_ORDERS: usize = 8;

/// The runs of the version that was requested last.
#[derive(Default)]
pub(super) struct RunList(Mutex<Option<Arc<Runs>>>);

/// The runs of one version, in the order of their ids.
pub(super) struct Runs {
    version: u64,
    pub(super) rows: RecordBatch,
    /// The cached orders by key. The one that was used last is at the end.
    orders: Mutex<Vec<(String, Arc<[u32]>)>>,
}

impl RunList {
    /// Returns the runs of an archive. Reads them unless this version is cached.
    pub(super) fn of(
        &self,
        archive: &Archive,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<Arc<Runs>> {
        // The lock is held while the runs are read, so that other requests wait instead of reading them too.
        let mut runs = lock(&self.0);
        if let Some(runs) = runs.as_ref().filter(|runs| runs.version == archive.version()) {
            return Ok(Arc::clone(runs));
        }
        let read = Arc::new(Runs::read(archive, options, cancel)?);
        *runs = Some(Arc::clone(&read));
        Ok(read)
    }
}

impl Runs {
    fn read(archive: &Archive, options: &QueryOptions, cancel: &CancellationToken) -> Result<Runs> {
        let sql = format!("SELECT {} FROM runs", COLUMNS.join(", "));
        let query = archive.sql_unless_cancelled(&sql, no_params(), options, cancel)?;
        let mut stream = query.stream_unless_cancelled(cancel)?;
        let mut batches = Vec::new();
        while let Some(batch) = stream.next_unless_cancelled(cancel)? {
            batches.push(batch);
        }
        let failed = |error: arrow::error::ArrowError| query_error(error.into());
        let batch = concat_batches(&stream.schema(), &batches).map_err(failed)?;
        drop(batches);
        let names = batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let columns = batch.columns().iter().map(|column| match column.data_type() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..) => {
                cast(column, &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)))
            }
            _ => Ok(Arc::clone(column)),
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(failed)?;
        let rows = RecordBatch::try_from_iter_with_nullable(
            names.into_iter().zip(columns).map(|(name, column)| (name, column, true)),
        );
        Ok(Runs { version: archive.version(), rows: rows.map_err(failed)?, orders: Mutex::default() })
    }

    /// Returns a column of numbers.
    pub(super) fn numbers(&self, name: &str) -> Result<ArrayRef> {
        cast(self.column(name)?, &DataType::UInt64).map_err(|error| query_error(error.into()))
    }

    pub(super) fn column(&self, name: &str) -> Result<&ArrayRef> {
        self.rows.column_by_name(name).ok_or_else(|| Error::query(format!("no column {name}")))
    }

    /// Returns the indices of the rows with these ids. The ids must ascend.
    pub(super) fn places(&self, run_ids: &[u32]) -> Result<Vec<u32>> {
        let known = self.column("run_id")?.as_primitive::<UInt32Type>().values();
        let mut at = 0;
        let mut places = Vec::with_capacity(run_ids.len());
        for id in run_ids {
            at += known[at..].partition_point(|other| other < id);
            if known.get(at) == Some(id) {
                places.push(at as u32);
            }
        }
        Ok(places)
    }

    /// Returns the order under a key. Computes it unless it is cached.
    pub(super) fn order(&self, key: &str, compute: impl FnOnce() -> Result<Vec<u32>>) -> Result<Arc<[u32]>> {
        {
            let mut orders = lock(&self.orders);
            if let Some(at) = orders.iter().position(|(other, _)| other == key) {
                let found = orders.remove(at);
                let order = Arc::clone(&found.1);
                orders.push(found);
                return Ok(order);
            }
        }
        let order: Arc<[u32]> = compute()?.into();
        let mut orders = lock(&self.orders);
        if orders.len() >= MAX_ORDERS {
            orders.remove(0);
        }
        orders.push((key.to_owned(), Arc::clone(&order)));
        Ok(order)
    }

    /// Sorts row indices by a column. Rows with equal values are sorted by id. Nulls are last in both
    /// directions.
    pub(super) fn sort(&self, places: Vec<u32>, by: &str, descending: bool) -> Result<Vec<u32>> {
        if by == "run_id" {
            return Ok(if descending { places.into_iter().rev().collect() } else { places });
        }
        let column = self.column(by)?;
        let keys = keys(column)?;
        let (nulls, known): (Vec<u32>, Vec<u32>) =
            places.into_iter().partition(|&place| column.is_null(place as usize));
        let mut known: Vec<(u64, u32)> = known.into_iter().map(|place| (keys[place as usize], place)).collect();
        known.par_sort_unstable();
        let sorted = known.into_iter().map(|(_, place)| place);
        Ok(match descending {
            false => sorted.chain(nulls).collect(),
            true => sorted.rev().chain(nulls.into_iter().rev()).collect(),
        })
    }

    /// Returns the rows at these indices.
    pub(super) fn take(&self, places: &[u32]) -> Result<RecordBatch> {
        let places = UInt32Array::from(places.to_vec());
        take_record_batch(&self.rows, &places).map_err(|error| query_error(error.into()))
    }
}

/// Returns a number for each value of a column. The numbers have the same order as the values.
fn keys(column: &ArrayRef) -> Result<Vec<u64>> {
    /// Bit 63 of a signed number is its sign; flipping it puts negative numbers first.
    const SIGN: u64 = 1 << 63;
    let failed = |error: arrow::error::ArrowError| query_error(error.into());
    Ok(match column.data_type() {
        DataType::Dictionary(..) => {
            let texts = column.as_dictionary::<Int32Type>();
            let values = texts.values().as_string::<i32>();
            let mut sorted: Vec<usize> = (0..values.len()).collect();
            sorted.sort_by_key(|&at| values.value(at));
            let mut ranks = vec![0; values.len()];
            let mut rank = 0;
            for (at, &place) in sorted.iter().enumerate() {
                // Merged dictionaries may have the same text twice.
                rank += u64::from(at > 0 && values.value(place) != values.value(sorted[at - 1]));
                ranks[place] = rank;
            }
            let rank = |&key: &i32| usize::try_from(key).ok().and_then(|key| ranks.get(key)).copied().unwrap_or(0);
            texts.keys().values().iter().map(rank).collect()
        }
        DataType::Float32 => {
            let key = |&value: &f32| {
                let bits = u64::from(value.to_bits());
                if value.is_sign_negative() { !bits & u64::from(u32::MAX) } else { bits | (1 << 31) }
            };
            column.as_primitive::<Float32Type>().values().iter().map(key).collect()
        }
        DataType::Timestamp(..) => {
            let times = cast(column, &DataType::Int64).map_err(failed)?;
            times.as_primitive::<Int64Type>().values().iter().map(|&time| time as u64 ^ SIGN).collect()
        }
        _ => {
            let numbers = cast(column, &DataType::UInt64).map_err(failed)?;
            numbers.as_primitive::<UInt64Type>().values().to_vec()
        }
    })
}
