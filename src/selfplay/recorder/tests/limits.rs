use super::*;

fn limited(change: impl FnOnce(&mut RecorderOptions)) -> (tempfile::TempDir, Recorder) {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), change);
    (root, recorder)
}

fn limit_of<T: std::fmt::Debug>(outcome: Result<T>) -> &'static str {
    match outcome.unwrap_err().kind() {
        ErrorKind::RecorderLimit { limit, .. } => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn abandoned_games_do_not_count() {
    let (_root, recorder) = limited(|options| options.max_games = Some(3));
    play(&recorder, 0, 5).unwrap();
    let (second, third) = (recorder.begin(None).unwrap(), recorder.begin(None).unwrap());
    assert_eq!((limit_of(recorder.begin(None)), recorder.is_full()), ("games", Some("games")));
    drop(third);
    assert_eq!(recorder.is_full(), None);
    play(&recorder, 1, 5).unwrap();
    assert_eq!(limit_of(recorder.begin(None)), "games");
    second.end(None).unwrap();
    assert_eq!(recorder.close().unwrap().ended, 3);
}

#[test]
fn running_games_continue_past_the_step_limit() {
    let (_root, recorder) = limited(|options| options.max_steps = Some(50));
    let mut long = recorder.begin(Some(7)).unwrap();
    play_all(&recorder, 1..3, 20);
    assert_eq!(recorder.is_full(), None);
    play(&recorder, 3, 20).unwrap();
    assert_eq!((recorder.is_full(), limit_of(recorder.begin(None))), (Some("steps"), "steps"));
    for index in 0..100 {
        let (board, action) = step(7, index);
        long.push(board, Some(action), None).unwrap();
    }
    long.end(step(7, 100).0).unwrap();
    assert_eq!(recorder.close().unwrap().steps, 160);
    check(&recorder, 1, |seed| if seed == 7 { 100 } else { 20 });
}

#[test]
fn no_game_begins_after_the_time_limit() {
    // On a busy machine, a short limit may expire before a game can begin, so the limit doubles.
    let (_root, recorder, game) = (0..20)
        .find_map(|doubled| {
            let (root, recorder) = limited(|options| options.max_wall_ms = Some(20 << doubled));
            let game = recorder.begin(None).ok()?;
            Some((root, recorder, game))
        })
        .unwrap();
    until(|| recorder.is_full().is_some());
    assert_eq!((limit_of(recorder.begin(None)), recorder.is_full()), ("wall", Some("wall")));
    game.end(None).unwrap();
    assert_eq!(recorder.close().unwrap().ended, 1);
}

#[test]
fn the_folder_never_exceeds_the_disk_limit() {
    let root = tempfile::tempdir().unwrap();
    let recorder = recorder(root.path(), |options| {
        (options.max_disk_mb, options.rotate_steps) = (Some(1), 3000);
    });
    let size = || -> u64 {
        let files = walkdir::WalkDir::new(root.path()).into_iter().filter_map(Result::ok);
        files.filter_map(|entry| entry.metadata().ok()).filter(|entry| entry.is_file()).map(|entry| entry.len()).sum()
    };
    let mut num_ended = 0;
    let refused = loop {
        match play(&recorder, num_ended, 500) {
            Ok(id) => assert_eq!(id, num_ended),
            Err(error) => break error,
        }
        num_ended += 1;
        assert!(size() <= 1_000_000);
    };
    assert_eq!(limit_of(Err::<(), _>(refused)), "disk");
    assert_eq!((limit_of(recorder.begin(None)), recorder.is_full()), ("disk", Some("disk")));
    let stats = recorder.close().unwrap();
    assert_eq!((stats.ended, stats.abandoned), (num_ended, 1));
    assert!(stats.disk_bytes == size() && size() <= 1_000_000);
    assert!(num_ended > 30, "{num_ended} games, {} bytes", size());
    assert_eq!(check(&recorder, 1, |_| 500).len() as u64, num_ended);
}

#[test]
fn pushes_wait_until_a_rotation_frees_memory() {
    let (_root, recorder) = limited(|options| options.max_ram_mb = Some(16));
    // Several threads push fifty megabytes through ten megabytes of buffers.
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let recorder = &recorder;
            scope.spawn(move || {
                for game in 0..180 {
                    play(recorder, thread * 1000 + game, 10_000).unwrap();
                    assert!(recorder.stats().ram_bytes <= 10_000_000);
                }
            });
        }
    });
    let stats = recorder.close().unwrap();
    assert!(stats.rotations >= 5, "{stats:?}");
    assert_eq!(check(&recorder, 1, |_| 10_000).len(), 540);
}

#[test]
fn running_games_that_fill_the_memory_get_an_error() {
    let (_root, recorder) = limited(|options| options.max_ram_mb = Some(16));
    play(&recorder, 0, 1000).unwrap();
    let mut game = recorder.begin(Some(1)).unwrap();
    let mut index = 0;
    let error = loop {
        let (board, action) = step(1, index);
        match game.push(board, Some(action), None) {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("all of them in 1 running games"), "{error}");
    assert_eq!((limit_of(Err::<(), _>(error)), recorder.stats().durable), ("ram", 1));
    assert!(index > 1_000_000);
    assert_eq!(limit_of(game.push_all(vec![(Board(1), Some(Move::Up), None); 3_000_000].into_iter())), "ram");
    // The game can still end, which frees its memory for others.
    assert_eq!(game.num_steps(), index);
    game.end(step(1, index).0).unwrap();
    play(&recorder, 2, 1000).unwrap();
    recorder.close().unwrap();
    check(&recorder, 1, |seed| if seed == 1 { index } else { 1000 });
}

#[test]
fn a_failed_write_is_returned_to_a_push_that_waits_for_memory() {
    let (recorder, seen) = memory_sink(|options| options.max_ram_mb = Some(16));
    seen.lock().unwrap().failures = usize::MAX;
    let mut games = 0;
    let error = loop {
        match play(&recorder, games, 5000) {
            Ok(_) => games += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind_name(), "io");
    seen.lock().unwrap().failures = 0;
    while games < 300 {
        games += u64::from(play(&recorder, games, 5000).is_ok());
    }
    assert_eq!(recorder.close().unwrap().ended, 300);
}

#[test]
fn invalid_limits_are_rejected() {
    let root = tempfile::tempdir().unwrap();
    let refused = |change: fn(&mut RecorderOptions)| {
        let mut options = RecorderOptions::new("v1");
        change(&mut options);
        Recorder::create(root.path(), options).unwrap_err().to_string()
    };
    assert_eq!(refused(|options| options.max_ram_mb = Some(15)), "max_ram_mb: expected at least 16, found 15");
    assert_eq!(refused(|options| options.max_disk_mb = Some(0)), "max_disk_mb: expected at least 1, found 0");
    assert_eq!(refused(|options| options.sample_rate = 0), "sample_rate: expected at least 1, found 0");
    assert_eq!(refused(|options| options.rotate_steps = 0), "rotate_steps: expected at least 1, found 0");
    assert!(names(root.path()).is_empty());
}
