use super::*;
use crate::board::{Board, Move};
use crate::error::ErrorKind;
use crate::format::SessionOptions;
use crate::format::SessionWriter;
use crate::run::{Run, RunMeta, RunStep};
use crate::table::RowFilter;
use serde_json::json;
use std::path::PathBuf;
use tempfile::TempDir;

/// Plays the first possible move and spawns at the first empty cell, so that each move can be derived.
fn game(len: u32, rate: u32, score: u64) -> Run {
    let mut steps = Run::builder(0);
    let mut board = Board(0x1100_0000_0000_0000);
    for index in 0..len {
        let next = Move::ALL.into_iter().map(|direction| board.slide(direction)).find(|after| *after != board);
        if index % rate == 0 {
            steps.push_step(RunStep { index, board: board.into(), chosen: None, branches: None }).unwrap();
        }
        let Some(after) = next else { break };
        let empty = (0..16).find(|cell| after.0 >> (60 - 4 * cell) & 15 == 0).unwrap();
        board = Board(after.0 | 1 << (60 - 4 * empty));
    }
    steps.finish(RunMeta { max_score: score, highest_tile: 64, seed: Some(1), ..RunMeta::default() }, None).unwrap()
}

fn write(runs: &[(u64, Run)]) -> (TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("session");
    let entries = [("model".to_owned(), json!({"tag": "deep"}))];
    let mut writer = SessionWriter::create(&folder, &entries, SessionOptions::default()).unwrap();
    runs.iter().for_each(|(id, run)| writer.push(*id, run).unwrap());
    writer.finish().unwrap();
    (parent, folder)
}

fn load(folder: &Path, memory_limit: Option<u64>) -> Result<StepTable> {
    StepTable::from_session(folder, memory_limit, &(), CancellationToken::never())
}

#[test]
fn rows_keep_the_ids_and_the_steps_of_the_session() {
    // The ids are unordered, and one run is sampled.
    let runs = vec![(1003, game(30, 1, 500)), (7, game(40, 3, 900)), (1001, game(20, 1, 700))];
    let (_parent, folder) = write(&runs);
    let table = load(&folder, None).unwrap();
    let mut row = 0;
    for place in [1, 2, 0] {
        let (id, run) = &runs[place];
        let decoded = Session::open(&folder).unwrap();
        let decoded = decoded.decode((0..3).find(|&index| decoded.id(index) == Some(*id)).unwrap()).unwrap();
        for at in 0..run.num_steps() {
            let (step, original) = (table.step(row).unwrap(), run.step(at).unwrap());
            assert_eq!((u64::from(step.run_id), u32::from(step.step_index)), (*id, original.index));
            assert_eq!((step.board, step.ev_legal), (original.board.board(), original.board.legal_moves()));
            assert!(step.ev_values.iter().all(|value| value.is_nan()));
            assert_eq!(step.chosen, decoded.step(at).unwrap().chosen.map_or(255, |chosen| chosen as u8));
            row += 1;
        }
    }
    assert_eq!(table.num_rows(), row);
    let batch = table.take(&[0, row - 1]).unwrap();
    assert!(batch.column("move").unwrap().bytes.contains(&255));

    let filter = RowFilter { min_score: Some(700), engines: Some(vec!["deep".into()]), ..RowFilter::default() };
    let some = table.filter(&filter, CancellationToken::never()).unwrap();
    assert_eq!(some.num_rows(), 20 + runs[1].1.num_steps() as u64);
    assert_eq!(load(&folder, None).unwrap().fingerprint(), table.fingerprint());
}

#[test]
fn sessions_that_do_not_fit_rows_are_rejected() {
    let (_parent, folder) = write(&[(1 << 32, game(3, 1, 0)), (5, game(4, 1, 0))]);
    let error = load(&folder, None).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::Argument { name: "run_id", .. }));
    assert_eq!(
        error.to_string(),
        "run_id: expected at most 4294967295, the largest run id of a row, found run 4294967296"
    );
    let (_parent, folder) = write(&[(5, game(4, 1, 0))]);
    let error = load(&folder, Some(127)).err().unwrap();
    assert!(matches!(error.kind(), ErrorKind::MemoryLimit { needed: 128, limit: 127 }));

    let mut steps = Run::builder(0);
    for index in [0, 65_535, 65_536] {
        steps
            .push_step(RunStep { index, board: Board(0x1100_0000_0000_0000).into(), chosen: None, branches: None })
            .unwrap();
    }
    let (_parent, folder) = write(&[(1, steps.finish(RunMeta::default(), None).unwrap())]);
    let table = load(&folder, None).unwrap();
    let batch = table.take(&[0, 1, 2]).unwrap();
    assert_eq!(batch.column("step_index").unwrap().values::<u32>(), Some(&[0, 65_535, 65_536][..]));
    assert_eq!([0, 1, 2].map(|row| table.step(row).unwrap().step_index), [0, 65_535, 65_535]);
}
