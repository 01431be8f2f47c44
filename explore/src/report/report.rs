//! Running the queries of a report.

use super::options::{ReportGroups, ReportOptions};
use super::plan::{self, MAX_GROUPS, PlannedTable, ReportFacts};
use a2store::archive::Archive;
use a2store::error::{Error, ErrorKind, Result};
use a2store::query::{QueryOptions, SavedQuery, ScalarValue};
use a2store::system::cancellation::CancellationToken;
use a2store::system::clock;
use a2store::system::progress::{Progress, Unit};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A report on an archive: the results of named queries, and a page that shows them.
#[derive(Clone, Debug)]
pub struct Report {
    /// The location of the archive.
    pub archive: String,
    /// The version that the report describes.
    pub version: u64,
    /// The time of the report in UTC, in the format of RFC 3339.
    pub written: String,
    /// The options.
    pub options: ReportOptions,
    /// The archive's phases: the tiles at which the middle game and the late game begin.
    pub phases: [u32; 2],
    /// Whether the report combines all runs in one group, because there are too many groups.
    pub has_too_many_groups: bool,
    /// The results, in the order of the page.
    pub tables: Vec<ReportTable>,
}

/// The result of one query of a report.
#[derive(Clone, Debug)]
pub struct ReportTable {
    /// The named query. The table has its name.
    pub query: &'static str,
    /// The parameters that the report sets, with their values.
    pub parameters: Vec<(&'static str, ScalarValue)>,
    /// The rows, or the reason why they are absent. If a query exceeds a limit, only its own section is absent.
    pub rows: Result<RecordBatch, String>,
    /// The duration of the query.
    pub elapsed: Duration,
    /// A remark that the result is an estimate. `None` = exact and complete.
    pub note: Option<String>,
}

impl Report {
    /// Returns a report on the runs of an archive: scores, lengths, tiles, survival, values, moves, positions,
    /// spawns.
    ///
    /// Runs about 25 named queries, most of which read all steps. `progress` counts the queries.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let cancel = a2store::CancellationToken::new();
    /// # let mut archive = a2store::Archive::create(folder.path().join("games.a2"), Default::default())?;
    /// # let runs = folder.path().join("runs");
    /// # a2store::simulate(&runs, &a2store::SimulateOptions::default().with_runs(3), &(), &cancel)?;
    /// # archive.ingest([&runs], &Default::default(), &(), &cancel)?;
    /// let report = a2store_explore::Report::of(&archive, &a2store_explore::ReportOptions::default(), &(), &cancel)?;
    /// std::fs::write(folder.path().join("report.html"), report.to_html()?)?;
    /// let reach = report.tables.iter().find(|table| table.query == "tile_reach");
    /// assert!(reach.is_some_and(|table| table.rows.as_ref().is_ok_and(|rows| rows.num_rows() > 0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Query`](a2store::ErrorKind::Query) and
    /// [`ErrorKind::QueryRefused`](a2store::ErrorKind::QueryRefused) if the options' condition is not one condition on
    /// runs. [`ErrorKind::Argument`](a2store::ErrorKind::Argument) if a group in `compare` has no runs. Errors of
    /// reading the archive. [`ErrorKind::Cancelled`](a2store::ErrorKind::Cancelled).
    pub fn of(
        archive: &Archive,
        options: &ReportOptions,
        progress: &dyn Progress,
        cancel: &CancellationToken,
    ) -> Result<Report> {
        let tables = options.tables(archive)?;
        let run = |planned: PlannedTable| ReportTable::of(archive, planned, &tables, cancel);
        let summary = run(plan::summary())?;
        let rows = summary.rows.clone().map_err(Error::query)?;
        let facts = ReportFacts { has_annotations: !archive.annotations().is_empty(), ..facts(&rows) };
        check_groups(options, &rows)?;
        if facts.num_groups == 0 && options.condition.is_some() {
            progress.warn("no run meets the condition, so the report is empty");
        }
        let mut found = vec![summary];
        let planned = plan::tables(&facts);
        progress.begin("report", Unit::Queries, planned.len() as u64);
        let done = planned.into_iter().try_for_each(|planned| {
            found.push(run(planned)?);
            progress.advance(1);
            Ok(())
        });
        progress.end();
        done.map(|()| Report {
            archive: archive.path().to_string_lossy().into_owned(),
            version: archive.version(),
            written: clock::text(SystemTime::now()),
            options: options.clone(),
            phases: [archive.phases().mid, archive.phases().late],
            has_too_many_groups: facts.num_groups > MAX_GROUPS,
            tables: found,
        })
    }
}

impl ReportTable {
    /// Runs a query over these tables.
    fn of(
        archive: &Archive,
        planned: PlannedTable,
        tables: &[String],
        cancel: &CancellationToken,
    ) -> Result<ReportTable> {
        let PlannedTable { query, parameters, note } = planned;
        let started = Instant::now();
        let saved = with_tables(SavedQuery::find(query)?, tables);
        let given = parameters.iter().cloned();
        let planned = archive.query_with(&saved, given, &QueryOptions::default(), cancel);
        let rows = match planned.and_then(|query| query.rows(cancel)) {
            Ok(rows) => Ok(rows),
            // This query exceeded a limit, but the results of the other queries are still right.
            Err(error) if matches!(error.kind(), ErrorKind::QueryLimit { .. } | ErrorKind::MemoryLimit { .. }) => {
                Err(error.message())
            }
            Err(error) => return Err(error),
        };
        Ok(ReportTable { query, parameters, rows, elapsed: started.elapsed(), note })
    }
}

/// Adds common table expressions before those of a named query.
fn with_tables(mut query: SavedQuery, tables: &[String]) -> SavedQuery {
    if tables.is_empty() {
        return query;
    }
    let lines = query.sql.lines().skip_while(|line| line.starts_with("--"));
    let text = lines.collect::<Vec<_>>().join("\n");
    let tables = tables.join(",\n");
    query.sql = match text.strip_prefix("WITH ") {
        Some(rest) => format!("WITH {tables},\n{rest}"),
        None => format!("WITH {tables}\n{text}"),
    };
    query
}

/// Returns the facts about all runs from the summary.
fn facts(summary: &RecordBatch) -> ReportFacts {
    let values = |name: &str| {
        let column = summary.column_by_name(name).and_then(|column| cast(column, &DataType::UInt64).ok());
        column.map_or_else(Vec::new, |column| column.as_primitive::<UInt64Type>().iter().flatten().collect())
    };
    let max = |name: &str| values(name).into_iter().max().unwrap_or(0);
    ReportFacts {
        num_steps: values("num_steps").iter().sum(),
        max_score: max("max_score"),
        max_steps: max("max_steps"),
        num_groups: groups(summary).len(),
        has_annotations: false,
    }
}

/// Returns the groups of the summary; `None` = runs without a group.
fn groups(summary: &RecordBatch) -> BTreeSet<Option<String>> {
    let column = summary.column_by_name("engine").and_then(|column| cast(column, &DataType::Utf8).ok());
    let text = |column: Arc<dyn Array>| {
        column.as_string::<i32>().iter().map(|name| name.map(str::to_owned)).collect::<BTreeSet<_>>()
    };
    column.map_or_else(BTreeSet::new, text)
}

fn check_groups(options: &ReportOptions, summary: &RecordBatch) -> Result<()> {
    let found = groups(summary);
    for name in options.compare.iter().flatten() {
        if !found.contains(&Some(name.clone())) {
            let expected = match options.groups {
                ReportGroups::Engine => "an engine with runs".to_owned(),
                ReportGroups::Ingest => "the time of an ingest with runs".to_owned(),
                groups => format!("a {groups} with runs"),
            };
            return Err(Error::argument("compare", expected, format!("{name:?}")));
        }
    }
    Ok(())
}
