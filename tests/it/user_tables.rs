use crate::support::Games;
use a2store::query::{QueryOptions, UserTable, no_params};
use a2store::{CancellationToken, ErrorKind};
use arrow::array::{Array, DictionaryArray, Int32Array, RecordBatch, UInt64Array};
use arrow::array::{
    ArrayRef, Decimal32Array, Decimal64Array, Float16Array, Float32Array, Float64Array, ListArray, TimestampSecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal32Type};
use half::f16;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a file with row groups of two rows.
fn parquet(folder: &Path, batch: &RecordBatch) -> PathBuf {
    let path = folder.join("table.parquet");
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(2)).build();
    let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    path
}

/// Returns the number of rows of a statement, with the table `x` in memory and in a file.
fn counts(games: &Games, batch: &RecordBatch, text: &str) -> [u64; 2] {
    let in_memory = UserTable::from_batches(batch.schema(), vec![batch.clone()]).unwrap();
    let in_file = UserTable::from_parquet(parquet(games.folder.path(), batch)).unwrap();
    [in_memory, in_file].map(|table| {
        let (options, never) = (QueryOptions::default().with_table("x", table), CancellationToken::never());
        games.archive.sql_with(text, no_params(), &options, never).unwrap().count(never).unwrap()
    })
}

/// The statistics of Parquet leave NaN out.
#[test]
fn nan_is_found_in_files() {
    let games = Games::new();
    let wide = [1.0, f64::NAN, 2.0, 3.0];
    let encoded = DataType::Dictionary(DataType::Int32.into(), DataType::Float64.into());
    let dictionary = cast(&Float64Array::from_iter_values(wide), &encoded).unwrap();
    let columns: [(&str, ArrayRef); 5] = [
        ("e", dictionary),
        ("h", Arc::new(Float16Array::from_iter_values(wide.map(f16::from_f64)))),
        ("f", Arc::new(Float32Array::from_iter_values(wide.map(|value| value as f32)))),
        ("d", Arc::new(Float64Array::from_iter_values(wide))),
        ("n", Arc::new(UInt64Array::from_iter_values([1, 2, 3, 4]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for column in ["e", "h", "f", "d"] {
        for (condition, expected) in [
            ("v > 5", 1),
            ("v >= 3", 2),
            ("v = CAST('nan' AS DOUBLE)", 1),
            ("NOT (v <= 2)", 2),
            ("v <> 1", 3),
            ("v BETWEEN 4 AND CAST('nan' AS DOUBLE)", 1),
            ("v = (SELECT max(v) FROM t)", 1),
            ("v IN (SELECT v FROM t WHERE n = 2)", 1),
            ("v > 2 ORDER BY v DESC LIMIT 1", 1),
            ("v < 1", 0),
        ] {
            let text = format!("WITH t AS (SELECT {column} AS v, n FROM x) SELECT n FROM t WHERE {condition}");
            assert_eq!(counts(&games, &batch, &text), [expected; 2], "{column}: {condition}");
        }
    }
}

/// The bounds of a cast are not the casts of the bounds if the cast changes the order of values.
#[test]
fn casts_find_all_rows_of_files() {
    let games = Games::new();
    let minutes = [23 * 60 + 30, 24 * 60 + 30, 36 * 60, 37 * 60];
    let columns: [(&str, ArrayRef); 2] = [
        ("t", Arc::new(TimestampSecondArray::from_iter_values(minutes.map(|minute| minute * 60)))),
        ("i", Arc::new(Int32Array::from_iter_values([-5, 0, 1, 2]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for (condition, expected) in [
        ("CAST(t AS TIME) > '23:15:00'", 1),
        ("CAST(t AS TIME) = '00:30:00'", 1),
        ("CAST(t AS DATE) = '1970-01-02'", 3),
        ("TRY_CAST(i AS BOOLEAN) < true", 1),
        ("CAST(i AS BOOLEAN) IS NOT DISTINCT FROM false", 1),
        ("CAST(i AS BIGINT) = 2", 1),
    ] {
        assert_eq!(counts(&games, &batch, &format!("SELECT i FROM x WHERE {condition}")), [expected; 2], "{condition}");
    }
}

/// A row group that a filter skips may be damaged.
#[test]
fn filters_by_other_columns_skip_row_groups_of_files_with_floats() {
    let games = Games::new();
    let columns: [(&str, ArrayRef); 2] = [
        ("f", Arc::new(Float64Array::from_iter_values([1.0, 2.0, 3.0, 4.0]))),
        ("n", Arc::new(UInt64Array::from_iter_values([1, 2, 3, 4]))),
    ];
    let path = parquet(games.folder.path(), &RecordBatch::try_from_iter(columns).unwrap());
    let file = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let (start, len) = file.metadata().row_group(1).column(0).byte_range();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[start as usize..][..len as usize].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let count = |condition: &str| {
        let table = UserTable::from_parquet(path.clone()).unwrap();
        let (options, never) = (QueryOptions::default().with_table("x", table), CancellationToken::never());
        let text = format!("SELECT f FROM x WHERE {condition}");
        games.archive.sql_with(&text, no_params(), &options, never).and_then(|query| query.count(never))
    };
    assert_eq!(count("n = 1 AND n + 1 = 2").unwrap(), 1);
    count("f = 1").unwrap_err();
}

/// In groups, DataFusion's results depend on the order of the rows if one of them is NaN (apache/datafusion#24432).
#[test]
fn extremes_of_floats_in_groups_are_those_without_groups() {
    let games = Games::new();
    let (least, most) = (f64::NEG_INFINITY, f64::INFINITY);
    let groups: [&[Option<f64>]; 8] = [
        &[Some(f64::NAN), Some(1.0), Some(2.0)],
        &[Some(1.0), Some(f64::NAN), Some(-2.0)],
        &[Some(1.0), Some(-f64::NAN), None],
        &[Some(0.0), Some(-0.0)],
        &[Some(least)],
        &[Some(most), None],
        &[Some(f64::NAN)],
        &[None, None],
    ];
    let rows = || groups.iter().zip(0..).flat_map(|(values, k)| values.iter().map(move |&value| (k, value)));
    let wide = Float64Array::from_iter(rows().map(|(_, value)| value));
    for dtype in [DataType::Float16, DataType::Float32, DataType::Float64] {
        let keys = UInt64Array::from_iter_values(rows().map(|(k, _)| k));
        let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("v", cast(&wide, &dtype).unwrap())];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let table = UserTable::from_batches(batch.schema(), vec![batch]).unwrap();
        let (options, never) = (QueryOptions::default().with_table("x", table), CancellationToken::never());
        let rows = |text: &str| {
            let query = games.archive.sql_with(text, no_params(), &options, never).unwrap();
            query.rows(never).unwrap()
        };
        let grouped = rows("SELECT k, min(v) AS lo, max(v) AS hi FROM x GROUP BY k ORDER BY k");
        for k in 0..groups.len() {
            let alone = rows(&format!("SELECT min(v) AS lo, max(v) AS hi FROM x WHERE k = {k}"));
            assert_eq!(grouped.slice(k, 1).project(&[1, 2]).unwrap(), alone, "{dtype}: group {k}");
        }
    }
}

#[test]
fn narrow_decimals_keep_their_fractions() {
    let games = Games::new();
    let narrow = Decimal32Array::from_iter_values([155, 200]).with_precision_and_scale(5, 2).unwrap();
    let list = ListArray::from_iter_primitive::<Decimal32Type, _, _>([Some([Some(1)]), Some([Some(2)])]);
    let columns: [(&str, ArrayRef); 4] = [
        ("d", Arc::new(narrow)),
        ("e", Arc::new(Decimal64Array::from_iter_values([155, 200]).with_precision_and_scale(12, 2).unwrap())),
        ("l", Arc::new(list)),
        ("i", Arc::new(UInt64Array::from_iter_values([1, 2]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for column in ["d", "e"] {
        for (condition, expected) in [("v = i", 1), ("v * 2 = 3.1", 1), ("v + i > 2.5", 2), ("l[1] >= 0", 2)] {
            let text = format!("SELECT i FROM (SELECT {column} AS v, i, l FROM x) AS t WHERE {condition}");
            assert_eq!(counts(&games, &batch, &text), [expected; 2], "{column}: {condition}");
        }
        let text = format!("SELECT a.i FROM x AS a JOIN x AS b ON a.{column} = b.i");
        assert_eq!(counts(&games, &batch, &text), [1; 2], "{column}");
    }
}

/// DataFusion gives `round(x, 1)` another type when it knows that 1 is constant.
#[test]
fn decimals_are_rounded() {
    let games = Games::new();
    for width in [9, 18, 38, 60] {
        for digits in [-2, 0, 1, 5] {
            let number = format!("CAST(num_steps AS DECIMAL({width}, 2)) / 8");
            let text = format!("SELECT run_id AS k, round({number}, {digits}) AS r FROM runs");
            let query = games.archive.sql(&text, no_params()).unwrap();
            let rows = query.rows(CancellationToken::never()).unwrap();
            assert_eq!(rows.schema(), query.schema(), "{text}");
            let exact = text.replace(&format!("AS DECIMAL({width}, 2)"), "AS DOUBLE");
            let differ = "CAST(a.r AS DOUBLE) IS DISTINCT FROM b.r";
            let text = format!("SELECT 1 FROM ({text}) AS a, ({exact}) AS b WHERE a.k = b.k AND ({differ})");
            let wrong = games.archive.sql(&text, no_params()).unwrap().count(CancellationToken::never()).unwrap();
            assert_eq!(wrong, 0, "{text}");
        }
    }
}

#[test]
fn maps_and_dictionaries_of_narrow_decimals_are_rejected() {
    let narrow = Decimal32Array::from_iter_values([155]).with_precision_and_scale(5, 2).unwrap();
    let encoded = DataType::Dictionary(DataType::Int32.into(), narrow.data_type().clone().into());
    let column = DictionaryArray::new(Int32Array::from_iter_values([0]), Arc::new(narrow));
    assert_eq!(*column.data_type(), encoded);
    let batch = RecordBatch::try_from_iter([("d", Arc::new(column) as ArrayRef)]).unwrap();
    let error = UserTable::from_batches(batch.schema(), vec![batch]).unwrap_err();
    assert!(error.to_string().contains("tables: expected decimals of 128 or 256 bits"), "{error}");
}

#[test]
fn limits_of_rows_and_bytes_are_not_limits_of_counts() {
    let (games, never) = (Games::new(), CancellationToken::never());
    let options = QueryOptions::default().with_row_limit(0).with_byte_limit(0);
    let query = games.archive.sql_with("SELECT * FROM runs", no_params(), &options, never).unwrap();
    assert_eq!(query.count(never).unwrap(), 24);
    assert!(matches!(query.rows(never).unwrap_err().kind(), ErrorKind::QueryLimit { .. }));
}
