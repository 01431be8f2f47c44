use crate::support::{Games, write_runs};
use a2store::format::read_run;
use a2store::query::no_params;
use a2store::table::{ChosenEv, ElementType, FromRunsOptions, RowFilter};
use a2store::{Archive, Board, CancellationToken, ErrorKind, MaterializeOptions, StepTable};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float32Type, UInt64Type};
use proptest::prelude::*;

fn materialize(archive: &Archive, sql: &str, options: &MaterializeOptions) -> a2store::Result<StepTable> {
    archive.sql(sql, no_params()).unwrap().materialize(options, &(), &CancellationToken::new())
}

fn table(archive: &Archive, sql: &str) -> StepTable {
    materialize(archive, sql, &MaterializeOptions::default()).unwrap()
}

#[track_caller]
fn column_error(archive: &Archive, sql: &str, extra: &[&str], message: &str) {
    let options = MaterializeOptions::default().with_extra(extra.iter().copied());
    let error = materialize(archive, sql, &options).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Column { .. } | ErrorKind::Argument { .. }), "{sql}: {error}");
    assert!(error.to_string().contains(message), "{sql}: {error}");
}

#[test]
fn rows_are_the_steps_of_the_run_files() {
    let Games { folder, archive } = Games::new();
    let table = table(&archive, "SELECT * FROM steps");
    assert_eq!((table.num_rows(), table.layout().stride()), (archive.num_steps(), 32));
    let mut row = 0;
    for (id, name) in (0..24).map(|id| (id, ["alpha", "beta", "gamma"][id / 8])) {
        let extension = if name == "gamma" { "bin" } else { "a2run2" };
        let path = folder.path().join(format!("runs/{name}/run-{:05}.{extension}", id % 8));
        let (run, _) = read_run(path).unwrap();
        for index in 0..run.num_steps() {
            let step = table.step(row).unwrap();
            assert_eq!((step.run_id, usize::from(step.step_index)), (id as u32, index));
            assert_eq!((step.board, step.chosen), (run.boards()[index], run.moves()[index] as u8));
            assert_eq!(step.ev_legal, run.ev_legal()[index]);
            assert_eq!(step.ev_values.map(f32::to_bits), run.ev_values()[index].map(f32::to_bits));
            row += 1;
        }
    }
    assert_eq!((row, table.step(row)), (table.num_rows(), None));
}

#[test]
fn a_filtered_table_has_the_filtered_rows_in_order() {
    let games = Games::new();
    let all = table(&games.archive, "SELECT * FROM steps");
    let some = table(&games.archive, "SELECT * FROM steps WHERE phase = 'late' AND move <> 3");
    let expected: Vec<_> = (0..all.num_rows())
        .filter_map(|row| all.step(row))
        .filter(|step| step.board.highest_tile() >= 256 && step.chosen != 3)
        .map(|step| (step.run_id, step.step_index, step.board))
        .collect();
    let found: Vec<_> =
        (0..some.num_rows()).filter_map(|row| some.step(row)).map(|s| (s.run_id, s.step_index, s.board)).collect();
    assert!(!found.is_empty() && found == expected);
    assert_ne!(some.fingerprint(), all.fingerprint());
    assert_eq!(table(&games.archive, "SELECT * FROM steps").fingerprint(), all.fingerprint());
}

#[test]
fn a_query_that_determines_its_rows_gives_one_table() {
    let games = Games::new();
    for sql in [
        "SELECT DISTINCT board FROM steps",
        "SELECT s.* FROM steps s JOIN runs r USING (run_id) WHERE r.engine = 'alpha'",
        "SELECT board, count(*) AS n FROM steps GROUP BY board",
        "SELECT * FROM steps ORDER BY max_exp DESC, step_index, run_id",
        "SELECT * FROM steps WHERE run_id = 3 UNION ALL SELECT * FROM steps WHERE run_id = 1",
        "SELECT * FROM steps ORDER BY engine, run_id, step_index LIMIT 100 OFFSET 3",
        "SELECT * FROM steps WHERE now() > '2020-01-01'",
    ] {
        let first = table(&games.archive, sql);
        assert!(first.num_rows() > 0, "{sql}");
        for _ in 0..3 {
            let again = table(&games.archive, sql);
            assert_eq!((again.rows(), again.fingerprint()), (first.rows(), first.fingerprint()), "{sql}");
        }
    }
    let (all, joined) = ("SELECT * FROM steps", "SELECT s.* FROM steps s JOIN runs r USING (run_id)");
    let [all, joined] = [all, joined].map(|sql| table(&games.archive, sql));
    assert_eq!((joined.rows(), joined.fingerprint()), (all.rows(), all.fingerprint()));
}

#[test]
fn fingerprints_of_random_rows_differ() {
    let games = Games::new();
    let by_chance = "SELECT * FROM steps ORDER BY random()";
    assert_ne!(table(&games.archive, by_chance).fingerprint(), table(&games.archive, by_chance).fingerprint());
    let query = games.archive.sql(by_chance, no_params()).unwrap();
    let run = || query.materialize(&MaterializeOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert_ne!(run().fingerprint(), run().fingerprint());
}

#[test]
fn missing_columns_have_their_defaults() {
    let games = Games::new();
    let table = table(&games.archive, "SELECT CAST(board AS DECIMAL(20, 0)) AS board FROM steps");
    for row in 0..table.num_rows() {
        let step = table.step(row).unwrap();
        assert_eq!((step.run_id, step.step_index, step.chosen), (0, 0, 255));
        assert!(step.ev_values.iter().all(|value| value.is_nan()));
        assert_eq!(step.ev_legal, step.board.legal_moves());
    }
}

#[test]
fn the_chosen_value_is_one_if_requested() {
    let games = Games::new();
    let options = MaterializeOptions::default().with_chosen_ev(ChosenEv::One);
    let one = materialize(&games.archive, "SELECT * FROM steps", &options).unwrap();
    let stored = table(&games.archive, "SELECT * FROM steps");
    let mut with_values = 0;
    for row in 0..one.num_rows() {
        let (one, stored) = (one.step(row).unwrap(), stored.step(row).unwrap());
        let chosen = usize::from(one.chosen);
        if stored.ev_values[0].is_nan() {
            assert!(one.ev_values.iter().all(|value| value.is_nan()));
            continue;
        }
        with_values += 1;
        assert!(one.ev_values[chosen] == 1.0 && stored.ev_values[chosen] < 1.0);
        for branch in (0..4).filter(|&branch| branch != chosen) {
            assert_eq!(one.ev_values[branch], stored.ev_values[branch]);
        }
    }
    assert!(with_values > 1000);
    assert_ne!(one.fingerprint(), stored.fingerprint());
}

#[test]
fn extra_columns_of_every_type_follow_the_row() {
    let games = Games::new();
    let types = [
        ("b", "has_evs"),
        ("i8", "arrow_cast(max_exp, 'Int8')"),
        ("i16", "arrow_cast(max_exp, 'Int16')"),
        ("i32", "arrow_cast(max_exp, 'Int32')"),
        ("i64", "arrow_cast(max_exp, 'Int64')"),
        ("u8", "max_exp"),
        ("u16", "arrow_cast(max_exp, 'UInt16')"),
        ("u32", "arrow_cast(max_exp, 'UInt32')"),
        ("u64", "arrow_cast(max_exp, 'UInt64')"),
        ("f16", "arrow_cast(max_exp, 'Float16')"),
        ("f32", "arrow_cast(max_exp, 'Float32')"),
        ("f64", "arrow_cast(max_exp, 'Float64')"),
    ];
    let list: Vec<String> = types.iter().map(|(name, sql)| format!("{sql} AS {name}")).collect();
    let sql = format!("SELECT board, has_evs, {} FROM steps", list.join(", "));
    let options = MaterializeOptions::default().with_extra(types.map(|(name, _)| name));
    let table = materialize(&games.archive, &sql, &options).unwrap();
    // 3 × 8, 3 × 4, 3 × 2 and 3 × 1 bytes.
    assert_eq!(table.layout().stride(), 32 + 48);
    for extra in table.layout().extras() {
        assert_eq!(extra.offset % extra.dtype.width(), 0, "{}", extra.name);
    }
    let indices: Vec<u64> = (0..table.num_rows()).rev().collect();
    let batch = table.take(&indices).unwrap();
    let boards = batch.column("board").unwrap().values::<u64>().unwrap().to_vec();
    for (row, board) in boards.into_iter().enumerate() {
        let exp = a2store::Board(board).max_exp();
        let value = |name: &str| {
            let column = batch.column(name).unwrap();
            let width = column.dtype.width();
            (column.dtype, column.bytes[row * width..][..width].to_vec())
        };
        assert_eq!(value("i8"), (ElementType::Int8, vec![exp]));
        assert_eq!(value("u16"), (ElementType::UInt16, u16::from(exp).to_le_bytes().to_vec()));
        assert_eq!(value("i32"), (ElementType::Int32, i32::from(exp).to_le_bytes().to_vec()));
        assert_eq!(value("u64"), (ElementType::UInt64, u64::from(exp).to_le_bytes().to_vec()));
        assert_eq!(value("f32"), (ElementType::Float32, f32::from(exp).to_le_bytes().to_vec()));
        assert_eq!(value("f64"), (ElementType::Float64, f64::from(exp).to_le_bytes().to_vec()));
    }
}

#[test]
fn errors_of_invalid_columns_name_column_and_row() {
    let archive = &Games::new().archive;
    column_error(
        archive,
        "SELECT move FROM steps",
        &[],
        "column board: expected a column of boards, found the columns move",
    );
    column_error(archive, "SELECT 'x' AS board FROM steps", &[], "column board");
    column_error(
        archive,
        "SELECT board, step_index + 4294967286 AS step_index FROM steps WHERE run_id = 2",
        &[],
        "column step_index, row 10: expected values of UInt32",
    );
    column_error(archive, "SELECT board, 7 AS move FROM steps", &[], "column move, row 0: expected 0..=3");
    column_error(archive, "SELECT board, -1 AS run_id FROM steps", &[], "column run_id, row 0");
    column_error(archive, "SELECT board, 16 AS ev_legal FROM steps", &[], "column ev_legal, row 0: expected 0..=15");
    for float in ["1.7 AS move", "CAST(1 AS DOUBLE) AS step_index", "CAST(1.5 AS DECIMAL(3, 1)) AS run_id"] {
        column_error(archive, &format!("SELECT board, {float} FROM steps"), &[], "found ");
    }
    column_error(archive, "SELECT CAST(board AS DOUBLE) AS board FROM steps", &[], "column board: expected UInt64");
    column_error(
        archive,
        "SELECT board, nullif(step_index, 5) AS step_index FROM steps",
        &[],
        "row 5: expected a value",
    );
    column_error(
        archive,
        "SELECT board, [max_exp] AS list FROM steps",
        &["list"],
        "column list: expected booleans, integers",
    );
    column_error(archive, "SELECT board FROM steps", &["score"], "column score: expected an extra column of that name");
    column_error(archive, "SELECT board, nullif(max_exp, 2) AS x FROM steps", &["x"], "column x, row ");
    column_error(
        archive,
        "SELECT board, max_exp FROM steps",
        &["max_exp", "max_exp"],
        "extra: expected each column once",
    );
    let unusable = "extra: expected a named column that is not in every row";
    column_error(archive, "SELECT board FROM steps", &["board"], unusable);
    column_error(archive, "SELECT board, 1 AS \"\" FROM steps", &[""], unusable);
    // The row in the error is counted over the whole result, in both ways of materializing.
    let late = "SELECT board, nullif(run_id, 20) AS run_id FROM steps";
    let first = archive
        .sql("SELECT * FROM steps WHERE run_id < 20", no_params())
        .unwrap()
        .count(&CancellationToken::new())
        .unwrap();
    column_error(archive, late, &[], &format!("column run_id, row {first}"));
    let filtered = "SELECT board, nullif(run_id, 20) AS run_id FROM steps WHERE step_index >= 0 AND move < 9";
    column_error(archive, filtered, &[], &format!("column run_id, row {first}"));
}

#[test]
fn a_null_in_a_float_column_is_nan() {
    let games = Games::new();
    let options = MaterializeOptions::default().with_extra(["f"]);
    let sql = "SELECT board, max_exp, CAST(nullif(max_exp, 3) AS FLOAT) AS f FROM steps";
    let table = materialize(&games.archive, sql, &options).unwrap();
    let batch = table.take(&(0..table.num_rows()).collect::<Vec<_>>()).unwrap();
    let boards = batch.column("board").unwrap().values::<u64>().unwrap();
    let values = batch.column("f").unwrap().values::<f32>().unwrap();
    for (&board, &value) in boards.iter().zip(values) {
        let exp = a2store::Board(board).max_exp();
        assert!(if exp == 3 { value.is_nan() } else { value == f32::from(exp) });
    }
}

#[test]
fn a_table_beyond_its_memory_limit_is_rejected() {
    let games = Games::new();
    let exact = 32 * games.archive.num_steps();
    for sql in ["SELECT * FROM steps", "SELECT * FROM steps WHERE move < 9", "SELECT * FROM steps ORDER BY board"] {
        let limit = |limit| materialize(&games.archive, sql, &MaterializeOptions::default().with_memory_limit(limit));
        assert_eq!(limit(exact).unwrap().num_bytes(), exact, "{sql}");
        let error = limit(exact - 1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::MemoryLimit { .. }), "{sql}: {error}");
    }
}

#[test]
fn the_number_of_rows_is_known_before_they_are_read() {
    let games = Games::new();
    let needed = |sql: &str| {
        let error = materialize(&games.archive, sql, &MaterializeOptions::default().with_memory_limit(1)).unwrap_err();
        match *error.kind() {
            ErrorKind::MemoryLimit { needed, .. } => needed,
            _ => panic!("{sql}: {error}"),
        }
    };
    let all = 32 * games.archive.num_steps();
    for sql in ["SELECT * FROM steps", "SELECT board, move + 0 AS move FROM steps ORDER BY run_id, step_index"] {
        assert_eq!(needed(sql), all, "{sql}");
    }
}

/// A missing `run_id` is 0, but the rows are not of run 0.
#[test]
fn rows_without_run_ids_have_no_known_scores() {
    let games = Games::new();
    let filter = RowFilter { min_score: Some(500), ..RowFilter::default() };
    let select = |sql: &str| table(&games.archive, sql).filter(&filter, CancellationToken::never());
    let error = select("SELECT board FROM steps").unwrap_err();
    assert!(error.to_string().contains("expected a table with the scores and engines of its runs"), "{error}");
    assert!(select("SELECT board, run_id FROM steps").unwrap().num_rows() > 0);
    let inside = games.archive.path().join("steps/table.npy");
    let error = table(&games.archive, "SELECT board FROM steps").save(&inside, &(), CancellationToken::never());
    assert!(error.unwrap_err().to_string().contains("outside of the archive"));
}

#[test]
fn an_empty_result_is_an_empty_table() {
    let games = Games::new();
    for sql in ["SELECT * FROM steps WHERE run_id > 1000", "SELECT board FROM steps LIMIT 0"] {
        let table = table(&games.archive, sql);
        assert!(table.num_rows() == 0 && table.rows().unwrap().is_empty());
        assert_eq!(table.take(&[]).unwrap().num_rows(), 0);
        assert_eq!(table.column_reader().count(), 0);
        assert!(matches!(table.take(&[0]).unwrap_err().kind(), ErrorKind::IndexOutOfBounds { index: 0, len: 0 }));
    }
}

#[test]
fn the_arrow_batch_has_the_same_values() {
    let games = Games::new();
    let table = table(&games.archive, "SELECT * FROM steps");
    let rows = table.rows_array().unwrap();
    assert_eq!((rows.len() as u64, rows.value_length()), (table.num_rows(), 32));
    assert_eq!(rows.value_data().as_ptr(), table.rows().unwrap().as_ptr());

    let batches: Vec<RecordBatch> = table.column_reader().map(Result::unwrap).collect();
    let mut row = 0;
    for batch in &batches {
        let board = batch.column_by_name("board").unwrap().as_primitive::<UInt64Type>();
        let evs = batch.column_by_name("ev_values").unwrap().as_fixed_size_list();
        let values = evs.values().as_primitive::<Float32Type>();
        for i in 0..batch.num_rows() {
            let step = table.step(row).unwrap();
            assert_eq!(board.value(i), step.board.0);
            for branch in 0..4 {
                assert_eq!(values.value(4 * i + branch).to_bits(), step.ev_values[branch].to_bits());
            }
            row += 1;
        }
    }
    assert_eq!(row, table.num_rows());
    drop(table);
    assert!(rows.value(0).iter().any(|&byte| byte != 0));
}

#[test]
fn unreadable_files_are_skipped_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (cancel, runs) = (CancellationToken::new(), write_runs(folder.path()));
    let load = |options: &FromRunsOptions| StepTable::from_runs([&runs], options, &(), &cancel);
    let all = load(&FromRunsOptions::default()).unwrap();
    let bad = runs.join("beta/run-00003.a2run2");
    std::fs::write(&bad, b"A2T1").unwrap();
    let skip = FromRunsOptions::default().with_skip_errors(true);
    assert_eq!(load(&FromRunsOptions::default()).unwrap_err().path(), Some(&*bad));
    let some = load(&skip).unwrap();
    let expected = (0..all.num_rows()).filter_map(|row| all.step(row)).filter(|step| step.run_id != 11);
    assert!((0..some.num_rows()).filter_map(|row| some.step(row)).map(key).eq(expected.map(key)));
    assert_eq!(some.errors().iter().map(|rejected| &rejected.path).collect::<Vec<_>>(), [&bad]);
    // Cancelling is not an error of a run.
    cancel.cancel();
    assert!(matches!(load(&skip).unwrap_err().kind(), ErrorKind::Cancelled));
}

fn key(step: a2store::Step) -> (u32, u16, Board) {
    (step.run_id, step.step_index, step.board)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Compares the kernel with a loop over `StepTable::step`, for row counts around a block and random indices.
    #[test]
    fn take_returns_the_rows_at_the_indices(
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
        with_extra in any::<bool>(),
    ) {
        static GAMES: std::sync::LazyLock<(Games, [StepTable; 2])> = std::sync::LazyLock::new(|| {
            let games = Games::new();
            let extra = MaterializeOptions::default().with_extra(["max_score", "max_exp"]);
            let tables = [
                table(&games.archive, "SELECT * FROM steps"),
                materialize(&games.archive, "SELECT * FROM steps", &extra).unwrap(),
            ];
            (games, tables)
        });
        let table = &GAMES.1[usize::from(with_extra)];
        let indices: Vec<u64> = picks.iter().map(|pick| pick.index(table.num_rows() as usize) as u64).collect();
        let batch = table.take(&indices).unwrap();
        prop_assert_eq!(batch.num_rows(), indices.len());
        let steps: Vec<a2store::Step> = indices.iter().map(|&index| table.step(index).unwrap()).collect();
        let bytes = |name: &str| batch.column(name).unwrap().bytes;
        prop_assert_eq!(bytes("tokens"), steps.iter().flat_map(|s| s.board.exps()).collect::<Vec<u8>>());
        prop_assert_eq!(bytes("move"), steps.iter().map(|s| s.chosen).collect::<Vec<u8>>());
        let evs = steps.iter().flat_map(|s| s.ev_values).flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        prop_assert_eq!(bytes("ev_values"), evs);
        let legal = steps.iter().flat_map(|s| (0..4).map(|bit| s.ev_legal >> bit & 1)).collect::<Vec<u8>>();
        prop_assert_eq!(bytes("ev_legal"), legal);
        prop_assert_eq!(bytes("run_id"), steps.iter().flat_map(|s| s.run_id.to_le_bytes()).collect::<Vec<u8>>());
        prop_assert_eq!(bytes("step_index"), steps.iter().flat_map(|s| s.step_index.to_le_bytes()).collect::<Vec<u8>>());
        prop_assert_eq!(bytes("board"), steps.iter().flat_map(|s| s.board.0.to_le_bytes()).collect::<Vec<u8>>());
        if with_extra {
            prop_assert_eq!(bytes("max_exp"), steps.iter().map(|s| s.board.max_exp()).collect::<Vec<u8>>());
        }
    }
}
