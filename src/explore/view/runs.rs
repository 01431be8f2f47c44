//! The list of runs, filtered and sorted, in pages.

use super::cache::lock;
use super::explorer::Explorer;
use super::failure::{Answer, Failure};
use super::notes_file::Notes;
use super::request::{Body, blocking};
use crate::archive::Archive;
use crate::cancellation::CancellationToken;
use crate::error::Result;
use crate::explore::rows::{objects, read};
use crate::query::QueryOptions;
use crate::report::check_condition;
use arrow::array::AsArray;
use arrow::datatypes::UInt32Type;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// The columns of the list.
const COLUMNS: [&str; 10] = [
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
    /// Returns the conditions in SQL.
    fn conditions(&self) -> Vec<String> {
        let bounds = [
            ("max_score >=", self.min_score),
            ("max_score <=", self.max_score),
            ("num_steps >=", self.min_steps),
            ("num_steps <=", self.max_steps),
            ("highest_tile >=", self.min_tile),
            ("highest_tile <=", self.max_tile),
            ("run_id =", self.run_id),
        ];
        let mut conditions: Vec<String> =
            bounds.into_iter().filter_map(|(bound, number)| Some(format!("{bound} {}", number?))).collect();
        if let Some(engines) = &self.engines {
            let is_engine = |engine: &Option<String>| match engine {
                Some(name) => format!("engine = '{}'", name.replace('\'', "''")),
                None => "engine IS NULL".to_owned(),
            };
            let any = engines.iter().map(is_engine).collect::<Vec<_>>().join(" OR ");
            conditions.push(if any.is_empty() { "false".to_owned() } else { format!("({any})") });
        }
        conditions
    }
}

impl Request {
    /// Returns the ids of all requested runs, in order. Runs with equal values are sorted by id. Nulls are last in both
    /// directions.
    fn order(
        &self,
        archive: &Archive,
        sort: &str,
        options: &QueryOptions,
        cancel: &CancellationToken,
    ) -> Result<Vec<u32>> {
        let mut conditions = self.filter.conditions();
        if !self.condition.trim().is_empty() {
            check_condition(archive, &self.condition, "a list of runs", options)?;
            conditions.push(format!("(\n{}\n)", self.condition));
        }
        let filter = if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
        let direction = if self.descending { "DESC" } else { "ASC" };
        let keys = match sort {
            "run_id" => format!("run_id {direction}"),
            other => format!("{other} {direction} NULLS LAST, run_id {direction}"),
        };
        let rows = read(archive, &format!("SELECT run_id FROM runs WHERE {filter} ORDER BY {keys}"), options, cancel)?;
        Ok(rows.column(0).as_primitive::<UInt32Type>().values().to_vec())
    }
}

pub(super) async fn runs(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let _permit = explorer.permit().await?;
    let state = Arc::clone(&explorer);
    blocking(move |cancel| {
        let started = Instant::now();
        let archive = state.archive();
        if request.limit > MAX_RUNS {
            return Err(Failure::bad_request(format!("limit: expected at most {MAX_RUNS}, found {}", request.limit)));
        }
        let sort = request.sort.as_deref().unwrap_or("run_id");
        if !COLUMNS.contains(&sort) {
            return Err(Failure::bad_request(format!("sort: expected one of {}, found {sort:?}", COLUMNS.join(", "))));
        }
        let options = state.options_of(&request.condition)?;
        // A condition may name the notes.
        let notes = state.notes.as_ref().map(Notes::stamp);
        let choice = (archive.version(), &request.filter, &request.condition, sort, request.descending, notes);
        let key = format!("{choice:?}");
        let last = lock(&state.runs).clone().filter(|(known, _)| *known == key);
        let order = match last {
            Some((_, order)) => order,
            None => {
                let order: Arc<[u32]> = request.order(&archive, sort, &options, cancel)?.into();
                *lock(&state.runs) = Some((key, Arc::clone(&order)));
                order
            }
        };
        let from = usize::try_from(request.offset).unwrap_or(usize::MAX).min(order.len());
        let page = &order[from..(from + request.limit as usize).min(order.len())];
        let rows = rows_of(&archive, page, &state.limits(), cancel)?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Json(json!({ "version": archive.version(), "total": order.len(), "seconds": seconds, "rows": rows })))
    })
    .await
}

/// Returns the rows of these runs, in their order.
fn rows_of(
    archive: &Archive,
    run_ids: &[u32],
    options: &QueryOptions,
    cancel: &CancellationToken,
) -> Result<Vec<Map<String, Value>>> {
    let (Some(first), Some(last)) = (run_ids.iter().min(), run_ids.iter().max()) else { return Ok(Vec::new()) };
    let ids = run_ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let columns = COLUMNS.join(", ");
    // The range skips row groups, which a long list of ids does not.
    let sql = format!("SELECT {columns} FROM runs WHERE run_id BETWEEN {first} AND {last} AND run_id IN ({ids})");
    let rows = objects(&read(archive, &sql, options, cancel)?)?;
    let mut rows: HashMap<u64, Map<String, Value>> =
        rows.into_iter().filter_map(|row| Some((row["run_id"].as_u64()?, row))).collect();
    Ok(run_ids.iter().filter_map(|&id| rows.remove(&id.into())).collect())
}
