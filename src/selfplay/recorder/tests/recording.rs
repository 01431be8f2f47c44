use super::*;
use crate::run::Branches;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_session_contains_the_pushed_steps() {
    for (with_action, sample_rate) in [(true, 1), (false, 1), (true, 3), (false, 7)] {
        let root = tempfile::tempdir().unwrap();
        let recorder = recorder(root.path(), |options| {
            (options.with_action, options.sample_rate) = (with_action, sample_rate);
            options.model_hash = Some("abc".into());
            options.config_hash = Some("def".into());
            options.engine = Some("fast".into());
            options.entries = vec![("note".into(), json!([1, 2]))];
        });
        let lens = [0, 1, 2, 3, 8, 227, 228, 1000];
        for (seed, &len) in lens.iter().enumerate() {
            assert_eq!(play(&recorder, seed as u64, len).unwrap(), seed as u64);
        }
        let report = recorder.close().unwrap();
        let seeds = check(&report.folder, sample_rate, |seed| lens[seed as usize]);
        assert_eq!(seeds.len(), lens.len());
        let rows: u32 = lens.iter().map(|len| len.div_ceil(sample_rate)).sum();
        assert_eq!((report.runs, report.steps, report.rotations), (8, u64::from(rows), 1));
        assert_eq!(names(&report.folder), ["metadata.db", "steps-000001.npy"]);
        let entry = |key| entry(&report.folder, key).unwrap();
        assert_eq!(entry("model"), json!({"tag": "v1", "sha": "abc"}));
        assert_eq!((entry("config"), entry("engine")), (json!({"sha": "def"}), json!("fast")));
        assert_eq!((entry("note"), entry("finished")), (json!([1, 2]), json!(true)));
        assert!(entry("started").as_str().unwrap() <= entry("ended").as_str().unwrap());
        assert_eq!(recorder.close().unwrap(), report);
    }
}

#[test]
fn games_of_several_threads_do_not_mix() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |options| options.rotate_steps = 5_000);
    let len = |seed: u64| (seed % 300) as u32;
    // The last game of each thread ends after a flush of other games.
    let rotated = std::sync::Barrier::new(5);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (recorder, rotated) = (recorder.clone(), &rotated);
            scope.spawn(move || {
                let mut left = 50;
                let mut games: Vec<_> = (0..50).map(|game| (thread * 50 + game, 0)).collect();
                let mut live: Vec<_> =
                    games.iter().map(|&(seed, _)| Some(recorder.begin(Some(seed)).unwrap())).collect();
                while live.iter().any(Option::is_some) {
                    for ((seed, index), slot) in games.iter_mut().zip(&mut live) {
                        let Some(game) = slot else { continue };
                        if *index == len(*seed) {
                            left -= 1;
                            if left == 0 {
                                rotated.wait();
                            }
                            slot.take().unwrap().end(step(*seed, *index).0).unwrap();
                            continue;
                        }
                        let (board, action) = step(*seed, *index);
                        game.push(board, Some(action), None).unwrap();
                        *index += 1;
                    }
                }
            });
        }
        while recorder.rotate().unwrap() < 100 {}
        rotated.wait();
    });
    let report = recorder.close().unwrap();
    assert!(report.rotations >= 2, "{report:?}");
    let seeds = check(&report.folder, 1, len);
    assert_eq!(seeds.keys().copied().collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    let mut found: Vec<_> = seeds.into_values().collect();
    found.sort_unstable();
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}

#[test]
fn each_flush_writes_a_shard_and_leaves_a_complete_session() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |_| {});
    let folder = recorder.folder().to_owned();
    assert_eq!(Session::open(&folder).unwrap().num_runs(), 0);
    assert_eq!(entry(&folder, "finished"), Some(json!(false)));
    for round in 1..=3 {
        for game in 0..10 {
            play(&recorder, round * 10 + game, 20).unwrap();
        }
        assert_eq!(recorder.rotate().unwrap(), 10 * round);
        assert_eq!(check(&folder, 1, |_| 20).len() as u64, 10 * round);
    }
    assert_eq!(recorder.rotate().unwrap(), 30, "no game is left to write");
    let expected = ["metadata.db", "recording.json", "steps-000001.npy", "steps-000002.npy", "steps-000003.npy"];
    assert_eq!(names(&folder), expected);
    let stats = recorder.stats();
    assert_eq!((stats.ended, stats.durable, stats.steps, stats.rotations), (30, 30, 600, 3));
    assert_eq!(stats.ram_bytes, 0);
    recorder.close().unwrap();
    assert!(!names(&folder).contains(&"recording.json".to_owned()));
}

#[test]
fn a_flush_starts_after_rotate_every() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |options| options.rotate_every = Some(Duration::from_millis(30)));
    for round in 1..=2 {
        play(&recorder, 1, 5).unwrap();
        until(|| recorder.stats().durable == round);
    }
}

#[test]
fn push_batch_equals_single_pushes() {
    let root = tempfile::tempdir().unwrap();
    for sample_rate in [1, 4] {
        let recorder = recorder(root.path(), |options| options.sample_rate = sample_rate);
        let mut game = recorder.begin(Some(3)).unwrap();
        let mut next = 0;
        for len in [0, 1, 5, 226, 500, 3] {
            let steps: Vec<_> = (next..next + len).map(|index| step(3, index)).collect();
            let (boards, moves): (Vec<_>, Vec<_>) = steps.into_iter().unzip();
            game.push_batch(&boards, Some(&moves), None).unwrap();
            next += len;
        }
        assert!(matches!(game.push_batch(&[Board(1)], None, None).unwrap_err().kind(), ErrorKind::Argument { .. }));
        assert!(matches!(game.push(Board(1), None, None).unwrap_err().kind(), ErrorKind::Argument { .. }));
        let error = game.push_batch(&[Board(1); 2], Some(&[Move::Up]), None).unwrap_err();
        assert!(error.to_string().starts_with("moves: expected as many as boards, 2, found 1"), "{error}");
        assert_eq!(game.num_steps(), next);
        game.end(step(3, next).0).unwrap();
        assert_eq!(check(&recorder.close().unwrap().folder, sample_rate, |_| next).len(), 1);
    }
}

#[test]
fn other_sinks_get_values_and_final_boards() {
    let (recorder, seen) = memory_sink(|options| options.sample_rate = 2);
    let evs = |index: u32| {
        let legal = step(9, index).0.legal_moves();
        let values = std::array::from_fn(|at| if legal >> at & 1 == 1 { index as f32 + at as f32 } else { 0.0 });
        (!index.is_multiple_of(3)).then_some(Branches { values, legal })
    };
    let mut game = recorder.begin(Some(9)).unwrap();
    for index in 0..301 {
        let (board, action) = step(9, index);
        game.push(board, (index % 5 > 0).then_some(action), evs(index)).unwrap();
    }
    game.end(Board(5)).unwrap();
    recorder.begin(None).unwrap().end(None).unwrap();
    recorder.begin(None).unwrap().abandon();
    let live = recorder.begin(None).unwrap();
    recorder.close().unwrap();
    let seen = seen.lock().unwrap();
    let run = &seen.games[&0];
    assert_eq!((run.final_board(), run.meta().seed, run.num_steps()), (Some(Board(5).into()), Some(9), 151));
    for place in 0..151_u32 {
        let found = run.step(place as usize).unwrap();
        let (board, action) = step(9, 2 * place);
        assert_eq!((found.index, found.board), (2 * place, board.into()));
        assert_eq!(found.chosen, (2 * place % 5 > 0).then_some(action));
        assert_eq!(found.branches, evs(2 * place));
    }
    assert_eq!((seen.games[&1].final_board(), seen.games[&1].meta().seed), (None, None));
    assert_eq!(seen.closed, Some(Closing { finished: true, abandoned: 1, live: 1 }));
    assert!(live.end(None).unwrap_err().to_string().contains("a closed one"));
}

#[test]
fn a_failed_flush_loses_no_game() {
    let (recorder, seen) = memory_sink(|options| options.rotate_steps = 100);
    seen.lock().unwrap().failures = 2;
    play(&recorder, 0, 10).unwrap();
    assert_eq!(recorder.rotate().unwrap_err().kind_name(), "io");
    // The call above returned the error, so games can begin.
    play(&recorder, 1, 100).unwrap();
    until(|| recorder.shared().lock().flush_done == 2);
    // No call has returned this error, so the next `begin` returns it, once.
    assert_eq!(recorder.begin(None).unwrap_err().kind_name(), "io");
    play(&recorder, 2, 10).unwrap();
    assert_eq!(recorder.stats().durable, 0, "the flush is not retried at once");
    seen.lock().unwrap().failures = 1;
    assert_eq!(recorder.close().unwrap_err().kind_name(), "io");
    play(&recorder, 3, 10).unwrap();
    assert_eq!(recorder.close().unwrap().runs, 4);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.games.values().map(|run| run.meta().seed.unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(seen.writes, [4]);
}

#[test]
fn a_session_survives_a_partly_failed_flush() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |_| {});
    let folder = recorder.folder().to_owned();
    play(&recorder, 0, 10).unwrap();
    recorder.rotate().unwrap();
    // First the name of the shard is taken, then the name of the database.
    for (obstacle, stays) in [("steps-000002.npy", None), ("metadata.db", Some("metadata.old"))] {
        if let Some(stays) = stays {
            std::fs::rename(folder.join(obstacle), folder.join(stays)).unwrap();
        }
        std::fs::create_dir_all(folder.join(obstacle).join("x")).unwrap();
        play(&recorder, 1, 10).unwrap();
        assert_eq!(recorder.rotate().unwrap_err().kind_name(), "io");
        std::fs::remove_dir_all(folder.join(obstacle)).unwrap();
        if let Some(stays) = stays {
            std::fs::rename(folder.join(stays), folder.join(obstacle)).unwrap();
        }
        assert_eq!(check(&folder, 1, |_| 10).len(), 1);
    }
    play(&recorder, 1, 10).unwrap();
    assert_eq!(recorder.close().unwrap().runs, 4);
    assert_eq!(check(&folder, 1, |_| 10).into_values().collect::<Vec<_>>(), [0, 1, 1, 1]);
    assert_eq!(names(&folder), ["metadata.db", "steps-000001.npy", "steps-000002.npy"]);
}

#[test]
fn dropping_the_last_recorder_closes_it() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |_| {});
    let (folder, other) = (recorder.folder().to_owned(), recorder.clone());
    play(&recorder, 5, 30).unwrap();
    let game = recorder.begin(None).unwrap();
    drop(recorder);
    assert_eq!(other.stats().live, 1);
    drop(other);
    assert_eq!(check(&folder, 1, |_| 30).len(), 1);
    assert_eq!(entry(&folder, "not_kept"), Some(json!({"abandoned": 0, "live": 1})));
    drop(game);
}

#[test]
fn folder_names_are_safe_and_unique() {
    let root = tempfile::tempdir().unwrap();
    for tag in ["", ".x", "a/b", "a b", "é", "a\0", &"x".repeat(201)] {
        let error = Recorder::create(root.path(), RecorderOptions::new(tag)).unwrap_err();
        assert!(error.to_string().starts_with("tag: expected"), "{error}");
    }
    let recorders: Vec<_> = (0..3).map(|_| recorder(root.path(), |_| {})).collect();
    let mut folders: Vec<_> = recorders.iter().map(|recorder| recorder.folder().to_owned()).collect();
    folders.dedup();
    assert_eq!(folders.len(), 3);
    assert!(folders.iter().all(|folder| folder.to_string_lossy().ends_with("_model=v1")));
    for (key, value) in [("model", json!(1)), ("note", json!("x".repeat(1 << 18)))] {
        let mut options = RecorderOptions::new("v1");
        options.entries = vec![(key.to_owned(), value)];
        assert_eq!(Recorder::create(root.path(), options).unwrap_err().kind_name(), "argument");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_round_trip_through_bytes(boards in prop::collection::vec((any::<u64>(), 0..5_u8, any::<[f32; 4]>(), 0..32_u8), 0..600), with_evs: bool) {
        use super::super::game_rows::{BLOCK_LEN, GameRows};
        let mut rows = GameRows::new(with_evs);
        for &(board, action, values, legal) in &boards {
            let missing = rows.missing_blocks(1);
            rows.add_blocks((0..missing).map(|_| Box::new([0; BLOCK_LEN])).collect());
            let branches = (legal < 16).then_some(Branches { values, legal });
            rows.push(Board(board), Move::from_index(action), branches);
        }
        let bytes: Vec<u8> = rows.slices().flatten().copied().collect();
        prop_assert_eq!(bytes.len(), boards.len() * rows.stride());
        let again = GameRows::from_bytes(&bytes, with_evs).unwrap();
        for rows in [&rows, &again] {
            prop_assert_eq!(rows.steps(3).count(), boards.len());
            for (place, (step, &(board, action, values, legal))) in rows.steps(3).zip(&boards).enumerate() {
                prop_assert_eq!((step.index as usize, step.board.board().0), (3 * place, board));
                prop_assert_eq!(step.chosen, Move::from_index(action));
                let found = step.branches.map(|branches| (branches.values.map(f32::to_bits), branches.legal));
                prop_assert_eq!(found, (with_evs && legal < 16).then_some((values.map(f32::to_bits), legal)));
            }
        }
        if !boards.is_empty() {
            prop_assert!(GameRows::from_bytes(&bytes[1..], with_evs).is_none());
        }
    }
}
