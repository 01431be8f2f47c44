//! Attached columns against a map from steps to values.

use super::*;
use crate::format::npy::{NpyField, header};
use crate::loader::{LoaderOptions, Sampling};
use crate::step::{STEP_SIZE, Step};
use crate::table::rows::memory::Region;
use crate::table::rows::runs::{Runs, TableRunFacts};
use crate::table::{ElementType, Fingerprint, RowFilter, RowLayout};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tempfile::TempDir;

/// A run and a step.
type Key = (u64, u64);

fn never() -> &'static CancellationToken {
    CancellationToken::never()
}

/// Returns the memory of a table's first attached column in bytes, without its values, which are mapped.
fn num_bytes(table: &StepTable) -> usize {
    match &table.attached()[0].places {
        RowPlaces::Shifted(_) => 0,
        RowPlaces::Listed(_, places) => places.bytes().len(),
    }
}

/// Returns a table of these steps without extra columns.
fn table(keys: &[Key]) -> StepTable {
    let mut region = Region::reserve((keys.len() * STEP_SIZE) as u64).unwrap();
    for (row, &(run_id, step)) in region.bytes_mut().chunks_exact_mut(STEP_SIZE).zip(keys) {
        let step = Step { run_id: run_id as u32, step_index: step as u16, ..Step::default() };
        row.copy_from_slice(bytemuck::bytes_of(&step));
    }
    let rows = region.freeze(keys.len() * STEP_SIZE).unwrap();
    let mut facts = TableRunFacts::default();
    let runs: BTreeSet<u64> = keys.iter().map(|key| key.0).collect();
    runs.iter().for_each(|&run| facts.push(run as u32, run, None, None));
    let layout = RowLayout::new(Vec::new());
    let fingerprint = Fingerprint::of_rows(rows.bytes(), &layout, never()).unwrap();
    StepTable::new(rows, layout, fingerprint, Runs::of_facts(facts)).unwrap()
}

fn write_keys(path: &Path, keys: &[Key]) {
    let field =
        |name: &str, dtype: &str, offset| NpyField { name: name.into(), dtype: dtype.into(), values: 1, offset };
    let fields = [field("run_id", "<u8", 0), field("step_idx", "<u4", 8)];
    let mut bytes = header(&fields, 12, keys.len() as u64, 0).unwrap();
    for (run_id, step) in keys {
        bytes.extend(run_id.to_le_bytes());
        bytes.extend((*step as u32).to_le_bytes());
    }
    std::fs::write(path, bytes).unwrap();
}

/// Writes an array in NumPy's format.
fn write_array(path: &Path, dtype: &str, shape: &str, values: &[u8]) {
    let text = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    let len = (10 + text.len() + 1).next_multiple_of(64) - 11;
    let text = format!("{text:<len$}\n");
    let mut bytes = b"\x93NUMPY\x01\0".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(values);
    std::fs::write(path, bytes).unwrap();
}

/// Returns pseudorandom bytes that differ for each step.
fn values_of((run_id, step): Key, width: usize) -> Vec<u8> {
    let mut values = vec![0; width];
    blake3::Hasher::new().update(&run_id.to_le_bytes()).update(&step.to_le_bytes()).finalize_xof().fill(&mut values);
    values
}

/// Writes a folder of keys and of `d` two-byte values per key, and returns it with the path of the values.
fn session(keys: &[Key], d: usize) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    write_keys(&folder.path().join("steps.npy"), keys);
    let path = folder.path().join("embeddings.bf16.npy");
    let values: Vec<u8> = keys.iter().flat_map(|&key| values_of(key, 2 * d)).collect();
    write_array(&path, "<u2", &format!("({}, {d})", keys.len()), &values);
    std::fs::write(folder.path().join("embeddings.json"), format!(r#"{{"D": {d}, "dtype_bits": "bf16", "x": [1]}}"#))
        .unwrap();
    (folder, path)
}

fn dense(runs: impl IntoIterator<Item = (u64, u64)>) -> Vec<Key> {
    runs.into_iter().flat_map(|(run, len)| (0..len).map(move |step| (run, step))).collect()
}

/// Compares the column of shuffled rows with the values of the rows' steps.
fn check_values(table: &StepTable, name: &str, width: usize) {
    let len = table.num_rows();
    let indices: Vec<u64> = (0..2 * len).map(|k| k * 7919 % len.max(1)).collect();
    let batch = table.take(&indices).unwrap();
    let column = batch.column(name).unwrap();
    assert_eq!(column.values_per_row * column.dtype.width(), width);
    let expected: Vec<u8> = indices
        .iter()
        .flat_map(|&index| {
            let step = table.step(index).unwrap();
            values_of((step.run_id.into(), step.step_index.into()), width)
        })
        .collect();
    assert!(column.bytes == expected);
}

fn refused(result: Result<StepTable>) -> Error {
    result.expect_err("refused")
}

proptest! {
    #[test]
    fn rows_have_the_values_of_their_steps(
        runs in prop::collection::btree_map(0u64..40, prop::collection::btree_set(0u64..200, 1..60), 1..8),
        table_order in 0u64..4,
        array_order in 0u64..4,
        left_out in any::<u64>(),
        d in prop::sample::select(vec![1usize, 3, 8, 33, 700]),
        min_score in prop::option::of(0u64..40),
    ) {
        let keys: Vec<Key> = runs.iter().flat_map(|(run, steps)| steps.iter().map(|step| (*run, *step))).collect();
        let ordered = |order: u64| {
            let mut keys = keys.clone();
            match order {
                0 => {}
                1 => keys.sort_by_key(|&(run, step)| (std::cmp::Reverse(run), step)),
                2 => keys.sort_by_key(|&(run, step)| (step, run)),
                order => keys.sort_by_key(|&(run, step)| values_of((run ^ order, step), 8)),
            }
            keys
        };
        let mut of_table = ordered(table_order);
        of_table.retain(|&(run, step)| left_out >> ((run * 31 + step) % 64) & 1 == 0);
        let (folder, path) = session(&ordered(array_order), d);
        let plain = table(&of_table);
        let attached = plain.attach("embedding", &path, None, &(), never()).unwrap();
        prop_assert_eq!(attached.fingerprint(), plain.fingerprint());
        check_values(&attached, "embedding", 2 * d);

        // A view of the table, and the same view opened by another process.
        let filter = RowFilter { min_score, ..RowFilter::default() };
        let view = attached.filter(&filter, never()).unwrap();
        check_values(&view, "embedding", 2 * d);
        let handle = view.handle().unwrap();
        let shared = StepTable::from_handle(&handle).unwrap();
        prop_assert_eq!(shared.num_rows(), view.num_rows());
        check_values(&shared, "embedding", 2 * d);

        // Only the rows that a view shows need values.
        let shown: Vec<Key> = ordered(array_order).into_iter().filter(|key| min_score.is_none_or(|min| key.0 >= min)).collect();
        let (_folder, path) = session(&shown, d);
        let of_view = plain.filter(&filter, never()).unwrap().attach("embedding", &path, None, &(), never()).unwrap();
        check_values(&of_view, "embedding", 2 * d);
        drop(folder);
    }
}

/// Writes a folder with shards of these numbers of rows: the keys, and `d` four-byte floats per key.
fn sharded(keys: &[Key], lens: &[usize], d: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut rest = keys;
    for (number, &len) in lens.iter().enumerate() {
        let (own, after) = rest.split_at(len);
        rest = after;
        let path = |stem: &str| folder.path().join(format!("{stem}-{:06}.npy", number + 1));
        write_keys(&path("steps"), own);
        let values: Vec<u8> = own.iter().flat_map(|&key| values_of(key, 4 * d)).collect();
        write_array(&path("embeddings"), "<f4", &format!("({len}, {d})"), &values);
    }
    assert!(rest.is_empty());
    folder
}

#[test]
fn shards_of_embeddings_belong_to_the_shards_of_steps() {
    let sorted = dense([(3, 40), (5, 25), (9, 60)]);
    for (order, lens) in [(0, &[125][..]), (1, &[40, 0, 1, 84]), (2, &[60, 60, 5, 0])] {
        let mut keys = sorted.clone();
        // Runs in order, interleaved runs, and any order.
        keys.sort_by_key(|&(run, step)| [run << 32 | step, step << 32 | run, (run ^ (step * 31)) << 32 | run][order]);
        let folder = sharded(&keys, lens, 5);
        let plain = table(&sorted);
        let attached = plain.attach("e", folder.path(), None, &(), never()).unwrap();
        check_values(&attached, "e", 20);
        assert_eq!(num_bytes(&attached), if order == 0 { 0 } else { 4 * 125 });
        let loader = attached.loader(LoaderOptions { batch_size: 32, ..LoaderOptions::default() }).unwrap();
        let batches = loader.batches().unwrap();
        let rows: usize = batches.map(|batch| batch.column("e").unwrap().bytes.len()).sum();
        assert_eq!(rows, 20 * 125);
        let handle = attached.handle().unwrap();
        check_values(&StepTable::from_handle(&handle).unwrap(), "e", 20);
    }
}

#[test]
fn shards_that_do_not_match_the_steps_are_rejected() {
    let keys = dense([(3, 40), (5, 25)]);
    let attach = |folder: &TempDir| table(&keys).attach("e", folder.path(), None, &(), never());
    fn file(folder: &TempDir, number: u32) -> PathBuf {
        folder.path().join(format!("embeddings-{number:06}.npy"))
    }
    fn write(path: &Path, rows: usize, d: usize) {
        write_array(path, "<f4", &format!("({rows}, {d})"), &vec![0; 4 * rows * d]);
    }
    type Damage = fn(&TempDir);
    let cases: [(Damage, &str); 5] = [
        (
            |folder| {
                write(&file(folder, 1), 31, 2);
                write(&file(folder, 2), 34, 2);
            },
            "embeddings-000001.npy: rows of the array: expected 30, as many as ",
        ),
        (|folder| write(&file(folder, 2), 35, 3), "embeddings-000002.npy: values of a row: expected 2 × <f4, as "),
        (|folder| std::fs::remove_file(file(folder, 2)).unwrap(), "expected 65 in 2 files, as "),
        (
            |folder| std::fs::rename(file(folder, 2), file(folder, 3)).unwrap(),
            "files of the embeddings: expected shard 2 after shard 1, found embeddings-000003.npy",
        ),
        (
            |folder| std::fs::copy(file(folder, 1), folder.path().join("embeddings.npy")).map(drop).unwrap(),
            "files of the embeddings: expected embeddings.npy or shards of it, not both, found embeddings-000001.npy too",
        ),
    ];
    for (damage, message) in cases {
        let folder = sharded(&keys, &[30, 35], 2);
        check_values(&attach(&folder).unwrap(), "e", 8);
        damage(&folder);
        let error = refused(attach(&folder));
        assert!(matches!(error.kind(), ErrorKind::Header { .. }) && error.to_string().contains(message), "{error}");
    }
}

#[test]
fn takes_no_memory_where_the_order_is_the_same() {
    let keys = dense([(3, 500), (4, 700), (9, 100)]);
    let (_folder, path) = session(&keys, 4);
    let after_attaching = |keys: &[Key]| {
        let table = table(keys).attach("e", &path, None, &(), never()).unwrap();
        check_values(&table, "e", 8);
        num_bytes(&table)
    };
    assert_eq!(after_attaching(&keys), 0);
    assert_eq!(after_attaching(&keys[450..1250]), 0);
    assert_eq!(after_attaching(&[]), 0);
    let swapped: Vec<Key> = keys[500..].iter().chain(&keys[..500]).copied().collect();
    assert_eq!(after_attaching(&swapped), 4 * 1300);
}

/// Several threads gather wide columns, in sections.
#[test]
fn large_batches_have_every_value() {
    let keys = dense((0..8).map(|run| (run, 1000)));
    let (_folder, path) = session(&keys, 768);
    let keys: Vec<Key> = keys.into_iter().rev().collect();
    let table = table(&keys).attach("e", &path, None, &(), never()).unwrap();
    check_values(&table, "e", 1536);
    for sampling in [Sampling::Shuffled, Sampling::Sequential, Sampling::Windowed { window: 2000 }] {
        let columns = Some(vec!["e".to_owned(), "step_index".to_owned(), "run_id".to_owned()]);
        let options = LoaderOptions { batch_size: 6000, sampling, columns, ..LoaderOptions::default() };
        let mut rows = 0;
        for batch in table.loader(options).unwrap().batches().unwrap() {
            let [values, steps, runs] = ["e", "step_index", "run_id"].map(|name| batch.column(name).unwrap());
            let keys = runs.values::<u32>().unwrap().iter().zip(steps.values::<u16>().unwrap());
            for (found, (&run, &step)) in values.bytes.chunks_exact(1536).zip(keys) {
                assert!(found == values_of((run.into(), step.into()), 1536));
            }
            rows += batch.num_rows();
        }
        assert_eq!(rows, 8000);
    }
}

#[test]
fn arrays_that_do_not_match_are_rejected() {
    let keys = dense([(3, 5), (4, 7)]);
    let (folder, path) = session(&keys, 4);
    let attach = |keys: &[Key]| table(keys).attach("e", &path, None, &(), never());
    let error = refused(attach(&[(3, 1), (4, 2), (4, 7), (5, 0)]));
    let message = "embeddings.bf16.npy: column e, row 2: expected a row of run 4, step 7, found none in ";
    assert!(matches!(error.kind(), ErrorKind::Column { .. }) && error.to_string().contains(message), "{error}");
    let error = refused(attach(&[(2, 0)]));
    assert!(error.to_string().contains("row 0: expected a row of run 2, step 0"), "{error}");

    // The error counts rows within the view.
    let view = table(&[(3, 1), (4, 2), (3, 2), (4, 9)])
        .filter(&RowFilter { min_score: Some(4), ..RowFilter::default() }, never());
    let error = refused(view.unwrap().attach("e", &path, None, &(), never()));
    assert!(error.to_string().contains("row 1: expected a row of run 4, step 9"), "{error}");

    write_keys(&folder.path().join("steps.npy"), &keys[1..]);
    let error = refused(attach(&keys));
    assert!(matches!(error.kind(), ErrorKind::Header { .. }));
    assert!(error.to_string().contains("embeddings.bf16.npy: rows of the array: expected 11, as many as "), "{error}");
    write_keys(&folder.path().join("steps.npy"), &[&keys[1..], &[(4, 6)]].concat());
    let error = refused(attach(&keys[1..]));
    let message =
        "steps.npy: column run_id, row 11: expected each step of each run once, found run 4, step 6 in row 10 too";
    assert!(error.to_string().contains(message), "{error}");
    std::fs::remove_file(folder.path().join("steps.npy")).unwrap();
    assert!(refused(attach(&keys)).to_string().contains("expected steps.npy or shards of it, found neither"));

    // Keys with another name in another folder.
    let other = tempfile::tempdir().unwrap();
    let file = other.path().join("keys.npy");
    write_keys(&file, &keys);
    let attached = table(&keys).attach("e", &path, Some(&file), &(), never()).unwrap();
    check_values(&attached, "e", 8);
    for name in ["e", "move", "tokens", "board", ""] {
        let error = refused(attached.attach(name, &path, Some(&file), &(), never()));
        let message = format!("name: expected an unused column name, found {name:?}");
        assert!(error.to_string().contains(&message), "{error}");
    }
    let both = attached.attach("f", &path, Some(&file), &(), never()).unwrap();
    check_values(&both, "e", 8);
    check_values(&both, "f", 8);
    let options = |columns: &[&str]| LoaderOptions {
        symmetries: true,
        columns: (!columns.is_empty()).then(|| columns.iter().map(|&name| name.to_owned()).collect()),
        ..LoaderOptions::default()
    };
    for columns in [&["tokens", "f"][..], &[]] {
        let error = both.loader(options(columns)).expect_err("refused").to_string();
        assert!(error.contains("symmetries: expected false with the attached column"), "{error}");
    }
    assert!(both.loader(options(&["tokens"])).is_ok());
    // Another process needs the values, not the keys.
    std::fs::remove_file(&file).unwrap();
    let handle = both.handle().unwrap();
    check_values(&StepTable::from_handle(&handle).unwrap(), "f", 8);
    std::fs::File::options().append(true).open(&path).unwrap().set_len(100).unwrap();
    let error = refused(StepTable::from_handle(&handle));
    assert!(error.to_string().contains("damaged: the file of a shared table"), "{error}");
}

#[test]
fn descriptions_must_match_their_arrays() {
    let keys = dense([(3, 2)]);
    let folder = tempfile::tempdir().unwrap();
    write_keys(&folder.path().join("steps.npy"), &keys);
    let attach = |name: &str| table(&keys).attach("e", folder.path().join(name), None, &(), never());
    let write = |name: &str, dtype: &str, shape: &str, len: usize| {
        write_array(&folder.path().join(name), dtype, shape, &vec![1; len]);
    };
    let describe = |text: &str| std::fs::write(folder.path().join("e.json"), text).unwrap();
    let dtype = |name: &str| attach(name).map(|table| table.attached()[0].dtype);

    // Without a description, the type is NumPy's.
    for (name, expected, width) in [
        ("<u2", ElementType::UInt16, 2),
        ("<f2", ElementType::Float16, 2),
        ("<f4", ElementType::Float32, 4),
        ("|i1", ElementType::Int8, 1),
    ] {
        write("e.npy", name, "(2, 3)", 2 * 3 * width);
        assert_eq!(dtype("e.npy").unwrap(), expected);
    }
    write("e.bf16.npy", "<u2", "(2, 3)", 12);
    let error = refused(attach("e.bf16.npy")).to_string();
    assert!(
        error.contains("type of the values: expected a description that declares bf16, ") && error.contains("e.json")
    );

    for text in [
        r#"{"dtype_bits": "bf16"}"#,
        r#"{"dtype": "bfloat16", "D": 3}"#,
        r#"{"dtype": "uint16", "dtype_bits": "bf16"}"#,
    ] {
        describe(text);
        assert_eq!(dtype("e.bf16.npy").unwrap(), ElementType::BFloat16, "{text}");
    }
    let bits = attach("e.bf16.npy").unwrap().take(&[1, 0, 1]).unwrap().to_record_batch().unwrap();
    let schema = bits.schema();
    let field = schema.field_with_name("e").unwrap();
    assert_eq!(field.data_type().to_string(), attach_type(&bits));
    assert_eq!(field.metadata().get("a2store.dtype").map(String::as_str), Some("bfloat16"));
    for (text, message) in [
        (r#"{"D": 4}"#, "e.json: D: expected 3, as the array has, found 4"),
        (r#"{"dtype": "float32"}"#, "e.json: dtype: expected a name of <u2, as the array has, found \"float32\""),
        (r#"{"dtype_bits": "half"}"#, "e.json: dtype_bits: expected a name of <u2, as the array has, found \"half\""),
        (r#"{"D": "3"}"#, "e.json: description of an array: expected an object whose D is an integer"),
        ("[]]", "e.json: description of an array"),
    ] {
        describe(text);
        let error = refused(attach("e.bf16.npy"));
        assert!(matches!(error.kind(), ErrorKind::Header { .. }) && error.to_string().contains(message), "{error}");
    }
    describe(r#"{"dtype": "bf16"}"#);
    write("e.npy", "<f4", "(2, 3)", 24);
    assert!(refused(attach("e.npy")).to_string().contains("expected a name of <f4"));
    std::fs::remove_file(folder.path().join("e.json")).unwrap();

    for (dtype, shape, len, message) in [
        ("<f4", "(2, 0)", 0, "values of a row: expected 1..=262144 values of 4 bytes, found 0"),
        ("<f4", "(0, 262145)", 0, "values of a row: expected 1..=262144 values of 4 bytes, found 262145"),
        ("<f4", "(2,)", 8, "shape: expected two dimensions, found 1 values"),
        ("<f4", "(2, 3)", 23, "length of the file: expected "),
        ("<f4", "(2, 3)", 25, "length of the file: expected "),
        (">f4", "(2, 3)", 24, "type of the values: expected little-endian integers or floats, found >f4"),
        ("|b1", "(2, 3)", 6, "type of the values"),
        ("|O", "(2, 3)", 48, "type of the values"),
        ("<f4", "(3, 3)", 36, "rows of the array: expected 2, as many as "),
    ] {
        write("e.npy", dtype, shape, len);
        let error = refused(attach("e.npy"));
        assert!(matches!(error.kind(), ErrorKind::Header { .. }) && error.to_string().contains(message), "{error}");
    }
    assert!(matches!(refused(attach("none.npy")).kind(), ErrorKind::Io { .. }));
}

fn attach_type(batch: &arrow::array::RecordBatch) -> String {
    batch.column_by_name("e").unwrap().data_type().to_string()
}

#[test]
fn the_whole_table_has_the_column_too() {
    let keys = dense([(3, 9000)]);
    let (_folder, path) = session(&keys, 900);
    let table = table(&keys).attach("e", &path, None, &(), never()).unwrap();
    let mut row = 0;
    for batch in table.column_reader() {
        let batch = batch.unwrap();
        assert!(batch.num_rows() <= 9320);
        let lists = batch.column_by_name("e").unwrap();
        let lists = arrow::array::AsArray::as_fixed_size_list(lists);
        let bits = arrow::array::AsArray::as_primitive::<arrow::datatypes::UInt16Type>(lists.values());
        for values in bits.values().chunks_exact(900) {
            assert!(bytemuck::cast_slice::<u16, u8>(values) == values_of(keys[row], 1800));
            row += 1;
        }
    }
    assert_eq!(row, 9000);
    let saved = tempfile::tempdir().unwrap();
    let file = saved.path().join("rows.npy");
    table.save(&file, &(), never()).unwrap();
    let loaded = StepTable::map(&file).unwrap();
    assert!(loaded.attached().is_empty() && loaded.fingerprint() == table.fingerprint());
    // A loader's state does not depend on the column.
    let state = table.loader(LoaderOptions::default()).unwrap().state();
    loaded.loader(LoaderOptions::default()).unwrap().load_state(&state).unwrap();
    check_values(&loaded.attach("e", &path, None, &(), never()).unwrap(), "e", 1800);
}
