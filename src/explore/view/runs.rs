//! The list of runs, filtered and sorted, in pages.

use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::Notes;
use super::request::{Body, blocking};
use super::run_list::{COLUMNS, Runs};
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::query::{QueryOptions, json_rows, no_params};
use crate::report::check_condition;
use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, UInt32Type, UInt64Type};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The maximum number of runs on a page.
const MAX_RUNS: u64 = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    #[serde(default)]
    filter: Filter,
    /// A condition in SQL on the columns of `runs`.
    #[serde(default, rename = "where")]
    condition: String,
    sort: Option<String>,
    #[serde(default)]
    descending: bool,
    #[serde(default)]
    offset: u64,
    limit: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Filter {
    /// Names of engines; null = runs without an engine.
    engines: Option<Vec<Option<String>>>,
    min_score: Option<u64>,
    max_score: Option<u64>,
    min_steps: Option<u64>,
    max_steps: Option<u64>,
    min_tile: Option<u64>,
    max_tile: Option<u64>,
    run_id: Option<u64>,
}

impl Filter {
    /// Returns the indices of the runs that pass the filter.
    fn places(&self, runs: &Runs) -> Result<Vec<u32>> {
        let mut passes = vec![true; runs.rows.num_rows()];
        let bounds = [
            ("max_score", self.min_score, self.max_score),
            ("num_steps", self.min_steps, self.max_steps),
            ("highest_tile", self.min_tile, self.max_tile),
            ("run_id", self.run_id, self.run_id),
        ];
        for (name, min, max) in bounds.into_iter().filter(|(_, min, max)| min.is_some() || max.is_some()) {
            let range = min.unwrap_or(0)..=max.unwrap_or(u64::MAX);
            let numbers = runs.numbers(name)?;
            let numbers = numbers.as_primitive::<UInt64Type>().iter();
            numbers
                .zip(&mut passes)
                .for_each(|(number, pass)| *pass &= number.is_some_and(|number| range.contains(&number)));
        }
        if let Some(engines) = &self.engines {
            let found = runs.column("engine")?.as_dictionary::<Int32Type>();
            let names = found.values().as_string::<i32>();
            let is_chosen: Vec<bool> =
                names.iter().map(|name| engines.iter().any(|engine| engine.as_deref() == name)).collect();
            let chooses_none = engines.contains(&None);
            let chosen = |key: Option<usize>| key.map_or(chooses_none, |key| is_chosen[key]);
            found.keys_iter().zip(&mut passes).for_each(|(key, pass)| *pass &= chosen(key));
        }
        Ok(passes.into_iter().enumerate().filter(|(_, pass)| *pass).map(|(place, _)| place as u32).collect())
    }
}

pub(super) async fn runs(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let has_condition = !request.condition.trim().is_empty();
    let _place = if has_condition { Some(explorer.place().await?) } else { None };
    blocking(move |cancel| {
        let started = Instant::now();
        let archive = explorer.archive();
        if request.limit > MAX_RUNS {
            return Err(Failure::bad_request(format!("limit: expected at most {MAX_RUNS}, found {}", request.limit)));
        }
        let sort = request.sort.as_deref().unwrap_or("run_id");
        if !COLUMNS.contains(&sort) {
            return Err(Failure::bad_request(format!("sort: expected one of {}, found {sort:?}", COLUMNS.join(", "))));
        }
        let options = explorer.options_of(&request.condition)?;
        let runs = explorer.runs.of(&archive, &options, cancel)?;
        // A condition may name the notes.
        let notes = explorer.notes.as_ref().filter(|_| has_condition).map(Notes::stamp);
        let key = format!("{:?}", (&request.filter, &request.condition, sort, request.descending, notes));
        let order = runs.order(&key, || {
            let mut places = request.filter.places(&runs)?;
            if has_condition {
                let fulfil = fulfilling(&archive, &runs, &request.condition, &options, cancel)?;
                places.retain(|place| fulfil.binary_search(place).is_ok());
            }
            runs.sort(places, sort, request.descending)
        })?;
        let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(order.len());
        let page = &order[from..(from + request.limit as usize).min(order.len())];
        let rows: Vec<Value> = json_rows(&runs.take(page)?)?
            .into_iter()
            .map(|row| COLUMNS.iter().map(|&name| name.to_owned()).zip(row).collect::<Map<_, _>>().into())
            .collect();
        let seconds = started.elapsed().as_secs_f64();
        Ok(Json(json!({ "version": archive.version(), "total": order.len(), "seconds": seconds, "rows": rows })))
    })
    .await
}

/// Returns the indices of the runs that fulfil an SQL condition.
fn fulfilling(
    archive: &Archive,
    runs: &Runs,
    condition: &str,
    options: &QueryOptions,
    cancel: &CancellationToken,
) -> Result<Vec<u32>> {
    check_condition(archive, condition, "a list of runs", options)?;
    let sql = format!("SELECT run_id FROM runs WHERE (\n{condition}\n)");
    let query = archive.sql_unless_cancelled(&sql, no_params(), options, cancel)?;
    let mut stream = query.stream_unless_cancelled(cancel)?;
    let mut run_ids = Vec::new();
    while let Some(batch) = stream.next_unless_cancelled(cancel)? {
        run_ids.extend_from_slice(batch.column(0).as_primitive::<UInt32Type>().values());
    }
    run_ids.sort_unstable();
    runs.places(&run_ids)
}
