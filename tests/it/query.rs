use crate::support::Games;
use a2store::archive::TableName;
use a2store::format::read_run;
use a2store::query::{ParamValues, RowFormat, no_params};
use a2store::{Archive, CancellationToken, ErrorKind, ScalarValue};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type, UInt64Type};
use parquet::basic::Type;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;

fn rows(archive: &Archive, sql: &str) -> Vec<RecordBatch> {
    archive.sql(sql, no_params()).unwrap().stream(&CancellationToken::new()).unwrap().map(Result::unwrap).collect()
}

fn column<T: arrow::datatypes::ArrowPrimitiveType>(batches: &[RecordBatch], name: &str) -> Vec<T::Native> {
    let of = |batch: &RecordBatch| batch.column_by_name(name).unwrap().as_primitive::<T>().values().to_vec();
    batches.iter().flat_map(of).collect()
}

#[track_caller]
fn assert_rejected(archive: &Archive, sql: &str, params: impl Into<ParamValues>, message: &str) {
    let error = archive.sql(sql, params).map(|_| ()).unwrap_err();
    let sql = &sql[..sql.len().min(200)];
    assert!(matches!(error.kind(), ErrorKind::Query { .. } | ErrorKind::QueryRefused { .. }), "{sql}: {error}");
    assert!(error.to_string().to_lowercase().contains(&message.to_lowercase()), "{sql}: {error}");
}

#[test]
fn steps_equal_the_run_files_in_order() {
    let games = Games::new();
    let sources = rows(&games.archive, "SELECT source FROM runs ORDER BY run_id");
    let sources: Vec<String> = sources
        .iter()
        .flat_map(|batch| batch.column(0).as_string::<i32>().iter().map(|s| s.unwrap().to_owned()).collect::<Vec<_>>())
        .collect();
    assert_eq!(sources.len(), 24);
    let steps = rows(&games.archive, "SELECT * FROM steps");
    let mut row = 0;
    let run_id = column::<UInt32Type>(&steps, "run_id");
    let step_index = column::<UInt32Type>(&steps, "step_index");
    let board = column::<UInt64Type>(&steps, "board");
    let chosen = column::<UInt8Type>(&steps, "move");
    let max_exp = column::<UInt8Type>(&steps, "max_exp");
    for (id, source) in sources.iter().enumerate() {
        let (run, _) = read_run(source).unwrap();
        for step in 0..run.num_steps() {
            assert_eq!((run_id[row], step_index[row]), (id as u32, step as u32));
            assert_eq!((board[row], chosen[row]), (run.boards()[step].0, run.moves()[step] as u8));
            assert_eq!(max_exp[row], run.boards()[step].max_exp());
            row += 1;
        }
    }
    assert_eq!(row as u64, games.archive.num_steps());
}

#[test]
fn filters_return_the_matching_rows_in_order() {
    let games = Games::new();
    let sql = "SELECT run_id, step_index, max_score, phase, engine FROM steps \
               WHERE max_score >= $1 AND engine = $2 AND phase = $3";
    let params = vec![ScalarValue::from(2_000_i64), ScalarValue::from("beta"), ScalarValue::from("mid")];
    let query = games.archive.sql(sql, params).unwrap();
    let found: Vec<RecordBatch> = query.stream(&CancellationToken::new()).unwrap().map(Result::unwrap).collect();
    let keys: Vec<(u32, u32)> =
        column::<UInt32Type>(&found, "run_id").into_iter().zip(column::<UInt32Type>(&found, "step_index")).collect();
    assert!(!keys.is_empty() && keys.is_sorted());

    // A naive loop over all rows gives the same.
    let all =
        rows(&games.archive, "SELECT run_id, step_index, max_score, max_exp, coalesce(engine, '') AS e FROM steps");
    let mut expected = Vec::new();
    for batch in &all {
        let score = batch.column(2).as_primitive::<Int64Type>().values();
        let max_exp = batch.column(3).as_primitive::<UInt8Type>().values();
        let engine = arrow::compute::cast(batch.column(4), &arrow::datatypes::DataType::Utf8).unwrap();
        for row in 0..batch.num_rows() {
            // In `Games`, the phase `mid` begins at tile 64 and `late` at 256.
            let mid = (6..8).contains(&max_exp[row]);
            if score[row] >= 2_000 && mid && engine.as_string::<i32>().value(row) == "beta" {
                let id = |i: usize| batch.column(i).as_primitive::<UInt32Type>().value(row);
                expected.push((id(0), id(1)));
            }
        }
    }
    assert_eq!(keys, expected);
    assert_eq!(query.count(&CancellationToken::new()).unwrap(), keys.len() as u64);
}

#[test]
fn filters_by_score_engine_and_phase_run_inside_the_reader() {
    let games = Games::new();
    let sql = "SELECT board FROM steps WHERE max_score >= $min AND engine = $engine AND phase = $phase";
    let params = vec![("min", ScalarValue::from(100_i64)), ("engine", "beta".into()), ("phase", "late".into())];
    let plan = games.archive.sql(sql, params).unwrap().explain(false, &CancellationToken::new()).unwrap();
    assert!(!plan.contains("FilterExec"), "{plan}");
    // Run-level filters are evaluated once per run.
    let (by_run, plan) = plan.split_once('\n').unwrap();
    for part in ["filters on runs: ", "max_score >= ", "engine = "] {
        assert!(by_run.contains(part), "{part}: {by_run}");
    }
    for part in ["predicate=phase", "phase_max", "pruning_predicate="] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let nobody = games.archive.sql("SELECT board FROM steps WHERE engine = 'nobody'", no_params()).unwrap();
    assert!(nobody.explain(false, &CancellationToken::new()).unwrap().contains("EmptyExec"));
    let analyzed = games.archive.sql("SELECT board FROM steps WHERE max_exp = 15", no_params()).unwrap();
    let analyzed = analyzed.explain(true, &CancellationToken::new()).unwrap();
    assert!(analyzed.contains("row_groups_pruned_statistics=1 total → 0 matched"), "{analyzed}");
}

#[test]
fn parameters_are_bound_and_must_match() {
    let games = Games::new();
    let archive = &games.archive;
    let by_name = archive.sql("SELECT * FROM runs WHERE engine = $e", vec![("e", ScalarValue::from("beta"))]).unwrap();
    assert_eq!(by_name.count(&CancellationToken::new()).unwrap(), 8);
    // A text parameter is a value, never a part of the statement.
    let pasted = vec![ScalarValue::from("beta' OR 'a' = 'a")];
    assert_eq!(
        archive.sql("SELECT * FROM runs WHERE engine = $1", pasted).unwrap().count(&CancellationToken::new()).unwrap(),
        0
    );
    assert_rejected(archive, "SELECT * FROM runs WHERE engine = $e", no_params(), "no value for the parameters $e");
    assert_rejected(archive, "SELECT * FROM runs WHERE seed = ?", no_params(), "the parameters ? (write $1, $2, …)");
    let other = vec![("x", ScalarValue::from(1_i64))];
    assert_rejected(archive, "SELECT * FROM runs", other, "the query has no parameters $x");
}

#[test]
fn only_one_statement_over_known_tables_is_accepted() {
    let archive = &Games::new().archive;
    for (sql, message) in [
        ("DROP TABLE steps", "refused: DROP TABLE"),
        ("CREATE TABLE t AS SELECT 1", "refused: CREATE TABLE"),
        ("INSERT INTO runs SELECT * FROM runs", "refused: INSERT INTO"),
        ("COPY (SELECT 1) TO '/tmp/x.csv'", "refused: COPY"),
        ("SET datafusion.execution.batch_size = 1", "refused: SET"),
        ("SELECT 1; SELECT 2", "refused: 2 statements"),
        ("SELECT * FROM '/etc/passwd'", "refused: the table '/etc/passwd'"),
        ("SELECT * FROM other", "refused: the table other"),
        ("SELECT arrow_cast('a', 'FixedSizeBinary(1000000000)')", "refused: the function arrow_cast"),
        ("SELECT * FROM generate_series(1, 100000000000)", "generate_series"),
        ("SELECT nothing FROM steps", "nothing"),
        ("SELEC 1", "selec"),
        ("", ""),
    ] {
        assert_rejected(archive, sql, no_params(), message);
    }
}

#[test]
fn long_expressions_are_rejected() {
    let games = Games::new();
    let sum = |terms: usize| format!("SELECT {} AS x", vec!["1"; terms].join(" + "));
    assert_eq!(rows(&games.archive, &sum(400)).len(), 1);
    assert_rejected(&games.archive, &sum(3000), no_params(), "expressions are nested more than 500 deep");
    assert_rejected(&games.archive, &sum(100_000), no_params(), "bytes, expected at most 65536");
    let list: Vec<String> = (0..2_000).map(|i| i.to_string()).collect();
    let in_list = format!("SELECT * FROM runs WHERE run_id IN ({})", list.join(", "));
    assert_eq!(games.archive.sql(&in_list, no_params()).unwrap().count(&CancellationToken::new()).unwrap(), 24);
}

#[test]
fn a_damaged_data_file_is_an_error() {
    let games = Games::new();
    for table in [TableName::Runs, TableName::Steps] {
        let path = &games.archive.files(table)[0];
        let good = std::fs::read(path).unwrap();
        let sql = format!("SELECT * FROM {} WHERE run_id >= 0", table.name());
        let error = |checksums| {
            let query = games.archive.clone().with_checksums(checksums).sql(&sql, no_params()).unwrap();
            let outcome =
                query.stream(&CancellationToken::new()).and_then(|stream| stream.collect::<a2store::Result<Vec<_>>>());
            outcome.unwrap_err()
        };
        for checksums in [true, false] {
            std::fs::write(path, &good[..good.len() / 2]).unwrap();
            let cut = error(checksums);
            assert!(matches!(cut.kind(), ErrorKind::Damaged { path: of, .. } if of == path), "{cut}");
            assert!(cut.to_string().contains(&format!("expected {} bytes", good.len())), "{cut}");
            std::fs::remove_file(path).unwrap();
            let gone = error(checksums);
            assert!(matches!(gone.kind(), ErrorKind::Damaged { path: of, .. } if of == path), "{gone}");
            assert!(gone.to_string().contains("found no file"), "{gone}");
        }
        // A damaged file of the same length.
        std::fs::write(path, vec![0; good.len()]).unwrap();
        let compared = error(true);
        assert!(matches!(compared.kind(), ErrorKind::Damaged { path: of, .. } if of == path), "{compared}");
        assert!(compared.to_string().contains("CRC32C of the file"), "{compared}");
        // Without checksums, the error describes the damage and how to find the file.
        let read = error(false);
        assert!(matches!(read.kind(), ErrorKind::Damaged { .. }), "{read}");
        assert!(read.to_string().contains("`verify` names the file"), "{read}");
        std::fs::write(path, &good).unwrap();
    }
}

#[test]
fn limit_and_offset_without_order_by_take_the_first_rows() {
    let games = Games::new();
    let all = rows(&games.archive, "SELECT run_id, step_index FROM steps");
    let all: Vec<(u32, u32)> =
        column::<UInt32Type>(&all, "run_id").into_iter().zip(column::<UInt32Type>(&all, "step_index")).collect();
    for (limit, offset) in [(0, 0), (1, 0), (1000, 7), (5, 100_000_000)] {
        let sql = format!("SELECT run_id, step_index FROM steps LIMIT {limit} OFFSET {offset}");
        let found = rows(&games.archive, &sql);
        let found: Vec<(u32, u32)> = column::<UInt32Type>(&found, "run_id")
            .into_iter()
            .zip(column::<UInt32Type>(&found, "step_index"))
            .collect();
        assert_eq!(found, all.iter().copied().skip(offset).take(limit).collect::<Vec<_>>(), "{sql}");
    }
}

#[test]
fn order_by_the_natural_order_needs_no_sort() {
    let games = Games::new();
    let query = games.archive.sql("SELECT board FROM steps ORDER BY run_id, step_index", no_params()).unwrap();
    let plan = query.explain(false, &CancellationToken::new()).unwrap();
    assert!(!plan.contains("Sort"), "{plan}");
    let other = games.archive.sql("SELECT board, run_id FROM steps ORDER BY run_id DESC", no_params()).unwrap();
    assert!(other.explain(false, &CancellationToken::new()).unwrap().contains("Sort"));
    let batches: Vec<_> = other.stream(&CancellationToken::new()).unwrap().map(Result::unwrap).collect();
    assert!(column::<UInt32Type>(&batches, "run_id").is_sorted_by(|a, b| a >= b));
}

#[test]
fn joins_and_aggregates_work_across_the_tables() {
    let games = Games::new();
    let sql = "SELECT r.engine, count(*) AS n, sum(CAST(s.has_evs AS INT)) AS with_evs \
               FROM steps s JOIN runs r USING (run_id) GROUP BY r.engine ORDER BY r.engine";
    let found = rows(&games.archive, sql);
    assert_eq!(found.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
    let n: i64 =
        found.iter().flat_map(|b| b.column(1).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()).sum();
    assert_eq!(n as u64, games.archive.num_steps());
}

#[test]
fn a_failing_expression_is_an_error_and_ends_the_stream() {
    let games = Games::new();
    let query = games.archive.sql("SELECT CAST(step_index * 20 AS TINYINT) FROM steps", no_params()).unwrap();
    let mut stream = query.stream(&CancellationToken::new()).unwrap();
    let error = stream.find_map(Result::err).unwrap();
    assert!(error.to_string().contains("Can't cast value"), "{error}");
    assert!(stream.next().is_none());
}

#[test]
fn a_stream_outlives_its_query_and_can_be_dropped_early() {
    let games = Games::new();
    let mut stream = {
        let query = games.archive.clone().sql("SELECT * FROM steps", no_params()).unwrap();
        query.stream(&CancellationToken::new()).unwrap()
    };
    assert!(stream.next().unwrap().unwrap().num_rows() > 0);
    drop(stream);
    assert_eq!(rows(&games.archive, "SELECT * FROM runs").iter().map(RecordBatch::num_rows).sum::<usize>(), 24);
}

#[test]
fn queries_run_inside_another_runtime() {
    let games = Games::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let count = runtime.block_on(async {
        games.archive.sql("SELECT * FROM steps", no_params()).unwrap().count(&CancellationToken::new())
    });
    assert_eq!(count.unwrap(), games.archive.num_steps());
}

/// Bounds leave out NaN, so that a filter would lose rows.
#[test]
fn floats_of_the_archive_have_no_bounds() {
    let games = Games::new();
    for table in [TableName::Runs, TableName::Steps] {
        for path in games.archive.files(table) {
            let file = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
            let columns = file.metadata().row_groups().iter().flat_map(|row_group| row_group.columns());
            let floats: Vec<_> = columns.filter(|column| column.column_type() == Type::FLOAT).collect();
            assert!(!floats.is_empty() && floats.iter().all(|column| column.statistics().is_none()), "{table}");
        }
    }
}

#[test]
fn rows_in_files_keep_nulls_and_name_types_that_do_not_fit() {
    let (games, never) = (Games::new(), CancellationToken::never());
    let written = |text: &str, format: RowFormat| {
        let (query, mut bytes) = (games.archive.sql(text, no_params()).unwrap(), Vec::new());
        query.stream(never).unwrap().write_to(format, &mut bytes, never).map(|_| String::from_utf8(bytes).unwrap())
    };
    let json = written("SELECT 1 AS a, CAST(NULL AS BIGINT) AS b", RowFormat::Json).unwrap();
    assert_eq!(json, "{\"a\":1,\"b\":null}\n");
    // It is no damage of a file of the archive.
    let error = written("SELECT INTERVAL '1 day' AS d", RowFormat::Parquet).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Query { .. }), "{error}");
}

/// A server can then respond with the error.
#[test]
fn a_format_that_does_not_fit_writes_nothing() {
    let (games, never) = (Games::new(), CancellationToken::never());
    for (text, format) in [
        ("SELECT [1] AS l", RowFormat::Csv),
        ("SELECT INTERVAL '1 day' AS d", RowFormat::Parquet),
        ("SELECT CAST(concat('x', run_id) AS INT) AS i FROM runs", RowFormat::Csv),
        ("SELECT CAST(concat('x', run_id) AS INT) AS i FROM runs", RowFormat::Parquet),
        ("SELECT CAST(concat('x', run_id) AS INT) AS i FROM runs", RowFormat::ArrowStream),
    ] {
        let (query, mut bytes) = (games.archive.sql(text, no_params()).unwrap(), Vec::new());
        query.stream(never).unwrap().write_to(format, &mut bytes, never).unwrap_err();
        assert!(bytes.is_empty(), "{text}: {format:?}");
    }
}
