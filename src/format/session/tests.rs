use super::*;
use crate::board::{Board, Move};
use crate::error::ErrorKind;
use crate::format::files::mapped_rows::METADATA;
use crate::format::source::{RunSource, SourceRun};
use crate::format::tests::samples::game;
use crate::run::{Run, RunMeta, RunStep};
use proptest::prelude::*;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn write(folder: &Path, runs: &[(u64, Run)], options: SessionOptions) {
    let entries = [("model".to_owned(), json!({"tag": "deep", "sha": "00"})), ("n".to_owned(), json!(3))];
    let mut writer = SessionWriter::create(folder, &entries, options).unwrap();
    runs.iter().for_each(|(id, run)| writer.push(*id, run).unwrap());
    writer.finish().unwrap();
}

/// Creates a session of three games.
fn three(options: SessionOptions) -> (TempDir, PathBuf, Vec<Run>) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("20260102_model=deep");
    let runs = vec![game(1, 30), game(2, 20), game(3, 40)];
    let numbered: Vec<_> = (10..).zip(runs.iter().cloned()).collect();
    write(&folder, &numbered, options);
    (parent, folder, runs)
}

fn sql(folder: &Path, statements: &str) {
    Connection::open(folder.join(METADATA)).unwrap().execute_batch(statements).unwrap();
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Returns the run with only the steps whose index is a multiple of `rate`.
fn sampled(run: &Run, rate: usize, seed: Option<u64>) -> Run {
    let mut steps = Run::builder(0);
    for place in (0..run.num_steps()).step_by(rate) {
        steps.push_step(RunStep { branches: None, ..run.step(place).unwrap() }).unwrap();
    }
    let meta = RunMeta { seed, ..run.meta().clone() };
    steps.finish(meta, None).unwrap()
}

/// Returns the moves that lead from a board to the next one.
fn leading(board: Board, next: Board) -> Vec<Move> {
    let leads = |&direction: &Move| {
        let after = board.slide(direction);
        after != board && after.spawns_into(next)
    };
    Move::ALL.into_iter().filter(leads).collect()
}

#[test]
fn metadata_is_read() {
    let (_parent, folder, runs) = three(SessionOptions::default());
    let session = Session::open(folder.join("steps.npy")).unwrap();
    assert_eq!(session.session().as_deref(), Some("20260102_model=deep"));
    assert_eq!((session.num_runs(), session.num_steps(), session.has_actions()), (3, 90, false));
    assert_eq!((session.id(0), session.id(3)), (Some(10), None));
    let run = session.decode(1).unwrap();
    let meta = run.meta();
    assert_eq!((meta.max_score, meta.highest_tile), (runs[1].meta().max_score, runs[1].meta().highest_tile));
    assert_eq!((meta.engine.as_deref(), meta.seed, meta.start_unix_s), (Some("deep"), None, 0));
    let bytes = std::fs::read(folder.join("steps.npy")).unwrap();
    let header = "{'descr': [('run_id', '<u8'), ('step_idx', '<u4'), ('exps', '|u1', (16,))], 'fortran_order'";
    assert!(bytes[10..].starts_with(header.as_bytes()));
    let row = &bytes[192 + 31 * 28..][..28];
    assert_eq!(row[..12], [11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(row[12..], runs[1].boards()[1].exps());
}

#[test]
fn a_damaged_run_does_not_affect_the_others() {
    let row = 192 + 30 * 28;
    for (offset, byte, message) in [
        (
            row + 12 + 5,
            17,
            "steps.npy: run 1: byte 1049 (step 0): exponent: expected 0..=16, the range of a board, found 17",
        ),
        (row + 2 * 28 + 8, 1, "steps.npy: run 1: byte 1088 (step 2): step index: expected an index above"),
        (row + 19 * 28, 77, "run 1: rows of the run: expected 20 (runs.steps), found 19"),
    ] {
        let (_parent, folder, runs) = three(SessionOptions::default());
        change(&folder.join("steps.npy"), |bytes| bytes[offset] = byte);
        let session = Session::open(&folder).unwrap();
        assert_eq!(session.decode(0).unwrap().boards(), runs[0].boards());
        assert_eq!(session.decode(2).unwrap().boards(), runs[2].boards());
        let error = session.decode(1).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(session.rows_without_run(), if byte == 77 { vec![(77, 1)] } else { vec![] });
    }
    for (statements, message) in [
        (
            "UPDATE runs SET steps = 18 WHERE id = 11",
            "run 1: rows of the run: expected at most 19, one more than runs.steps, found 20",
        ),
        (
            "UPDATE runs SET steps = -1 WHERE id = 11",
            "run 1: runs.steps: expected NULL or an INTEGER in 0..=4294967295",
        ),
        ("UPDATE runs SET seed = 'x' WHERE id = 11", "run 1: runs.seed: expected NULL or an INTEGER"),
        ("UPDATE runs SET max_score = x'00' WHERE id = 11", "run 1: runs.max_score"),
        ("DELETE FROM runs WHERE id = 11; INSERT INTO runs VALUES (11, 0, 20, 0, 1 << 32)", "run 1: runs.highest_tile"),
    ] {
        let (_parent, folder, _) = three(SessionOptions::default());
        sql(&folder, statements);
        let session = Session::open(&folder).unwrap();
        assert!(session.decode(0).is_ok() && session.decode(2).is_ok());
        let error = session.decode(1).unwrap_err();
        assert!(error.path().is_some() && error.to_string().contains(message), "{error}");
    }
    let (_parent, folder, _) = three(SessionOptions::default());
    sql(&folder, "UPDATE runs SET id = -1 WHERE id = 11; INSERT INTO runs(id, steps) VALUES (50, 0)");
    let session = Session::open(&folder).unwrap();
    assert_eq!(session.id(0), Some(u64::MAX));
    assert!(
        session
            .decode(0)
            .unwrap_err()
            .to_string()
            .contains("expected at least one, found none with run_id 18446744073709551615")
    );
    assert_eq!(session.rows_without_run(), [(11, 20)]);
    assert_eq!(session.decode(3).unwrap().num_steps(), 0);
}

#[test]
fn session_entries_need_not_be_json() {
    let (_parent, folder, _) = three(SessionOptions::default());
    let deep = "[".repeat(100_000);
    sql(
        &folder,
        &format!("DELETE FROM session; INSERT INTO session VALUES ('a', '{{'), ('model', 'deep'), ('z', '{deep}')"),
    );
    let engine = || Session::open(&folder).unwrap().decode(0).unwrap().meta().engine.clone();
    assert_eq!(engine(), None);
    for (value, expected) in [(r#"{"tag": "deep"}"#, Some("deep")), (r#"{"tag": 3}"#, None), (&deep, None), ("", None)]
    {
        sql(&folder, &format!("UPDATE session SET meta_value = '{value}' WHERE meta_key = 'model'"));
        assert_eq!(engine().as_deref(), expected);
    }
    sql(&folder, "UPDATE session SET meta_value = NULL, meta_key = x'00' || rowid");
    assert_eq!(engine(), None);
    sql(&folder, "DROP TABLE session");
    assert!(Session::open(&folder).unwrap_err().to_string().contains("no such table: session"));
}

#[test]
fn rejects_an_action_above_3() {
    let (_parent, folder, runs) = three(SessionOptions::default().with_action(true));
    change(&folder.join("steps.npy"), |bytes| bytes[192 + 30 * 29 + 28] = 4);
    let session = Session::open(&folder).unwrap();
    assert!(session.has_actions());
    assert_eq!(session.decode(2).unwrap().moves(), runs[2].moves());
    let error = session.decode(1).unwrap_err().to_string();
    assert!(error.contains("run 1: byte 1090 (step 0): action: expected 0..=3, found 4"), "{error}");
}

#[test]
fn a_rejected_run_changes_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("session");
    let options = SessionOptions::default().with_action(true);
    let twice = [("a".to_owned(), Value::Null), ("a".to_owned(), Value::Null)];
    assert!(SessionWriter::create(&folder, &twice, options).is_err());
    let mut writer = SessionWriter::create(&folder, &[], options).unwrap();
    writer.push(7, &game(1, 5)).unwrap();
    let mut steps = Run::builder(1);
    steps.push_step(RunStep { index: 0, board: Board(1).into(), chosen: None, branches: None }).unwrap();
    let unknown = steps.finish(RunMeta::default(), None).unwrap();
    let high = Run::builder(0).finish(RunMeta { max_score: 1 << 63, ..RunMeta::default() }, None).unwrap();
    let seeded = Run::builder(0).finish(RunMeta { seed: Some(u64::MAX), ..RunMeta::default() }, None).unwrap();
    for (id, run, message) in [
        (7, &game(2, 5), "unique ids"),
        (8, &unknown, "a run without unknown moves"),
        (9, &high, "max_score"),
        (10, &seeded, "seed: expected at most 18446744073709551614"),
    ] {
        let error = writer.push(id, run).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }) && error.to_string().contains(message), "{error}");
    }
    assert!(!folder.exists());
    writer.finish().unwrap();
    assert_eq!((Session::open(&folder).unwrap().num_runs(), Session::open(&folder).unwrap().num_steps()), (1, 5));
    assert!(SessionWriter::create(&folder, &[], options).is_err());
}

#[test]
fn rejects_truncated_files_and_survives_flipped_bits() {
    let (_parent, folder, _) = three(SessionOptions::default());
    for (name, step) in [("steps.npy", 31), (METADATA, 307)] {
        let whole = std::fs::read(folder.join(name)).unwrap();
        for len in (0..whole.len()).step_by(step) {
            std::fs::write(folder.join(name), &whole[..len]).unwrap();
            let error = Session::open(&folder).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{name}, {len} bytes: {error:?}");
        }
        for bit in (0..8 * whole.len()).step_by(step) {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(folder.join(name), flipped).unwrap();
            match Session::open(&folder) {
                Ok(session) => (0..session.num_runs()).for_each(|index| {
                    if let Ok(run) = session.decode(index) {
                        assert!(run.num_steps() <= 90);
                    }
                }),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Io { .. }), "{error:?}");
                }
            }
        }
        std::fs::write(folder.join(name), &whole).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn runs_round_trip_up_to_what_the_format_holds(
        games in prop::collection::btree_map(any::<u64>(), (any::<u32>(), 0usize..60, 1usize..4, any::<Option<u64>>()), 0..5),
        with_action in any::<bool>(),
        rotate_rows in prop::option::of(1u64..50),
    ) {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("session");
        let game = |(seed, len, rate, engine): (u32, usize, usize, Option<u64>)| sampled(&game(seed.into(), len), rate, engine);
        let runs: Vec<(u64, Run)> = games.into_iter().map(|(id, how)| (id, game(how))).collect();
        write(&folder, &runs, SessionOptions { with_action, rotate_rows });
        let session = Session::open(&folder).unwrap();
        prop_assert_eq!(session.num_runs(), runs.len());
        prop_assert!(session.rows_without_run().is_empty());
        for index in 0..runs.len() {
            let run = &runs.iter().find(|(id, _)| Some(*id) == session.id(index)).unwrap().1;
            let SourceRun::Run(back) = session.read(index).unwrap() else { panic!("a file") };
            prop_assert_eq!((back.boards(), back.step_indices()), (run.boards(), run.step_indices()));
            prop_assert_eq!((back.meta().seed, back.meta().max_score), (run.meta().seed, run.meta().max_score));
            prop_assert!(back.final_board().is_none() && back.has_evs().iter().all(|has| !has));
            for place in 0..run.num_steps() {
                let (step, known) = (back.step(place).unwrap(), run.moves()[place]);
                let next = run.step(place + 1).filter(|next| next.index == step.index + 1);
                let choices = next.map_or(Vec::new(), |next| leading(step.board.board(), next.board.board()));
                let expected = (with_action || choices.len() == 1).then_some(known);
                prop_assert_eq!(step.chosen, expected);
            }
        }
    }
}
