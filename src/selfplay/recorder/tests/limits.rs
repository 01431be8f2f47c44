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
    assert_eq!(refused(|options| options.sample_rate = 0), "sample_rate: expected at least 1, found 0");
    assert_eq!(refused(|options| options.rotate_steps = 0), "rotate_steps: expected at least 1, found 0");
    assert!(names(root.path()).is_empty());
}
