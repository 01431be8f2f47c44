//! The list of refused statements and the rewrites, each beside DataFusion without them, over the same tables.

use super::{CORRELATED_KEY, REFUSED, check_types};
use crate::Phases;
use crate::error::{Error, ErrorKind, Result};
use crate::query::engine::errors::query_error;
use crate::query::engine::session;
use crate::query::guard;
use crate::query::options::QueryOptions;
use crate::query::rewrites;
use arrow::array::{ArrayRef, RecordBatch, StringArray, StructArray, UInt32Array};
use arrow::datatypes::{DataType, Field};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::collect;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use parquet::arrow::ArrowWriter;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// An example of each entry of the list, in its order, with the right rows; `None` if DataFusion fails.
const EXAMPLES: [(&str, Option<&str>); 20] = [
    ("SELECT run_id IN (SELECT run_id FROM u) FROM runs", None),
    ("SELECT run_id FROM runs AS r WHERE run_id NOT IN (SELECT u.run_id FROM u WHERE u.label = r.engine)", Some("3|4")),
    ("SELECT run_id FROM runs WHERE (run_id IN (SELECT run_id FROM u)) IS NULL", Some("3|4")),
    ("SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM u) OR run_id = 1", Some("1")),
    ("SELECT run_id FROM runs WHERE (run_id, engine) IN (SELECT run_id, label FROM u)", None),
    (
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT max(run_id) FROM u WHERE u.run_id = r.run_id)",
        Some("1|2|3|4"),
    ),
    (
        "SELECT n FROM runs AS r, LATERAL (SELECT count(*) OVER () AS n FROM u WHERE u.run_id = r.run_id) AS d",
        Some("1|1"),
    ),
    ("SELECT count(*) FROM runs AS r GROUP BY (SELECT count(*) FROM u WHERE u.run_id = r.run_id)", None),
    (
        "SELECT run_id FROM runs AS r WHERE EXISTS (SELECT 1 FROM u AS a WHERE EXISTS (SELECT 1 FROM u WHERE \
         u.run_id = r.run_id))",
        None,
    ),
    (
        "SELECT c FROM (SELECT run_id AS c FROM runs UNION ALL SELECT 3000000000.5) AS d WHERE EXISTS \
         (SELECT 1 FROM u WHERE u.run_id = d.c)",
        Some("1.0|2.0"),
    ),
    ("SELECT engine FROM runs EXCEPT ALL SELECT label FROM u WHERE label = 'a' AND run_id = 1", Some("NULL|a|b")),
    ("SELECT c / 2 FROM (SELECT 3 AS c INTERSECT SELECT 3.0) AS d", Some("1.5")),
    ("SELECT run_id FROM (SELECT run_id FROM u WHERE run_id = 1) AS a RIGHT JOIN runs USING (run_id)", Some("1|2|3|4")),
    ("SELECT sum(a) FROM (SELECT run_id AS a FROM runs ORDER BY num_steps OFFSET 2) AS d", Some("3")),
    ("SELECT count(n) FILTER (WHERE n <> 4) FROM (SELECT count(*) AS n FROM runs) AS d", Some("0")),
    (
        "SELECT num_steps AS run_id, CAST(run_id AS DOUBLE) AS x FROM runs GROUP BY num_steps, CAST(run_id AS DOUBLE) \
         ORDER BY run_id",
        Some("10 4.0|20 3.0|30 2.0|40 1.0"),
    ),
    ("SELECT sum(num_steps) OVER (PARTITION BY coalesce(engine, 'x') > 'a') FROM runs", Some("30|30|70|70")),
    ("SELECT nullif(s, s)['a'] FROM structs", Some("NULL|NULL")),
    ("SELECT run_id FROM runs WHERE run_id IS DISTINCT FROM 1 AND run_id < 3", Some("2")),
    ("SELECT arrow_cast(num_steps + 0.55, 'Decimal32(5, 2)') * 2 FROM runs WHERE run_id = 1", Some("81.10")),
];

/// Statements that a rewrite corrects, with their rows.
const CORRECTED: [(&str, &str); 21] = [
    ("FROM u", "1 a|2 b|NULL a"),
    ("SELECT engine AS e, sum(num_steps) * -1 FROM runs GROUP BY engine ORDER BY 2 DESC, 2, 1 LIMIT 1", "NULL -10"),
    ("SELECT count(*) FROM runs LEFT JOIN u AS o USING (run_id) WHERE run_id IN (SELECT run_id FROM u)", "2"),
    ("SELECT n FROM (SELECT count(*) AS n FROM runs) AS d WHERE (SELECT max(run_id) FROM runs) < 0", ""),
    ("SELECT count(*) FROM runs AS r JOIN u ON 'a' = u.label WHERE u.label = 'a'", "8"),
    ("SELECT count(*) FROM u RIGHT JOIN runs AS r ON r.run_id = u.run_id WHERE u.run_id IS NULL", "2"),
    (
        "SELECT d.engine FROM runs AS r LEFT JOIN (SELECT * FROM runs WHERE engine = 'b') AS d ON r.run_id = d.run_id \
         ORDER BY d.engine NULLS FIRST",
        "NULL|NULL|NULL|b",
    ),
    (
        "SELECT t AS c, sum(n) FROM (SELECT 'late' AS t, run_id AS n FROM runs) AS x \
         GROUP BY GROUPING SETS ((t, n), (t), ()) ORDER BY c DESC NULLS FIRST, 2 LIMIT 3",
        "NULL 10|late 1|late 2",
    ),
    ("SELECT count(*) FROM runs WHERE (SELECT num_steps FROM runs WHERE run_id = 9) IS NULL", "4"),
    ("SELECT count(*) FROM runs WHERE TRY_CAST(num_steps * 100 AS TINYINT) > 5", "0"),
    (
        "SELECT count(*) FROM (SELECT CAST(run_id + 0.3 AS DECIMAL(10, 2)) AS a FROM runs) AS d WHERE CAST(a AS INT) = 2",
        "1",
    ),
    (
        "SELECT run_id FROM runs AS r WHERE 0 IN (1, (SELECT count(*) FROM runs AS o WHERE o.engine = r.engine)) \
         ORDER BY run_id",
        "4",
    ),
    ("SELECT run_id FROM runs WHERE 10 / (CAST(run_id AS BIGINT) - 3) > 0 AND run_id <> 3", "4"),
    ("SELECT count(*) FROM runs WHERE NOT (engine IN ('a', 'c') AND engine IN ('b', 'd'))", "3"),
    ("SELECT count(*) FROM runs WHERE engine NOT IN ('a', 'c') OR engine NOT IN ('b', 'd')", "3"),
    ("SELECT count(*) FROM runs WHERE run_id IN (1, 2) AND run_id NOT IN (1, NULL)", "0"),
    ("SELECT -n AS n FROM (SELECT DISTINCT num_steps AS n FROM runs) AS d ORDER BY n LIMIT 2", "-40|-30"),
    ("SELECT m AS k, k AS m FROM (SELECT run_id AS k, num_steps AS m FROM runs) ORDER BY m LIMIT 1", "40 1"),
    ("SELECT sum(engine = 'a') FROM runs", "2"),
    (
        "SELECT min(x) FROM (SELECT CASE run_id WHEN 4 THEN CAST('NaN' AS DOUBLE) ELSE run_id END AS x FROM runs) AS d \
         GROUP BY x > 0",
        "1.0",
    ),
    (
        "SELECT max(b) * 3 FROM (SELECT CAST(18446744073709551615 AS BIGINT UNSIGNED) AS b FROM runs) AS d",
        "18446744073709551613",
    ),
];

const TABLES: [&str; 3] = ["runs", "u", "structs"];

/// Returns DataFusion without the rewrites of this crate, and with them, over the same files.
async fn engines(folder: &Path) -> (SessionContext, SessionContext) {
    let numbers = |numbers: &[u32]| Arc::new(UInt32Array::from(numbers.to_vec())) as ArrayRef;
    let texts = |texts: &[Option<&str>]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let table = |columns| RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let config = || session::config(&QueryOptions::default());
    let mut plain = config();
    plain.options_mut().optimizer.enable_topk_aggregation = true;
    let plain = SessionStateBuilder::new().with_config(plain).with_default_features().build();
    let plain = SessionContext::new_with_state(plain);
    let ours = session::restricted(SessionStateBuilder::new().with_config(config()), Phases::default())
        .with_physical_optimizer_rules(rewrites::physical_rules(PhysicalOptimizer::default().rules));
    let ours = SessionContext::new_with_state(ours.build());
    // Some rules apply to files only, and others to tables in memory only.
    let runs = table(vec![
        ("run_id", numbers(&[1, 2, 3, 4]), false),
        ("num_steps", numbers(&[40, 30, 20, 10]), false),
        ("engine", texts(&[Some("a"), Some("a"), Some("b"), None]), true),
    ]);
    let path = folder.join("runs.parquet");
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), runs.schema(), None).unwrap();
    writer.write(&runs).unwrap();
    writer.close().unwrap();
    plain.register_parquet("runs", path.to_str().unwrap(), ParquetReadOptions::default()).await.unwrap();
    ours.register_table("runs", plain.table_provider("runs").await.unwrap()).unwrap();
    let run_ids: ArrayRef = Arc::new(UInt32Array::from(vec![Some(1), Some(2), None]));
    let u = table(vec![("run_id", run_ids, true), ("label", texts(&[Some("a"), Some("b"), Some("a")]), true)]);
    let fields = vec![(Arc::new(Field::new("a", DataType::UInt32, true)), numbers(&[1, 2]))];
    let structs = table(vec![("s", Arc::new(StructArray::from(fields)) as ArrayRef, true)]);
    for context in [&plain, &ours] {
        context.register_batch("u", u.clone()).unwrap();
        context.register_batch("structs", structs.clone()).unwrap();
    }
    (plain, ours)
}

/// Returns the rows of a statement: cells between spaces, and rows between bars. Rows without an order are sorted.
async fn rows_of(context: &SessionContext, text: &str, is_ours: bool) -> Result<String> {
    let state = context.state();
    let plan = match is_ours {
        true => guard::planned(text, &TABLES, &state).await?,
        false => state.create_logical_plan(text).await.map_err(query_error)?,
    };
    let plan = state.analyzer().execute_and_check(plan, state.config_options(), |_, _| {}).map_err(query_error)?;
    if is_ours {
        check_types(&plan).map_err(query_error)?;
    }
    let plan = state.create_physical_plan(&plan).await.map_err(query_error)?;
    let batches = collect(plan, state.task_ctx()).await.map_err(query_error)?;
    let (mut rows, options) = (Vec::new(), FormatOptions::default().with_null("NULL"));
    for batch in &batches {
        let columns: Vec<ArrayFormatter<'_>> =
            batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
        let row = |row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(" ");
        rows.extend((0..batch.num_rows()).map(row));
    }
    if !text.rsplit(')').next().is_some_and(|end| end.contains("ORDER BY")) {
        rows.sort();
    }
    Ok(rows.join("|"))
}

/// Runs a test with both engines, on several threads.
fn with_engines<T: Future<Output = ()>>(test: impl FnOnce(SessionContext, SessionContext) -> T) {
    let folder = tempfile::tempdir().unwrap();
    let threads = tokio::runtime::Builder::new_multi_thread().thread_stack_size(8 << 20).build().unwrap();
    threads.block_on(async {
        let (plain, ours) = engines(folder.path()).await;
        test(plain, ours).await;
    });
}

#[test]
fn each_entry_refuses_its_example_which_datafusion_answers_wrongly() {
    with_engines(|plain, ours| async move {
        assert_eq!(REFUSED.len(), EXAMPLES.len());
        for (refusal, (example, rows)) in REFUSED.iter().zip(EXAMPLES) {
            let refused = rows_of(&ours, example, true).await;
            let found = refused.as_ref().map_err(Error::kind);
            assert!(matches!(found, Err(ErrorKind::QueryRefused { what, .. }) if what == refusal.what), "{found:?}");
            assert!(refused.unwrap_err().to_string().contains(refusal.instead));
            let answer = rows_of(&plain, example, false).await;
            let is_right = answer.as_ref().is_ok_and(|found| rows.is_none_or(|right| found == right));
            assert!(!is_right, "DataFusion answers it rightly, so remove the entry: {}: {answer:?}", refusal.what);
        }
    });
}

#[test]
fn each_rewrite_corrects_a_statement_which_datafusion_answers_wrongly() {
    with_engines(|plain, ours| async move {
        for (text, right) in CORRECTED {
            assert_eq!(rows_of(&ours, text, true).await.unwrap(), right, "{text}");
            let answer = rows_of(&plain, text, false).await;
            assert_ne!(
                answer.as_deref().ok(),
                Some(right),
                "DataFusion answers it rightly: remove the rewrite: {text}"
            );
        }
    });
}

#[test]
fn the_documentation_lists_each_entry() {
    let documentation = include_str!("../../../docs/sql.md");
    for refusal in REFUSED {
        let line = format!("| {} | {} |", refusal.what, refusal.instead);
        assert!(documentation.contains(&line), "docs/sql.md has no line {line}");
    }
}

#[test]
fn aggregates_of_correlated_subqueries_are_refused() {
    let inner = "(SELECT max(o.num_steps) FROM runs AS o WHERE o.run_id = r.run_id)";
    with_engines(|plain, ours| async move {
        for text in [
            format!("SELECT sum({inner}) FROM runs AS r"),
            format!("SELECT sum({inner}) FROM runs AS r GROUP BY run_id"),
            format!("SELECT count(*) FILTER (WHERE {inner} > 1) FROM runs AS r"),
        ] {
            let refused = rows_of(&ours, &text, true).await.unwrap_err();
            assert!(refused.to_string().contains(CORRELATED_KEY.what), "{refused}");
            assert!(rows_of(&plain, &text, false).await.is_err(), "DataFusion answers it: do not refuse it: {text}");
        }
    });
}
