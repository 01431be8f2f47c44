use super::*;
use crate::board::{Board, Move};
use crate::error::ErrorKind;
use crate::format::files::mapped_rows::METADATA;
use crate::format::source::{RunSource, SourceRun};
use crate::format::tests::samples::{as_rows_hold, game, runs};
use crate::run::{Run, RunMeta, RunStep};
use proptest::prelude::*;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn write(folder: &Path, runs: &[Run], shard_rows: Option<u64>) {
    let mut writer = DatasetWriter::create(folder, shard_rows).unwrap();
    for (id, run) in runs.iter().enumerate() {
        assert_eq!(writer.push(run).unwrap(), id as u64);
    }
    writer.finish().unwrap();
}

fn held(run: &Run) -> Run {
    as_rows_hold(run, |value| value)
}

/// Creates a dataset of three games without a manifest.
fn three() -> (TempDir, PathBuf, Vec<Run>) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let runs = vec![game(1, 30), game(2, 20), game(3, 40)];
    write(&folder, &runs, None);
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    (parent, folder, runs)
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn sql(folder: &Path, statements: &str) {
    Connection::open(folder.join(METADATA)).unwrap().execute_batch(statements).unwrap();
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

#[track_caller]
fn refused(folder: &Path, message: &str) {
    let error = Dataset::open(folder).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
    assert!(error.to_string().contains(message) && error.path().is_some(), "{error}");
}

fn reads_all(folder: &Path, runs: &[Run]) {
    let dataset = Dataset::open(folder).unwrap();
    assert_eq!(dataset.num_runs(), runs.len());
    for (index, run) in runs.iter().enumerate() {
        assert_eq!(dataset.decode(index).unwrap(), held(run), "run {index}");
    }
}

#[test]
fn rows_and_tables_match_the_specification() {
    let (_parent, folder, runs) = three();
    let bytes = std::fs::read(folder.join("steps.npy")).unwrap();
    let header = "{'descr': [('board', '<u8'), ('move', '|u1'), ('ev_legal', '|u1'), ('ev_values', '<f4', (4,)), \
                  ('run_id', '<u4'), ('step_index', '<u2')], 'fortran_order': False, 'shape': (90,), }";
    assert!(bytes[10..].starts_with(header.as_bytes()));
    assert_eq!(bytes.len(), 256 + 90 * 32);
    let row = &bytes[256 + 31 * 32..][..32];
    assert_eq!(row[..8], runs[1].boards()[1].0.to_le_bytes());
    assert_eq!((row[8], row[9]), (runs[1].moves()[1] as u8, runs[1].ev_legal()[1]));
    let chosen = 10 + 4 * usize::from(row[8]);
    assert_eq!(row[chosen..chosen + 4], 1f32.to_le_bytes());
    assert_eq!(row[26..], [1, 0, 0, 0, 1, 0]);
    let absent = &bytes[256 + 9 * 32..][..32];
    assert_eq!(absent[9..26], [0; 17]);
    let database = Connection::open(folder.join(METADATA)).unwrap();
    let names: Vec<String> = database
        .prepare("SELECT name FROM sqlite_schema ORDER BY name")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(names, ["idx_runs_len", "idx_runs_score", "runs"]);
    let row = database.query_row("SELECT * FROM runs WHERE id = 2", [], |row| {
        Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, row.get::<_, String>(5)?, row.get::<_, f64>(7)?))
    });
    assert_eq!(row.unwrap(), (50, 40, "λ-2".to_owned(), 1.5));
}

#[test]
fn opens_by_folder_or_any_file() {
    let (_parent, folder, runs) = three();
    reads_all(&folder.join("steps.npy"), &runs);
    reads_all(&folder.join(METADATA), &runs);
    assert!(matches!(Dataset::open(folder.join("sub/none")).unwrap_err().kind(), ErrorKind::Io { .. }));
}

#[test]
fn rows_of_an_interrupted_append_belong_to_no_run() {
    for shard_rows in [None, Some(25)] {
        let parent = tempfile::tempdir().unwrap();
        let (folder, longer) = (parent.path().join("set"), parent.path().join("longer"));
        let runs = [game(1, 30), game(2, 20), game(3, 40)];
        write(&folder, &runs[..2], shard_rows);
        write(&longer, &runs, shard_rows);
        // The states of an append by another writer: rows added and manifest removed, runs added.
        for name in files(&longer).iter().filter(|name| name.ends_with(".npy")) {
            std::fs::copy(longer.join(name), folder.join(name)).unwrap();
        }
        std::fs::remove_file(folder.join("manifest.json")).unwrap();
        reads_all(&folder, &runs[..2]);
        std::fs::copy(longer.join(METADATA), folder.join(METADATA)).unwrap();
        reads_all(&folder, &runs);
    }
}

#[test]
fn run_ids_in_rows_may_restart() {
    let (_parent, folder, runs) = three();
    change(&folder.join("steps.npy"), |bytes| {
        for row in bytes[256..].chunks_exact_mut(32).skip(50) {
            row[26] = 0;
        }
    });
    reads_all(&folder, &runs);
    sql(&folder, "UPDATE runs SET id = id + 1000");
    reads_all(&folder, &runs);
}

#[test]
fn a_damaged_row_affects_one_run_only() {
    for (offset, byte, message) in [
        (256 + 30 * 32 + 8, 4, "steps.npy: run 1: byte 1224 (step 0): move: expected 0..=3, found 4"),
        (256 + 35 * 32 + 9, 16, "steps.npy: run 1: byte 1385 (step 5): ev_legal: expected 0..=15, found 16"),
        (256 + 35 * 32 + 26, 7, "steps.npy: run 1: byte 1402 (step 5): run_id: expected 1 as in the run's first row"),
        (256 + 35 * 32 + 30, 4, "steps.npy: run 1: byte 1376 (step 5): step index: expected an index above"),
    ] {
        let (_parent, folder, runs) = three();
        change(&folder.join("steps.npy"), |bytes| bytes[offset] = byte);
        let dataset = Dataset::open(&folder).unwrap();
        assert_eq!(dataset.decode(0).unwrap(), held(&runs[0]));
        assert_eq!(dataset.decode(2).unwrap(), held(&runs[2]));
        let error = dataset.decode(1).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn damaged_metadata_affects_one_run_only() {
    for (set, message) in [
        ("first_step_idx = 'x'", "run 1: runs.first_step_idx: expected an INTEGER of at least 0, found a TEXT of"),
        ("first_step_idx = -1", "runs.first_step_idx: expected an INTEGER of at least 0, found the INTEGER -1"),
        ("first_step_idx = 80", "runs.first_step_idx: expected rows within the 90 of the dataset, found 20 from 80 on"),
        ("first_step_idx = 9223372036854775807", "runs.first_step_idx: expected rows within the 90"),
        ("num_steps = 4294967296", "runs.num_steps: expected an INTEGER in 0..=4294967295"),
        ("num_steps = 4294967295", "expected rows within the 90"),
        ("num_steps = 50", "run_id: expected 1 as in the run's first row, found 2"),
        ("max_score = 0.5", "runs.max_score: expected an INTEGER of at least 0, found the REAL 0.5"),
        ("highest_tile = x'00'", "runs.highest_tile: expected an INTEGER in 0..=4294967295, found a BLOB"),
        ("engine = x'ff'", "runs.engine: expected NULL or a TEXT of at most 65535 bytes of UTF-8, found a BLOB"),
        ("engine = CAST(x'ff' AS TEXT)", "runs.engine: expected NULL or a TEXT"),
        ("engine = hex(zeroblob(40000))", "runs.engine: expected NULL or a TEXT of at most 65535 bytes"),
        ("start_time = 'soon'", "runs.start_time: expected NULL or an INTEGER, found a TEXT of"),
        ("elapsed_s = 'long'", "runs.elapsed_s: expected NULL or a number, found a TEXT of"),
    ] {
        let (_parent, folder, runs) = three();
        sql(&folder, &format!("UPDATE runs SET {set} WHERE id = 1"));
        let dataset = Dataset::open(&folder).unwrap();
        assert_eq!(dataset.decode(0).unwrap(), held(&runs[0]), "{set}");
        assert_eq!(dataset.decode(2).unwrap(), held(&runs[2]), "{set}");
        let error = dataset.decode(1).unwrap_err();
        assert!(error.path().is_some() && error.location().unwrap().run == Some(1), "{error}");
        assert!(error.to_string().contains(message), "{set}: {error}");
    }
    let (_parent, folder, runs) = three();
    sql(&folder, "UPDATE runs SET engine = NULL, start_time = NULL, elapsed_s = NULL");
    let run = Dataset::open(&folder).unwrap().decode(2).unwrap();
    assert_eq!((run.boards(), run.meta().elapsed_s, &run.meta().engine), (runs[2].boards(), 0.0, &None));
}

#[test]
fn rejects_databases_with_another_schema() {
    let copy = "CREATE TABLE copy AS SELECT * FROM runs; DROP TABLE runs;";
    for (statements, message) in [
        (
            "DROP TABLE runs",
            "SQLite database: expected the tables and columns of the format, found no such table: runs",
        ),
        (&format!("{copy} CREATE VIEW runs AS SELECT * FROM copy"), "access to view \"runs\" prohibited"),
        (&format!("{copy} CREATE VIRTUAL TABLE runs USING fts5(id)"), "tables: expected no virtual tables"),
        ("ALTER TABLE runs DROP COLUMN elapsed_s", "found no such column: elapsed_s"),
        (
            "UPDATE runs SET first_step_idx = 0, num_steps = 90; INSERT INTO runs SELECT id + 3, 0, 90, 0, 0, '', 0, 0 \
          FROM runs",
            "num_steps of the runs: expected at most 360 in total",
        ),
    ] {
        let (_parent, folder, _) = three();
        sql(&folder, statements);
        refused(&folder, message);
    }
    let (_parent, folder, runs) = three();
    sql(
        &folder,
        "CREATE VIEW best AS SELECT * FROM runs; CREATE TRIGGER t AFTER INSERT ON runs BEGIN \
                  DELETE FROM runs; END; CREATE TABLE other(x)",
    );
    reads_all(&folder, &runs);
    for index in 0..200 {
        sql(&folder, &format!("CREATE TABLE other{index}(x)"));
    }
    refused(&folder, "schema: expected one that fits in a page");
}

#[test]
fn reading_a_database_with_a_log_creates_no_files() {
    let (parent, folder, runs) = three();
    sql(&folder, "PRAGMA journal_mode = WAL");
    // A path with special characters of a URI.
    let odd = parent.path().join("a b?mode=rw#%41");
    std::fs::rename(&folder, &odd).unwrap();
    let before = files(&odd);
    reads_all(&odd, &runs);
    assert_eq!(files(&odd), before);
    // Reads a database whose log another process has not yet written back.
    let writer = Connection::open(odd.join(METADATA)).unwrap();
    writer.execute_batch("UPDATE runs SET max_score = 77").unwrap();
    assert!(std::fs::metadata(odd.join("metadata.db-wal")).unwrap().len() > 0);
    assert_eq!(Dataset::open(&odd).unwrap().decode(1).unwrap().meta().max_score, 77);
    // Reads a copied database whose log has no index.
    let copy = parent.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in files(&odd).iter().filter(|name| !name.ends_with("-shm")) {
        std::fs::copy(odd.join(name), copy.join(name)).unwrap();
    }
    let copied = files(&copy);
    assert_eq!(Dataset::open(&copy).unwrap().decode(1).unwrap().meta().max_score, 77);
    assert_eq!(files(&copy), copied);
    drop(writer);
    assert_eq!(Dataset::open(&odd).unwrap().num_runs(), runs.len());
}

#[test]
fn an_unfinished_transaction_is_ignored() {
    let (_parent, folder, runs) = three();
    let copy = folder.with_file_name("copy");
    let writer = Connection::open(folder.join(METADATA)).unwrap();
    // A cache of one page, so that changes reach the file before the commit.
    writer.execute_batch("PRAGMA cache_size = 1; BEGIN").unwrap();
    for id in 10..2000 {
        writer.execute("INSERT INTO runs VALUES (?1, 0, 0, 0, 0, 'engine', 0, 0)", [id]).unwrap();
    }
    writer.execute_batch("UPDATE runs SET max_score = 5").unwrap();
    std::fs::create_dir(&copy).unwrap();
    for name in files(&folder) {
        std::fs::copy(folder.join(&name), copy.join(&name)).unwrap();
    }
    let before = files(&copy);
    assert!(before.contains(&"metadata.db-journal".to_owned()));
    reads_all(&copy, &runs);
    assert_eq!(files(&copy), before);
}

#[test]
fn rejects_truncated_files() {
    let (_parent, folder, _) = three();
    for (name, step) in [("steps.npy", 1), (METADATA, 127)] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        let copy = folder.join(name);
        for len in (0..whole.len()).step_by(step) {
            std::fs::write(&copy, &whole[..len]).unwrap();
            let error = Dataset::open(&folder).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{name}, {len} bytes: {error:?}");
        }
        std::fs::write(&copy, [&whole[..], b"x"].concat()).unwrap();
        assert!(name == METADATA || Dataset::open(&folder).is_err());
        std::fs::write(&copy, &whole).unwrap();
    }
}

#[test]
fn flipped_bits_never_panic() {
    let (_parent, folder, _) = three();
    for (name, step) in [("steps.npy", 31), (METADATA, 127)] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        // Every bit of the headers, and samples of the rest.
        for bit in (0..8 * 108).chain((8 * 108..8 * whole.len()).step_by(step)) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(folder.join(name), flipped).unwrap();
            match Dataset::open(&folder) {
                Ok(dataset) => (0..dataset.num_runs()).for_each(|index| match dataset.decode(index) {
                    Ok(run) => assert!(run.num_steps() <= 90),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Decode { .. }), "{error:?}"),
                }),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Io { .. }), "{error:?}");
                }
            }
        }
        std::fs::write(folder.join(name), &whole).unwrap();
    }
}

#[test]
fn rejects_missing_shards_and_additional_files() {
    let (_parent, folder, _) = three();
    let rows = folder.join("steps.npy");
    std::fs::copy(&rows, folder.join("steps-00000.npy")).unwrap();
    refused(&folder, "expected steps.npy or shards of it, not both, found steps-00000.npy too");
    std::fs::rename(&rows, folder.join("steps-00002.npy")).unwrap();
    refused(&folder, "expected shard 1 after shard 0, found steps-00002.npy");
    std::fs::remove_file(folder.join("steps-00000.npy")).unwrap();
    refused(&folder, "expected shards numbered from 0 or 1, found steps-00002.npy");
    std::fs::remove_file(folder.join("steps-00002.npy")).unwrap();
    refused(&folder, "expected steps.npy or shards of it, found neither");
}

#[test]
fn manifest_must_match_the_files() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    write(&folder, &[game(1, 30), game(2, 20)], None);
    let manifest = folder.join("manifest.json");
    let good = std::fs::read_to_string(&manifest).unwrap();
    for (from, to, message) in [
        ("\"version\": 1", "\"version\": 2", "version of the manifest: expected 1, found 2"),
        ("\"num_runs\"", "\"runs\"", "manifest: expected version, num_steps and num_runs"),
    ] {
        assert!(good.contains(from), "{good}");
        std::fs::write(&manifest, good.replacen(from, to, 1)).unwrap();
        refused(&folder, message);
    }
    std::fs::write(
        &manifest,
        "{\"version\": 1, \"num_steps\": 50, \"num_runs\": 2, \"created\": \"today\", \"x\": []}",
    )
    .unwrap();
    Dataset::open(&folder).unwrap();
    std::fs::write(&manifest, good.replacen("metadata.db", "../metadata.db", 1)).unwrap();
    assert!(Dataset::open(&folder).unwrap_err().to_string().contains("files of the dataset"));
    std::fs::write(&manifest, &good).unwrap();
    change(&folder.join("steps.npy"), |bytes| bytes[300] ^= 1);
    let error = Dataset::open(&folder).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Checksum { .. }), "{error}");
}

#[test]
fn rows_and_runs_that_only_the_manifest_counts_are_lost() {
    for (from, to, message) in [
        (
            "\"num_steps\": 50",
            "\"num_steps\": 51",
            "num_steps of the manifest: expected 50, the number of rows, found 51",
        ),
        ("\"num_runs\": 2", "\"num_runs\": 3", "num_runs of the manifest: expected 2, the number of runs, found 3"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("set");
        write(&folder, &[game(1, 30), game(2, 20)], None);
        change(&folder.join("manifest.json"), |bytes| {
            *bytes = String::from_utf8(bytes.clone()).unwrap().replacen(from, to, 1).into_bytes();
        });
        assert!(Dataset::open(&folder).err().unwrap().to_string().contains(message));
    }
}

#[test]
fn an_outdated_manifest_is_ignored_if_the_files_agree() {
    let counts = ["\"num_steps\": 50", "\"num_runs\": 2"];
    for (from, to, message) in [
        (counts[0], "\"num_steps\": 40", "num_steps of the manifest: expected 50, the number of rows, found 40"),
        (counts[1], "\"num_runs\": 1", "num_runs of the manifest: expected 2, the number of runs, found 1"),
    ] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("set");
        let runs = [game(1, 30), game(2, 20)];
        write(&folder, &runs, None);
        assert!(Dataset::open(&folder).unwrap().warning().is_none());
        change(&folder.join("manifest.json"), |bytes| {
            *bytes = String::from_utf8(bytes.clone()).unwrap().replacen(from, to, 1).into_bytes();
        });
        reads_all(&folder, &runs);
        assert!(Dataset::open(&folder).unwrap().warning().unwrap().contains(message));
        // One row too many, or one run whose rows are missing.
        for num_steps in [19, 21] {
            sql(&folder, &format!("UPDATE runs SET num_steps = {num_steps} WHERE id = 1"));
            refused(&folder, message);
        }
    }
}

#[test]
fn step_indices_above_65535_are_stored_modulo_65536() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let mut steps = Run::builder(140_000);
    (0..140_000_u64).for_each(|step| steps.push(Board(step << 4 & 0x0fff_fff0 | 1), Move::Left, None));
    let run = steps.finish(RunMeta::default(), None).unwrap();
    let mut writer = DatasetWriter::create(&folder, None).unwrap();
    writer.push(&run).unwrap();
    writer.finish().unwrap();
    assert_eq!(Dataset::open(&folder).unwrap().decode(0).unwrap(), run);
    let stored = |step: usize| {
        let bytes = std::fs::read(folder.join("steps.npy")).unwrap();
        let end = bytes.len() - (140_000 - 1 - step) * 32;
        u16::from_le_bytes([bytes[end - 2], bytes[end - 1]])
    };
    assert_eq!([65_535, 65_536, 139_999].map(stored), [65_535, 0, 8927]);
    change(&folder.join("steps.npy"), |bytes| {
        let end = bytes.len();
        bytes[end - 1] ^= 1;
    });
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let error = Dataset::open(&folder).unwrap().decode(0).unwrap_err().to_string();
    assert!(error.contains("step index"), "{error}");
}

#[test]
fn a_rejected_run_changes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("set");
    let mut writer = DatasetWriter::create(&folder, None).unwrap();
    let step = |index, chosen| RunStep { index, board: Board(1).into(), chosen, branches: None };
    let of = |step| {
        let mut steps = Run::builder(1);
        steps.push_step(step).unwrap();
        steps
    };
    for (steps, message) in
        [(of(step(0, None)), "a run without unknown moves"), (of(step(7, Some(Move::Up))), "a run with all its steps")]
    {
        let error = writer.push(&steps.finish(RunMeta::default(), None).unwrap()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }) && error.to_string().contains(message), "{error}");
    }
    let meta = RunMeta { max_score: 1 << 63, ..RunMeta::default() };
    assert!(writer.push(&Run::builder(0).finish(meta, None).unwrap()).is_err());
    let mut steps = Run::builder(2);
    steps.push_step(step(0, Some(Move::Up))).unwrap();
    steps.push_step(step(1, Some(Move::Left))).unwrap();
    let sampled = steps.finish(RunMeta::default(), None).unwrap();
    writer.push(&sampled).unwrap();
    writer.finish().unwrap();
    assert_eq!(Dataset::open(&folder).unwrap().decode(0).unwrap(), sampled);
    assert!(matches!(DatasetWriter::create(&folder, None).err().unwrap().kind(), ErrorKind::Io { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn runs_round_trip_up_to_what_the_format_holds(
        runs in prop::collection::vec(runs(), 0..6),
        shard_rows in prop::option::of(1u64..50),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("set");
        write(&folder, &runs, shard_rows);
        let dataset = Dataset::open(&folder).unwrap();
        prop_assert_eq!(dataset.num_runs(), runs.len());
        for (index, run) in runs.iter().enumerate() {
            let SourceRun::Run(back) = dataset.read(index).unwrap() else { panic!("a file") };
            prop_assert_eq!(&back, &held(run));
            prop_assert_eq!(dataset.num_bytes(index), 32 * run.num_steps() as u64);
        }
    }
}
