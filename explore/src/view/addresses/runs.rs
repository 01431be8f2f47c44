//! The list of runs, filtered and sorted, in pages.

use crate::report::check_condition;
use crate::rows::{objects, read};
use crate::view::explorer::{Body, Explorer, limits};
use crate::view::request::{Answer, Failure, blocking};
use a2store::archive::Archive;
use a2store::error::Result;
use a2store::query::json_rows;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

/// The columns of the list.
const COLUMNS: &str =
    "run_id, engine, max_score, highest_tile, num_steps, format, start_time, elapsed_s, session, raw_evs";

/// The maximum number of runs on a page.
const MAX_RUNS: u64 = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
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
            let quoted = engines.iter().flatten().map(|name| format!("'{}'", name.replace('\'', "''")));
            let names = std::iter::once("NULL".to_owned()).chain(quoted).collect::<Vec<_>>().join(", ");
            let null = if engines.contains(&None) { " OR engine IS NULL" } else { "" };
            conditions.push(format!("(engine IN ({names}){null})"));
        }
        conditions
    }
}

impl Request {
    /// Returns the condition of the requested runs in SQL.
    fn filter(&self, archive: &Archive) -> Result<String> {
        let mut conditions = self.filter.conditions();
        if !self.condition.trim().is_empty() {
            check_condition(archive, &self.condition, "a list of runs", &limits())?;
            conditions.push(format!("(\n{}\n)", self.condition));
        }
        Ok(if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") })
    }
}

/// Returns a page of the list. Runs with equal values are sorted by id, and nulls are last in both directions.
pub(crate) async fn runs(State(explorer): State<Arc<Explorer>>, Body(request): Body<Request>) -> Answer<Value> {
    let _permit = explorer.permit().await?;
    let archive = explorer.archive();
    blocking(move |cancel| {
        let started = Instant::now();
        // Ids of runs have 32 bits.
        let (offset, limit) = (request.offset.min(1 << 32), request.limit);
        if limit > MAX_RUNS {
            return Err(Failure::bad_request(format!("limit: expected at most {MAX_RUNS}, found {limit}")));
        }
        let sort = request.sort.as_deref().unwrap_or("run_id");
        if !COLUMNS.split(", ").any(|column| column == sort) {
            return Err(Failure::bad_request(format!("sort: expected one of {COLUMNS}, found {sort:?}")));
        }
        let filter = request.filter(&archive)?;
        let direction = if request.descending { "DESC" } else { "ASC" };
        let page = format!(
            "SELECT {COLUMNS} FROM runs WHERE {filter} ORDER BY {sort} {direction} NULLS LAST, run_id {direction} \
             LIMIT {limit} OFFSET {offset}"
        );
        let rows = objects(&read(&archive, &page, &limits(), cancel)?)?;
        let total = format!("SELECT count(*) FROM runs WHERE {filter}");
        let total = json_rows(&read(&archive, &total, &limits(), cancel)?)?.concat();
        let seconds = started.elapsed().as_secs_f64();
        Ok(Json(json!({ "version": archive.version(), "total": total.first(), "seconds": seconds, "rows": rows })))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_a_list_however_many_they_are() {
        let of = |engines: &[Option<&str>]| {
            let engines = engines.iter().map(|name| name.map(str::to_owned)).collect();
            Filter { engines: Some(engines), ..Filter::default() }.conditions().concat()
        };
        assert_eq!(of(&[]), "(engine IN (NULL))");
        assert_eq!(of(&[None, Some("a'b"), Some("c")]), "(engine IN (NULL, 'a''b', 'c') OR engine IS NULL)");
    }
}
