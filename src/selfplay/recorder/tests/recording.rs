use super::*;
use crate::archive::{Archive, Phases};
use crate::run::Branches;
use crate::system::cancellation::CancellationToken;
use proptest::prelude::*;
use serde_json::json;

#[test]
fn a_session_contains_the_pushed_steps() {
    for (with_action, sample_rate) in [(true, 1), (false, 1), (true, 3), (false, 7)] {
        let root = tempfile::tempdir().unwrap();
        let recorder = recorder(root.path(), |options| {
            (options.with_action, options.sample_rate) = (with_action, sample_rate);
            options.model_hash = Some("abc".into());
            options.engine = Some("fast".into());
            options.entries = vec![("note".into(), json!([1, 2]))];
        });
        let lens = [0, 1, 2, 3, 8, 227, 228, 1000];
        for (seed, &len) in lens.iter().enumerate() {
            assert_eq!(play(&recorder, seed as u64, len).unwrap(), seed as u64);
        }
        let stats = recorder.close().unwrap();
        let seeds = check(&recorder, sample_rate, |seed| lens[seed as usize]);
        assert_eq!(seeds.len(), lens.len());
        let rows: u32 = lens.iter().map(|len| len.div_ceil(sample_rate)).sum();
        assert_eq!((stats.ended, stats.durable, stats.steps, stats.rotations), (8, 8, u64::from(rows), 1));
        let folder = &recorder.sessions()[0];
        assert_eq!(names(root.path()), [folder.file_name().unwrap().to_string_lossy()]);
        let entry = |key| entry(folder, key).unwrap();
        assert_eq!(entry("model"), json!({"tag": "v1", "sha": "abc"}));
        assert_eq!((entry("engine"), entry("note")), (json!("fast"), json!([1, 2])));
        assert!(entry("started").as_str().unwrap() <= entry("ended").as_str().unwrap());
        assert_eq!(recorder.close().unwrap(), stats);
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
    let stats = recorder.close().unwrap();
    assert!(stats.rotations >= 2, "{stats:?}");
    let seeds = check(&recorder, 1, len);
    assert_eq!(seeds.keys().copied().collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    let mut found: Vec<_> = seeds.into_values().collect();
    found.sort_unstable();
    assert_eq!(found, (0..200).collect::<Vec<_>>());
}

#[test]
fn each_rotation_writes_a_complete_session() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |_| {});
    assert!(recorder.sessions().is_empty() && names(root.path()).is_empty());
    for round in 1..=3 {
        play_all(&recorder, round * 10..round * 10 + 10, 20);
        assert_eq!(recorder.rotate().unwrap(), 10 * round);
        assert_eq!(check(&recorder, 1, |_| 20), (0..10 * round).map(|id| (id, id + 10)).collect());
    }
    assert_eq!(recorder.rotate().unwrap(), 30, "no game is left to write");
    let stats = recorder.stats();
    assert_eq!((stats.ended, stats.durable, stats.steps, stats.rotations), (30, 30, 600, 3));
    assert_eq!((stats.ram_bytes, names(root.path()).len()), (0, 3));
    recorder.close().unwrap();
    assert_eq!(recorder.sessions().len(), 3);
}

#[test]
fn a_game_waits_at_most_rotate_every() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |options| options.rotate_every = Some(Duration::from_millis(30)));
    for round in 1..=2 {
        play(&recorder, 1, 5).unwrap();
        until(|| recorder.stats().durable == round);
    }
}

#[test]
fn push_all_equals_single_pushes() {
    let root = tempfile::tempdir().unwrap();
    for sample_rate in [1, 4] {
        let recorder = recorder(root.path(), |options| options.sample_rate = sample_rate);
        let mut game = recorder.begin(Some(3)).unwrap();
        let mut next = 0;
        for len in [0, 1, 5, 226, 500, 3] {
            let steps: Vec<_> = (next..next + len).map(|index| step(3, index)).collect();
            game.push_all(steps.into_iter().map(|(board, action)| (board, Some(action), None))).unwrap();
            next += len;
        }
        // One step without its move.
        let steps = [(Board(1), Some(Move::Up), None), (Board(1), None, None)].into_iter();
        assert!(matches!(game.push_all(steps).unwrap_err().kind(), ErrorKind::Argument { .. }));
        assert!(matches!(game.push(Board(1), None, None).unwrap_err().kind(), ErrorKind::Argument { .. }));
        assert_eq!(game.num_steps(), next);
        game.end(step(3, next).0).unwrap();
        recorder.close().unwrap();
        assert_eq!(check(&recorder, sample_rate, |_| next).len(), 1);
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
    drop(recorder.begin(None).unwrap());
    let live = recorder.begin(None).unwrap();
    let stats = recorder.close().unwrap();
    assert_eq!((stats.ended, stats.abandoned, stats.live), (2, 1, 1));
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
    assert!(live.end(None).unwrap_err().to_string().contains("a closed one"));
}

#[test]
fn a_failed_rotation_loses_no_game() {
    let (recorder, seen) = memory_sink(|options| options.rotate_steps = 100);
    seen.lock().unwrap().failures = usize::MAX;
    play(&recorder, 0, 10).unwrap();
    assert_eq!(recorder.rotate().unwrap_err().kind_name(), "io");
    // The call above returned its error, so a game can begin. Then the thread's rotation fails, and a later `begin`
    // returns that error.
    play(&recorder, 1, 100).unwrap();
    until(|| recorder.begin(None).is_err_and(|error| error.kind_name() == "io"));
    let stats = recorder.stats();
    assert_eq!((stats.durable, stats.ended, stats.failure.is_some()), (0, 2, true));
    seen.lock().unwrap().failures = 0;
    assert_eq!(recorder.close().unwrap().failure, None);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.games.values().map(|run| run.meta().seed.unwrap()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(seen.writes, [2]);
}

#[test]
fn a_recorder_that_cannot_be_closed_stays_open() {
    let (recorder, seen) = memory_sink(|_| {});
    seen.lock().unwrap().failures = 1;
    play(&recorder, 0, 10).unwrap();
    assert_eq!(recorder.close().unwrap_err().kind_name(), "io");
    play(&recorder, 1, 10).unwrap();
    assert_eq!(recorder.close().unwrap().durable, 2);
    assert_eq!(seen.lock().unwrap().writes, [2]);
}

#[test]
fn a_session_gets_the_first_free_name() {
    let root = tempfile::tempdir().unwrap();
    let recorders: Vec<_> = (0..3).map(|_| recorder(root.path(), |_| {})).collect();
    for (seed, recorder) in recorders.iter().enumerate() {
        play(recorder, seed as u64, 10).unwrap();
        recorder.close().unwrap();
        assert_eq!(check(recorder, 1, |_| 10), BTreeMap::from([(0, seed as u64)]));
    }
    let found = names(root.path());
    assert!(found.len() == 3 && found.iter().all(|name| name.ends_with("_model=v1")), "{found:?}");
}

#[test]
fn a_rotation_into_a_folder_that_vanished_is_repeated() {
    let parent = tempfile::tempdir().unwrap();
    let root = parent.path().join("sessions");
    let recorder = recorder(&root, |_| {});
    play(&recorder, 0, 10).unwrap();
    std::fs::remove_dir(&root).unwrap();
    assert_eq!(recorder.rotate().unwrap_err().kind_name(), "io");
    std::fs::create_dir(&root).unwrap();
    assert_eq!(recorder.close().unwrap().durable, 1);
    assert_eq!(check(&recorder, 1, |_| 10).len(), 1);
    std::fs::write(parent.path().join("file"), "").unwrap();
    let error = Recorder::create(parent.path().join("file"), RecorderOptions::new("v1")).unwrap_err();
    assert_eq!(error.kind_name(), "io");
}

#[test]
fn unfinished_sessions_of_dead_processes_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let living = crate::format::StagedFolder::new_in(root.path()).unwrap();
    let dead = root.path().join(".staged-abc.tmp");
    std::fs::create_dir(&dead).unwrap();
    std::fs::write(dead.join("steps.npy"), "").unwrap();
    std::fs::write(root.path().join(".staged-file.tmp"), "").unwrap();
    recorder(root.path(), |_| {});
    assert!(!dead.exists() && living.path().exists() && root.path().join(".staged-file.tmp").exists());
}

#[test]
fn dropping_the_last_recorder_closes_it() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |_| {});
    let other = recorder.clone();
    play(&recorder, 5, 30).unwrap();
    let game = recorder.begin(None).unwrap();
    drop(recorder);
    assert_eq!(other.stats().live, 1);
    drop(other);
    let [name] = &names(root.path())[..] else { panic!("one session") };
    assert_eq!(check_session(&root.path().join(name), 1, |_| 30).len(), 1);
    drop(game);
}

#[test]
fn names_and_metadata_are_checked() {
    let root = tempfile::tempdir().unwrap();
    for tag in ["", ".x", "a/b", "a b", "é", "a\0", &"x".repeat(201)] {
        let error = Recorder::create(root.path(), RecorderOptions::new(tag)).unwrap_err();
        assert!(error.to_string().starts_with("tag: expected"), "{error}");
    }
    for (key, value) in [("model", json!(1)), ("note", json!("x".repeat(1 << 18)))] {
        let mut options = RecorderOptions::new("v1");
        options.entries = vec![(key.to_owned(), value)];
        assert_eq!(Recorder::create(root.path(), options).unwrap_err().kind_name(), "argument");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rows_give_back_the_steps(boards in prop::collection::vec((any::<u64>(), 0..5_u8, any::<[f32; 4]>(), 0..32_u8), 0..600), with_evs: bool) {
        use super::super::rows::GameRows;
        let mut rows = GameRows::new(with_evs);
        for &(board, action, values, legal) in &boards {
            let missing = rows.missing_blocks(1);
            rows.add_blocks(missing);
            let branches = (legal < 16).then_some(Branches { values, legal });
            rows.push(Board(board), Move::from_index(action), branches);
        }
        prop_assert_eq!((rows.len as usize, rows.steps(3).count()), (boards.len(), boards.len()));
        for (place, (step, &(board, action, values, legal))) in rows.steps(3).zip(&boards).enumerate() {
            prop_assert_eq!((step.index as usize, step.board.board().0), (3 * place, board));
            prop_assert_eq!(step.chosen, Move::from_index(action));
            let found = step.branches.map(|branches| (branches.values.map(f32::to_bits), branches.legal));
            prop_assert_eq!(found, (with_evs && legal < 16).then_some((values.map(f32::to_bits), legal)));
        }
    }
}

#[test]
fn an_archive_is_no_folder_of_sessions() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("games.a2");
    Archive::create(&path, Phases::default()).unwrap();
    for folder in [path.clone(), path.join("_versions"), path.join("new/folder")] {
        let error = Recorder::create(folder, RecorderOptions::new("v1")).unwrap_err();
        assert!(error.to_string().contains("expected a folder of sessions, or an open archive"), "{error}");
    }
}

#[test]
fn values_beyond_one_are_raw() {
    let root = tempfile::tempdir().unwrap();
    let mut archive = Archive::create(root.path().join("games.a2"), Phases::default()).unwrap();
    let recorder = Recorder::into_archive(&archive, RecorderOptions::new("v1")).unwrap();
    for values in [[0.0, 0.25, 1.0, 0.0], [0.0, 5000.0, 5399.8, 0.0], [0.0, -0.5, 0.5, 0.0]] {
        let mut game = recorder.begin(None).unwrap();
        let branches = Branches { values, legal: 0b0110 };
        game.push(Board(0x1100_0000_0000_0000), Some(Move::Left), Some(branches)).unwrap();
        game.end(None).unwrap();
    }
    recorder.close().unwrap();
    archive.refresh().unwrap();
    let is_raw = |id| archive.run(id, CancellationToken::never()).unwrap().run.meta().raw_evs;
    assert_eq!([0, 1, 2].map(is_raw), [false, true, true]);
}
