use crate::board::{Board, Move};
use crate::format::session::Session;
use crate::format::source::RunSource;
use crate::format::tests::samples::game;
use crate::run::Run;
use proptest::prelude::*;
use rusqlite::Connection;
use std::path::Path;

/// A row without a move: run id, step index and exponents.
type Row = (u64, u32, [u8; 16]);

/// Writes the rows as shards, with one cut before each of these rows, and the runs as `(id, steps)`.
fn write(folder: &Path, rows: &[Row], cuts: &[usize], runs: &[(u64, usize)]) {
    let mut cuts: Vec<usize> = cuts.iter().copied().chain([0, rows.len()]).collect();
    cuts.sort_unstable();
    for (number, cut) in cuts.windows(2).enumerate() {
        let rows = &rows[cut[0]..cut[1]];
        let descr = "[('run_id', '<u8'), ('step_idx', '<u4'), ('exps', '|u1', (16,))]";
        let mut text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': ({},), }}", rows.len());
        text += &" ".repeat(63 - (10 + text.len()) % 64);
        text.push('\n');
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.bytes());
        for (run_id, step_idx, exps) in rows {
            bytes.extend(run_id.to_le_bytes());
            bytes.extend(step_idx.to_le_bytes());
            bytes.extend(exps);
        }
        std::fs::write(folder.join(format!("steps-{:06}.npy", number + 1)), bytes).unwrap();
    }
    let database = Connection::open(folder.join("metadata.db")).unwrap();
    let tables = "CREATE TABLE runs(id INTEGER PRIMARY KEY, seed BIGINT NOT NULL, steps INT NOT NULL,
        max_score INT NOT NULL, highest_tile INT NOT NULL);
        CREATE TABLE session(meta_key TEXT PRIMARY KEY, meta_value TEXT NOT NULL)";
    database.execute_batch(tables).unwrap();
    for &(id, steps) in runs {
        database.execute("INSERT INTO runs VALUES (?1, 7, ?2, 100, 64)", (id as i64, steps as i64)).unwrap();
    }
}

fn rows_of(id: u64, run: &Run) -> Vec<Row> {
    run.boards().iter().zip(0..).map(|(board, step)| (id, step, board.exps())).collect()
}

/// Returns the moves that lead from a board to the next one.
fn leading(board: Board, next: Board) -> Vec<Move> {
    let leads = |&direction: &Move| {
        let after = board.slide(direction);
        after != board && after.spawns_into(next)
    };
    Move::ALL.into_iter().filter(leads).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_may_be_in_any_order_and_in_any_shard(
        // The number of steps, whether the game was cancelled, and whether `metadata.db` lists it.
        games in prop::collection::btree_map(any::<u64>(), (1usize..50, any::<bool>(), 0u8..6), 1..6),
        order in prop::sample::select(vec!["as runs", "as games run", "backwards", "any"]),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let runs: Vec<(u64, Run, bool, bool)> = games
            .iter()
            .map(|(&id, &(len, cancelled, listed))| (id, game(id, len), cancelled, listed > 0))
            .collect();
        let mut rows: Vec<Row> = runs.iter().flat_map(|(id, run, ..)| rows_of(*id, run)).collect();
        match order {
            "as games run" => rows.sort_by_key(|&(_, step, _)| step),
            "backwards" => rows.reverse(),
            "any" => rows.sort_by_key(|(run, step, _)| *blake3::hash(&(run ^ u64::from(*step)).to_le_bytes()).as_bytes()),
            _ => {}
        }
        let cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
        let listed: Vec<(u64, usize)> = runs
            .iter()
            .filter(|(.., listed)| *listed)
            .map(|(id, run, cancelled, _)| (*id, run.num_steps() - usize::from(*cancelled)))
            .collect();
        write(folder.path(), &rows, &cuts, &listed);
        let session = Session::open(folder.path()).unwrap();
        prop_assert_eq!((session.num_runs(), session.num_steps()), (listed.len(), rows.len() as u64));
        for index in 0..session.num_runs() {
            let (_, run, ..) = runs.iter().find(|(id, ..)| Some(*id) == session.id(index)).unwrap();
            let back = session.decode(index).unwrap();
            prop_assert_eq!((back.boards(), back.step_indices()), (run.boards(), None));
            for place in 0..run.num_steps() {
                let next = run.boards().get(place + 1);
                let leading = next.map_or(Vec::new(), |&next| leading(run.boards()[place], next));
                let expected = (leading.len() == 1).then(|| leading[0]);
                prop_assert_eq!(back.step(place).unwrap().chosen, expected);
            }
        }
        let unlisted = runs.iter().filter(|(.., listed)| !listed);
        let expected: Vec<(u64, u64)> = unlisted.map(|(id, run, ..)| (*id, run.num_steps() as u64)).collect();
        prop_assert_eq!(session.rows_without_run(), expected);
    }
}

#[test]
fn errors_name_the_row_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (game(1, 4), game(2, 4));
    let mut rows: Vec<Row> = rows_of(5, &a).into_iter().zip(rows_of(6, &b)).flat_map(|(a, b)| [a, b]).collect();
    // Step 2 of run 6 is row 5 of the session, and row 1 of the second shard.
    rows[5].2[3] = 17;
    write(folder.path(), &rows, &[4], &[(5, 4), (6, 4)]);
    let session = Session::open(folder.path()).unwrap();
    assert_eq!(session.decode(0).unwrap().boards(), a.boards());
    let error = session.decode(1).unwrap_err().to_string();
    let message =
        "steps-000002.npy: run 1: byte 171 (step 2): exponent: expected 0..=16, the range of a board, found 17";
    assert!(error.contains(message), "{error}");

    for (steps, message) in [
        (2, "rows of the run: expected at most 3, one more than runs.steps, found 4"),
        (5, "rows of the run: expected 5 (runs.steps), found 4"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &rows, &[], &[(5, steps)]);
        let error = Session::open(folder.path()).unwrap().decode(0).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    rows[6].1 = 1;
    write(folder.path(), &rows, &[], &[(5, 4)]);
    let error = Session::open(folder.path()).unwrap().decode(0).unwrap_err().to_string();
    assert!(error.contains("byte 296 (step 2): step index: expected an index above the previous one"), "{error}");
}
