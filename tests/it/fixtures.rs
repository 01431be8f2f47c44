//! Tests with real run files, if the folder `../shared/fixtures` exists beside the checkout.

use crate::naive;
use a2store::{Archive, CancellationToken, IngestOptions, Move, Phases, WideBoard, encode_run, no_params, read_run};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Returns the folder of the fixtures. If it does not exist, prints that the test is skipped.
fn fixtures(test: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures/runs"));
    if !path.is_dir() {
        // `println!` would not do: the test harness hides the output of a passing test.
        let _ = writeln!(std::io::stderr(), "skipped 1 test: {test}: ../shared/fixtures is not here");
        return None;
    }
    Some(path)
}

/// Returns the run files, each with the output of an independent decoder.
fn expected(folder: &PathBuf) -> Vec<(PathBuf, Value)> {
    let text = fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let files: Vec<_> = expected.into_iter().map(|(name, value)| (folder.join(name), value)).collect();
    let present = fs::read_dir(folder).unwrap().count();
    assert_eq!(present, files.len() + 1, "a fixture that expected.json does not list");
    files
}

#[test]
fn runs_decode_as_expected_and_encode_to_the_same_bytes() {
    let Some(folder) = fixtures("runs decode") else { return };
    let files = expected(&folder);
    for (path, expected) in &files {
        let bytes = fs::read(path).unwrap();
        let (run, format) = read_run(path).unwrap();
        let name = path.display();
        assert_eq!(crc32c::crc32c(&bytes), expected["file_crc32c"], "{name}");
        assert_eq!(encode_run(&run, format).unwrap(), bytes, "{name}");
        assert_eq!(format.name(), expected["format"], "{name}");
        assert_eq!(run.num_steps(), expected["num_steps"].as_u64().unwrap() as usize, "{name}");

        let meta = run.meta();
        assert_eq!(meta.start_unix_s, expected["start_unix_s"], "{name}");
        assert_eq!(meta.elapsed_s, expected["elapsed_s"].as_f64().unwrap() as f32, "{name}");
        assert_eq!(meta.max_score, expected["max_score"], "{name}");
        assert_eq!(meta.highest_tile, expected["highest_tile"], "{name}");
        assert_eq!(meta.engine.as_deref(), expected["engine"].as_str(), "{name}");
        assert_eq!(format!("{:#018x}", run.final_board().unwrap().board().0), expected["final_board"], "{name}");
        assert_eq!(run.final_board().unwrap().score(), meta.max_score, "{name}");

        let boards: Vec<u8> = run.boards().iter().flat_map(|board| board.0.to_le_bytes()).collect();
        assert_eq!(crc32c::crc32c(&boards), expected["board_crc32c"], "{name}");
        let moves = Move::ALL.map(|wanted| run.moves().iter().filter(|&&chosen| chosen == wanted).count());
        assert_eq!(serde_json::json!(moves), expected["moves"], "{name}");
        let with_evs: Vec<usize> = (0..run.num_steps()).filter(|&step| run.has_evs()[step]).collect();
        assert_eq!(with_evs.len(), expected["steps_with_evs"].as_u64().unwrap() as usize, "{name}");
        let evs: Vec<u8> = with_evs.iter().flat_map(|&step| run.ev_values()[step]).flat_map(f32::to_le_bytes).collect();
        if !with_evs.is_empty() {
            assert_eq!(crc32c::crc32c(&evs), expected["ev_crc32c"], "{name}");
        }
        let no_masks = serde_json::Map::new();
        for (mask, count) in expected["legal_mask_counts"].as_object().unwrap_or(&no_masks) {
            let mask = u8::from_str_radix(mask, 2).unwrap();
            let found = with_evs.iter().filter(|&&step| run.ev_legal()[step] == mask).count();
            assert_eq!(found, count.as_u64().unwrap() as usize, "{name} {mask:04b}");
        }
    }
    assert_eq!(files.len(), 31);
}

#[test]
fn every_transition_obeys_the_naive_rules() {
    let Some(folder) = fixtures("every transition") else { return };
    let mut num_steps = 0;
    for (path, _) in expected(&folder) {
        let (run, _) = read_run(&path).unwrap();
        run.verify().unwrap();
        let next_boards = run.boards().iter().skip(1).copied().chain(run.final_board().map(WideBoard::board));
        for (step, (&board, next)) in run.boards().iter().zip(next_boards).enumerate() {
            let slid = Move::ALL.map(|direction| naive::slide(board.exps(), direction));
            for direction in Move::ALL {
                let (after, reward) = slid[direction as usize];
                assert_eq!(board.slide(direction).exps(), after);
                assert_eq!(board.reward(direction), reward);
                assert_eq!(run.ev_legal()[step] & direction.bit() != 0, after != board.exps());
            }
            let (after, _) = slid[run.moves()[step] as usize];
            let spawned: Vec<(u8, u8)> =
                after.into_iter().zip(next.exps()).filter(|(before, after)| before != after).collect();
            assert!(matches!(spawned[..], [(0, 1 | 2)]), "{} step {step}: {spawned:?}", path.display());
            num_steps += 1;
        }
    }
    assert_eq!(num_steps, 34_506);
}

#[test]
fn all_fixtures_are_ingested_once() {
    let Some(folder) = fixtures("ingest") else { return };
    let temp = tempfile::tempdir().unwrap();
    let mut archive = Archive::create(temp.path().join("games.a2"), Phases::default()).unwrap();
    for (accepted, duplicates) in [(31, 0), (0, 31)] {
        let report = archive.ingest([&folder], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
        assert_eq!((report.accepted, report.duplicates, report.rejected), (accepted, duplicates, 0));
        assert_eq!(report.ignored.len(), 1);
        assert_eq!((archive.version(), archive.num_runs(), archive.num_steps()), (2, 31, 34_506));
    }
    let unverified = archive.sql("SELECT run_id FROM runs WHERE NOT verified OR original IS NOT NULL", no_params());
    assert_eq!(unverified.unwrap().count().unwrap(), 0);
}
