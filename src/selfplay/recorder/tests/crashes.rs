use super::super::status::{RecordingStatus, StatusFile};
use super::*;
use crate::format::Session;

/// Returns the folder of a recorder that was killed. It had flushed ten games, five more had ended, and one was
/// running.
fn killed(root: &Path, journal: bool) -> PathBuf {
    let recorder = recorder(&root.join("living"), |options| options.journal = journal);
    play_all(&recorder, 0..10, 40);
    recorder.rotate().unwrap();
    play_all(&recorder, 10..15, 40);
    let _live = recorder.begin(None).unwrap();
    let folder = root.join("dead").join("20260102T030405Z_model=v1");
    copy(recorder.folder(), &folder);
    folder
}

#[test]
fn the_next_recorder_reports_lost_games() {
    for (journal, runs, lost) in [(false, 10, 5), (true, 15, 0)] {
        let root = tempfile::tempdir().unwrap();
        let folder = killed(root.path(), journal);
        assert_eq!(check(&folder, 1, |_| 40).len(), 10, "before the recovery");
        let next = recorder(&root.path().join("dead"), |_| {});
        let [Unfinished { folder: found, recovered: Ok(recovered) }] = next.unfinished() else { panic!("{next:?}") };
        assert_eq!((found, recovered.runs, recovered.from_journal), (&folder, runs, runs - 10));
        assert_eq!((recovered.lost_runs, recovered.lost_steps, recovered.live), (lost, 40 * lost, 1));
        assert_eq!(check(&folder, 1, |_| 40).into_values().collect::<Vec<_>>(), (0..runs).collect::<Vec<_>>());
        assert_eq!(entry(&folder, "finished"), Some(false.into()));
        let shards = ["metadata.db", "steps-000001.npy", "steps-000002.npy"];
        assert_eq!(names(&folder), shards[..if journal { 3 } else { 2 }]);
        assert_eq!(recover(&folder).unwrap().runs, 0, "there is nothing to recover");
        assert!(recorder(&root.path().join("dead"), |_| {}).unfinished().is_empty());
    }
}

#[test]
fn a_live_recorder_is_not_recovered() {
    let root = tempfile::tempdir().unwrap();
    let first = recorder(root.path(), |_| {});
    assert!(matches!(recover(first.folder()).unwrap_err().kind(), ErrorKind::Conflict { .. }));
    let second = recorder(root.path(), |_| {});
    assert!(second.unfinished().is_empty());
    play(&first, 1, 10).unwrap();
    assert_eq!(first.close().unwrap().runs, 1);
}

#[test]
fn recovery_reads_all_complete_journal_records() {
    let root = tempfile::tempdir().unwrap();
    let folder = killed(root.path(), true);
    let journal = folder.join("journal-000002.bin");
    let bytes = std::fs::read(&journal).unwrap();
    let record = 16 + 56 + 40 * 9;
    assert_eq!(bytes.len(), 16 + 5 * record);
    let cuts = (0..bytes.len()).step_by(13).chain((1..=5).map(|n| 16 + n * record)).map(|cut| (cut, None));
    let flips = (0..bytes.len()).step_by(97).map(|at| (bytes.len(), Some(at)));
    for (number, (cut, flip)) in cuts.chain(flips).enumerate() {
        let copied = root.path().join(format!("{number}_model=v1"));
        copy(&folder, &copied);
        let mut damaged = bytes[..cut].to_vec();
        if let Some(at) = flip {
            damaged[at] ^= 0x40;
        }
        std::fs::write(copied.join("journal-000002.bin"), damaged).unwrap();
        let whole = flip.unwrap_or(cut).saturating_sub(16) / record;
        let recovered = recover(&copied).unwrap();
        // A change of the padding in a header or a frame is not detected.
        let is_padding =
            flip.is_some_and(|at| (13..16).contains(&at) || (at - 16) % record >= 12 && (at - 16) % record < 16);
        assert!(
            recovered.from_journal == whole as u64 || is_padding || flip.is_some_and(|at| at < 16),
            "{cut} {flip:?}"
        );
        // Damage to the header changes the sample rate or the kind of rows.
        if flip.is_none_or(|at| at >= 16) {
            assert_eq!(check(&copied, 1, |_| 40).len(), 10 + recovered.from_journal as usize);
        }
        std::fs::remove_dir_all(&copied).unwrap();
    }
}

#[test]
fn recovery_repairs_every_state_of_a_flush() {
    let root = tempfile::tempdir().unwrap();
    let before = killed(root.path(), false);
    // A live recorder repeats the two flushes, so that its files show every state of the second one.
    let living = recorder(&root.path().join("after"), |_| {});
    play_all(&living, 0..10, 40);
    living.rotate().unwrap();
    play_all(&living, 10..15, 40);
    living.rotate().unwrap();
    let (shard, metadata) = ("steps-000002.npy", "metadata.db");
    let staged = ".staged-xyz.tmp";
    let state = |name: &str| {
        let folder = root.path().join(format!("{name}_model=v1"));
        copy(&before, &folder);
        std::fs::create_dir(folder.join(staged)).unwrap();
        folder
    };
    let bring =
        |file: &str, folder: PathBuf| std::fs::copy(living.folder().join(file), folder.join(file)).map(|_| ()).unwrap();
    let outcome = |folder: &Path| {
        let recovered = recover(folder).unwrap();
        let runs = check(folder, 1, |_| 40).len() as u64;
        assert_eq!(recovered.runs, runs);
        assert!(!folder.join(staged).exists() && !folder.join("recording.json").exists());
        runs
    };

    let folder = state("an empty staged folder");
    assert_eq!(outcome(&folder), 10);

    let folder = state("both files staged");
    bring(shard, folder.join(staged));
    bring(metadata, folder.join(staged));
    assert_eq!(outcome(&folder), 10);

    let folder = state("the shard published");
    bring(shard, folder.clone());
    bring(metadata, folder.join(staged));
    assert_eq!(check(&folder, 1, |_| 40).len(), 10, "the session opens before the recovery");
    assert_eq!(outcome(&folder), 15);

    let folder = state("an unlisted shard");
    bring(shard, folder.clone());
    assert_eq!(outcome(&folder), 10);
    assert_eq!(names(&folder), ["metadata.db", "steps-000001.npy", "unrecorded-000002.npy"]);

    let folder = state("a shard with an old database");
    bring(shard, folder.clone());
    std::fs::copy(folder.join(metadata), folder.join(staged).join(metadata)).unwrap();
    assert_eq!(outcome(&folder), 10);

    let folder = state("a truncated shard");
    let bytes = std::fs::read(living.folder().join(shard)).unwrap();
    std::fs::write(folder.join(shard), &bytes[..bytes.len() - 7]).unwrap();
    bring(metadata, folder.join(staged));
    assert_eq!(outcome(&folder), 10);

    let folder = state("both files published");
    bring(shard, folder.clone());
    bring(metadata, folder.clone());
    assert_eq!(outcome(&folder), 15);
}

#[test]
fn an_unlisted_first_shard_is_renamed() {
    let root = tempfile::tempdir().unwrap();
    let living = recorder(&root.path().join("living"), |options| options.journal = true);
    let folder = root.path().join("1_model=v1");
    play_all(&living, 0..3, 40);
    copy(living.folder(), &folder);
    living.rotate().unwrap();
    std::fs::copy(living.folder().join("steps-000001.npy"), folder.join("steps-000001.npy")).unwrap();
    assert_eq!((recover(&folder).unwrap().from_journal, check(&folder, 1, |_| 40).len()), (3, 3));
    assert_eq!(names(&folder), ["metadata.db", "steps-000001.npy", "unrecorded-000001.npy"]);
}

#[test]
fn an_unreadable_status_file_without_games_is_removed() {
    let whole = {
        let root = tempfile::tempdir().unwrap();
        let living = recorder(root.path(), |_| {});
        std::fs::read(living.folder().join("recording.json")).unwrap()
    };
    assert_eq!(whole.len(), 4096);
    let mut options = RecorderOptions::new("v1");
    options.journal = true;
    // Earlier versions left this file if their process died during the write.
    let header: &[u8] = b"A2JOURN1\x01\0\0\0\0\0\0\0";
    for text in [&whole[..0], &whole[..1], &whole[..100], &[0xff; 10][..]] {
        for journal in [None, Some(&header[..0]), Some(&header[..8]), Some(header)] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("other");
            std::fs::create_dir(&folder).unwrap();
            let begin = || {
                std::fs::write(folder.join("recording.json"), text).unwrap();
                if let Some(bytes) = journal {
                    std::fs::write(folder.join("journal-000001.bin"), bytes).unwrap();
                }
                std::fs::write(folder.join(".staged-abc.tmp"), text).unwrap();
            };
            let seen = Arc::new(Mutex::new(ReceivedGames::default()));
            let sink = |_: &str| -> Result<Box<dyn Sink>> { Ok(Box::new(MemorySink(seen.clone()))) };
            for recovered in [0, 1].map(|again| {
                begin();
                if again == 0 { recover_with(&folder, sink).unwrap() } else { recover(&folder).unwrap() }
            }) {
                assert_eq!(recovered, Recovered { folder: folder.clone(), ..Recovered::default() });
            }
            assert_eq!(names(&folder), [".staged-abc.tmp"]);
            begin();
            let next = Recorder::with_sink(Some(&folder), options.clone(), sink).unwrap();
            assert!(next.unfinished().is_empty());
            play(&next, 5, 10).unwrap();
            assert_eq!(next.close().unwrap().runs, 1);
            assert!(names(&folder).is_empty(), "{:?}", names(&folder));
        }
    }
}

#[test]
fn games_beside_an_unreadable_status_file_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let dead = killed(root.path(), true);
    // A session lists its games itself.
    std::fs::write(dead.join("recording.json"), "").unwrap();
    let recovered = recover(&dead).unwrap();
    assert_eq!((recovered.runs, recovered.from_journal, recovered.lost_runs), (15, 5, 0));
    assert_eq!(check(&dead, 1, |_| 40).len(), 15);

    let dead = killed(&root.path().join("again"), true);
    std::fs::write(dead.join("recording.json"), "{").unwrap();
    for name in ["metadata.db", "steps-000001.npy"] {
        std::fs::remove_file(dead.join(name)).unwrap();
    }
    for error in [recover(&dead).unwrap_err(), recover_with(&dead, |_| unreachable!()).unwrap_err()] {
        assert_eq!(error.kind_name(), "header");
        let expected = "byte 0: recording: expected JSON, because the journal has 5 games, found none";
        assert_eq!(error.to_string(), format!("{}: {expected}", dead.join("recording.json").display()));
    }
    assert_eq!(names(&dead), ["journal-000002.bin", "recording.json"]);
}

#[test]
fn a_new_recording_is_not_taken_over() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("other");
    let seen = Arc::new(Mutex::new(ReceivedGames::default()));
    let sink = |_: &str| -> Result<Box<dyn Sink>> { Ok(Box::new(MemorySink(seen.clone()))) };
    let first = Recorder::with_sink(Some(&folder), RecorderOptions::new("v1"), sink).unwrap();
    assert!(matches!(recover_with(&folder, sink).unwrap_err().kind(), ErrorKind::Conflict { .. }));
    // If two recorders begin at once, the second finds the name taken.
    let error = StatusFile::create(&folder, RecordingStatus::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    assert_eq!(names(&folder), ["recording.json"]);
    play(&first, 5, 10).unwrap();
    assert_eq!(first.close().unwrap().runs, 1);
}

#[test]
fn a_damaged_session_is_reported_and_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let folder = killed(root.path(), false);
    std::fs::write(folder.join("metadata.db"), b"SQLite format 3\0 or not").unwrap();
    let next = recorder(&root.path().join("dead"), |_| {});
    let [Unfinished { recovered: Err(error), .. }] = next.unfinished() else { panic!("{next:?}") };
    assert_eq!(error.kind_name(), "header");
    assert!(folder.join("recording.json").exists());
}

#[test]
fn a_staged_folder_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let folder = killed(root.path(), false);
    let parent = folder.parent().unwrap();
    copy(&folder, &parent.join(".staged-abc.tmp"));
    copy(&folder, &parent.join("another"));
    let next = recorder(parent, |_| {});
    assert_eq!(next.unfinished().len(), 1);
    assert!(!parent.join(".staged-abc.tmp").exists() && parent.join("another").exists());
}

#[test]
fn journal_games_are_written_to_another_sink() {
    let root = tempfile::tempdir().unwrap();
    let (living, dead) = (root.path().join("living"), root.path().join("dead"));
    let seen = Arc::new(Mutex::new(ReceivedGames::default()));
    let mut options = RecorderOptions::new("v1");
    options.journal = true;
    let ids = Mutex::new(Vec::new());
    let open = |folder: &Path| {
        Recorder::with_sink(Some(folder), options.clone(), |id| {
            ids.lock().unwrap().push(id.to_owned());
            Ok(Box::new(MemorySink(seen.clone())))
        })
    };
    let first = open(&living).unwrap();
    play_all(&first, 0..4, 300);
    first.rotate().unwrap();
    play_all(&first, 4..6, 300);
    assert!(matches!(open(&living).unwrap_err().kind(), ErrorKind::Conflict { .. }));
    copy(&living, &dead);
    let second = open(&dead).unwrap();
    let recovered = second.unfinished()[0].recovered.as_ref().unwrap();
    assert_eq!((recovered.runs, recovered.from_journal, recovered.lost_runs), (6, 2, 0));
    let ids = ids.lock().unwrap();
    assert_eq!(ids[0], ids[1], "the id of the dead recording");
    assert_ne!(ids[1], ids[2]);
    let seen = seen.lock().unwrap();
    for (&id, run) in &seen.games {
        let expected: Vec<_> = (0..300).map(|index| step(id, index)).collect();
        assert_eq!((run.meta().seed, run.final_board()), (Some(id), Some(step(id, 300).0.into())));
        assert!(run.boards().iter().copied().zip(run.moves().iter().copied()).eq(expected));
    }
    drop(seen);
    assert!(Recorder::with_sink(None, options.clone(), |_| unreachable!()).is_err());
    drop(ids);
    let _ = Session::open(&dead).unwrap_err();
}

#[test]
fn games_of_several_threads_are_durable_at_their_end() {
    let root = tempfile::tempdir().unwrap();
    let living = recorder(&root.path().join("living"), |options| {
        (options.journal, options.rotate_steps) = (true, 400);
    });
    let ended = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (living, ended) = (&living, &ended);
            scope.spawn(move || {
                for game in 0..50 {
                    let seed = thread * 1000 + game;
                    let id = play(living, seed, 20).unwrap();
                    ended.lock().unwrap().insert(id, seed);
                }
            });
        }
    });
    let copied = root.path().join("1_model=v1");
    copy_at_rest(&living, &copied);
    recover(&copied).unwrap();
    assert_eq!(check(&copied, 1, |_| 20), *ended.lock().unwrap());
    assert_eq!(ended.lock().unwrap().len(), 150);
    living.close().unwrap();
    assert_eq!(check(living.folder(), 1, |_| 20), *ended.lock().unwrap());
    assert!(names(living.folder()).iter().all(|name| !name.starts_with("journal")));
}
