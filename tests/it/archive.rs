use crate::support::{Games, write_runs};
use a2store::archive::{Operation, StorageOptions, TableName, VersionName};
use a2store::{Archive, CancellationToken, ErrorKind, IngestOptions, Phases};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn manifest_file(archive: &Archive, version: u64) -> std::path::PathBuf {
    archive.path().join(format!("_versions/{:020}.json", u64::MAX - version))
}

fn open_at(archive: &Archive, version: u64) -> a2store::Result<Archive> {
    Archive::open_with(archive.path(), Some(version), &StorageOptions::default())
}

#[track_caller]
fn open_error(path: &Path) -> a2store::Error {
    Archive::open(path).unwrap_err()
}

#[test]
fn an_archive_is_created_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("games.a2");
    let archive = Archive::create(&path, Phases { mid: 512, late: 2048 }).unwrap();
    assert_eq!((archive.version(), archive.num_runs(), archive.num_steps()), (1, 0, 0));
    let again = Archive::create(&path, Phases::default()).unwrap_err();
    assert!(matches!(again.kind(), ErrorKind::ArchiveExists { .. }), "{again}");
    assert_eq!(Archive::open(&path).unwrap().phases(), Phases { mid: 512, late: 2048 });
    assert_eq!(
        archive
            .sql("SELECT * FROM steps", a2store::query::no_params())
            .unwrap()
            .count(&CancellationToken::new())
            .unwrap(),
        0
    );
}

#[test]
fn an_archive_is_not_created_among_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let error = Archive::create(folder.path(), Phases::default()).map(|_| ());
    assert!(error.is_ok(), "an empty folder is accepted");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.tex"), "").unwrap();
    let error = Archive::create(folder.path(), Phases::default()).unwrap_err();
    assert!(error.to_string().contains("path: expected a new or empty folder"), "{error}");
}

#[test]
fn phases_must_be_tiles_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (mid, late) in [(0, 4096), (1000, 4096), (4096, 1024), (1024, 1024), (1024, 65_536)] {
        let error = Archive::create(folder.path().join("games.a2"), Phases { mid, late }).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { name: "phases", .. }), "{error}");
    }
}

#[test]
fn other_folders_are_not_archives() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(open_error(folder.path()).kind(), ErrorKind::NotAnArchive { .. }));
    fs::create_dir(folder.path().join("_versions")).unwrap();
    assert!(matches!(open_error(folder.path()).kind(), ErrorKind::NotAnArchive { .. }));
    let missing = open_error(&folder.path().join("missing"));
    assert!(matches!(missing.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
}

#[test]
fn every_version_stays_readable() {
    let Games { folder, mut archive } = Games::new();
    let more = folder.path().join("more");
    let options = a2store::SimulateOptions::default().with_runs(2).with_seed(9).with_depth(0);
    a2store::simulate(&more, &options, &(), &CancellationToken::new()).unwrap();
    let before = archive.clone();
    archive.ingest([&more], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();

    assert_eq!((before.version(), archive.version()), (2, 3));
    assert_eq!((before.num_runs(), archive.num_runs()), (24, 26));
    let pinned = open_at(&archive, 2).unwrap();
    assert_eq!(
        (pinned.num_steps(), pinned.files(TableName::Steps)),
        (before.num_steps(), before.files(TableName::Steps))
    );
    let count = |archive: &Archive| {
        archive
            .sql("SELECT * FROM steps", a2store::query::no_params())
            .unwrap()
            .count(&CancellationToken::new())
            .unwrap()
    };
    assert_eq!((count(&pinned), count(&archive)), (before.num_steps(), archive.num_steps()));

    let history = archive.history().unwrap();
    assert_eq!(history.iter().map(|commit| commit.version).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(history.iter().map(|commit| commit.added_runs).collect::<Vec<_>>(), [2, 24, 0]);
    assert_eq!((history[0].operation, history[2].operation), (Operation::Ingest, Operation::Create));
    for version in [0, 4] {
        let error = open_at(&archive, version).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::VersionNotFound { newest: 3, .. }), "{error}");
    }
}

#[test]
fn bad_files_are_reported_and_good_ones_are_ingested() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write_runs(folder.path());
    fs::write(runs.join("alpha/bad.a2run2"), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 17, 4, 0, 33]).unwrap();
    let mut cut = fs::read(runs.join("gamma/run-00000.bin")).unwrap();
    let last = cut.len() - 1;
    cut[last] ^= 1;
    fs::write(runs.join("gamma/torn.bin"), &cut).unwrap();
    fs::write(runs.join("empty.bin"), b"").unwrap();
    fs::write(runs.join("notes.txt"), b"not a run").unwrap();

    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    let strict = IngestOptions::default().with_strict(true);
    assert!(archive.ingest([&runs], &strict, &(), &CancellationToken::new()).is_err());
    assert_eq!(Archive::open(archive.path()).unwrap().version(), 1);

    let report = archive.ingest([&runs], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert_eq!((report.accepted, report.rejected, report.ignored.len()), (24, 3, 1));
    assert!(report.num_bytes > 10 * report.num_steps);
    let messages: Vec<String> = report.errors.iter().map(|rejected| rejected.error.to_string()).collect();
    assert!(messages[0].ends_with("alpha/bad.a2run2: byte 11 (step 0): move: expected 0..=3, found 4"), "{messages:?}");
    assert!(messages[1].contains("empty.bin: byte 0: content: expected a run, found an empty file"), "{messages:?}");
    assert!(messages[2].contains("torn.bin: ") && messages[2].contains("CRC32C of the run"), "{messages:?}");
}

#[test]
#[cfg(unix)]
fn broken_links_are_reported_and_good_files_are_ingested() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write_runs(folder.path());
    std::os::unix::fs::symlink("/nowhere", runs.join("alpha/broken.bin")).unwrap();
    std::os::unix::fs::symlink(&runs, runs.join("alpha/loop")).unwrap();
    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    let report = archive.ingest([&runs], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert_eq!((report.accepted, report.rejected), (24, 2));
    assert!(report.errors.iter().all(|rejected| matches!(rejected.error.kind(), ErrorKind::Io { .. })));
}

#[test]
fn a_copy_of_a_run_file_is_a_duplicate() {
    let Games { folder, mut archive } = Games::new();
    let copy = folder.path().join("copy.a2run2");
    fs::copy(folder.path().join("runs/alpha/run-00003.a2run2"), &copy).unwrap();
    let report = archive.ingest([&copy, &copy], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert_eq!((report.accepted, report.duplicates, archive.version()), (0, 2, 2));
}

#[test]
fn run_ids_do_not_depend_on_the_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write_runs(folder.path());
    let contents: Vec<(Vec<u8>, String)> = [1, 2, 5]
        .map(|workers| {
            let path = folder.path().join(format!("{workers}.a2"));
            let mut archive = Archive::create(path, Phases::default()).unwrap();
            let options = IngestOptions::default().with_workers(workers);
            archive.ingest([&runs], &options, &(), &CancellationToken::new()).unwrap();
            let bytes = fs::read(&archive.files(TableName::Steps)[0]).unwrap();
            // The metadata, at the end of the file, has the ids of its archive and its transaction.
            let (rows, metadata) = bytes.split_at(bytes.len() - 2048);
            let metadata = String::from_utf8_lossy(metadata).replace(archive.id(), "");
            (rows.to_vec(), metadata.replace(&archive.history().unwrap()[0].txn, ""))
        })
        .to_vec();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]), "the files of steps differ");
}

#[test]
fn damage_to_the_newest_manifest_is_detected() {
    let Games { folder: _folder, archive } = Games::new();
    let path = manifest_file(&archive, 2);
    let good = fs::read(&path).unwrap();
    for at in [0, 10, good.len() / 2, good.len() - 5] {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        fs::write(&path, &bad).unwrap();
        let error = open_error(archive.path());
        assert!(matches!(error.kind(), ErrorKind::Damaged { .. }), "byte {at}: {error}");
        assert!(error.to_string().contains("18446744073709551613.json"), "{error}");
    }
    for len in [0, 5, good.len() - 1] {
        fs::write(&path, &good[..len]).unwrap();
        assert!(matches!(open_error(archive.path()).kind(), ErrorKind::Damaged { .. }), "{len} bytes");
    }
    assert_eq!(open_at(&archive, 1).unwrap().num_runs(), 0);
    fs::write(&path, &good).unwrap();
    assert_eq!(Archive::open(archive.path()).unwrap().num_runs(), 24);
}

#[test]
fn a_manifest_of_another_archive_is_rejected_by_whoever_knows_the_archive() {
    let (mut ours, theirs) = (Games::new(), Games::new());
    fs::copy(manifest_file(&theirs.archive, 2), manifest_file(&ours.archive, 2)).unwrap();
    let error = ours.archive.refresh().unwrap_err();
    assert!(error.to_string().contains("archive_id"), "{error}");

    // A restore replaces it, and finds the files of its own.
    let (options, cancel) = (StorageOptions::default(), CancellationToken::new());
    let report = Archive::restore(ours.archive.path(), VersionName::Newest, false, &options, &cancel).unwrap();
    assert_eq!((report.version, report.new_version, report.adopted_runs, report.damaged.len()), (1, Some(3), 24, 1));
    ours.archive.refresh().unwrap();
    assert_eq!((ours.archive.version(), ours.archive.num_runs()), (3, 24));
}

#[test]
fn a_manifest_of_a_newer_schema_is_rejected() {
    let Games { folder: _folder, archive } = Games::new();
    let path = manifest_file(&archive, 2);
    let text = fs::read_to_string(&path).unwrap().replace("\"schema_version\":1", "\"schema_version\":9");
    let body = &text[..text.rfind(",\"crc32c\"").unwrap()];
    fs::write(&path, format!("{body},\"crc32c\":\"{:08x}\"}}\n", crc32c::crc32c(body.as_bytes()))).unwrap();
    let error = open_error(archive.path());
    assert!(matches!(error.kind(), ErrorKind::SchemaVersion { supported: 1, found: 9, .. }), "{error}");
}

#[test]
fn data_files_match_their_checksums() {
    let Games { folder: _folder, archive } = Games::new();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(manifest_file(&archive, 2)).unwrap()).unwrap();
    let files = manifest["files"].as_array().unwrap();
    assert_eq!(files.len(), 2);
    for file in files {
        let bytes = fs::read(archive.path().join(file["path"].as_str().unwrap())).unwrap();
        assert_eq!(file["num_bytes"], bytes.len());
        assert_eq!(file["crc32c"], format!("{:08x}", crc32c::crc32c(&bytes)));
        assert!(file["path"].as_str().unwrap().contains(&blake3::hash(&bytes).to_hex()[..16]));
    }
}

#[test]
fn one_process_writes_at_a_time() {
    let Games { folder, mut archive } = Games::new();
    let lock = fs::File::options().append(true).open(archive.path().join("_versions/.lock")).unwrap();
    lock.try_lock().unwrap();
    let at_once = IngestOptions::default().with_wait(Duration::ZERO);
    let error = archive.ingest([folder.path().join("runs")], &at_once, &(), &CancellationToken::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    let released = Arc::new(AtomicBool::new(false));
    let releasing = std::thread::spawn({
        let released = Arc::clone(&released);
        move || {
            std::thread::sleep(Duration::from_millis(50));
            released.store(true, Ordering::SeqCst);
            drop(lock);
        }
    });
    archive.ingest([folder.path().join("runs")], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert!(released.load(Ordering::SeqCst), "ingest must wait for the lock");
    releasing.join().unwrap();
    archive.ingest([folder.path().join("runs")], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
}

#[test]
fn a_cancelled_ingest_leaves_the_archive_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write_runs(folder.path());
    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = archive.ingest([&runs], &IngestOptions::default(), &(), &cancel).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    assert_eq!(Archive::open(archive.path()).unwrap().version(), 1);
    assert_eq!(fs::read_dir(archive.path().join("steps")).unwrap().count(), 0);
}

#[test]
fn files_that_columns_cannot_reproduce_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    // A start time beyond any calendar, and a number of steps encoded in too many bytes.
    let far = a2store::run::RunMeta { start_unix_s: u64::MAX, ..Default::default() };
    let far = a2store::Run::builder(0).finish(far, a2store::Board(17)).unwrap();
    let far = a2store::format::encode_run(&far, a2store::format::RunFormat::A2run2).unwrap();
    let long = [0x80, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 33];
    fs::write(folder.path().join("far.a2run2"), &far).unwrap();
    fs::write(folder.path().join("long.a2run2"), long).unwrap();
    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    let report = archive.ingest([folder.path()], &IngestOptions::default(), &(), &CancellationToken::new()).unwrap();
    assert_eq!((report.accepted, report.rejected, report.num_steps), (2, 0, 0));
    let query = archive.sql("SELECT original FROM runs ORDER BY run_id", a2store::query::no_params()).unwrap();
    let batches: Vec<_> = query.stream(&CancellationToken::new()).unwrap().map(Result::unwrap).collect();
    let original = arrow::array::AsArray::as_binary::<i32>(batches[0].column(0).as_ref());
    assert_eq!((original.value(0), original.value(1)), (&far[..], &long[..]));
}

#[test]
fn a_view_of_a_replaced_archive_changes_nothing() {
    let (games, never) = (Games::new(), CancellationToken::never());
    let (path, runs) = (games.archive.path().to_owned(), games.folder.path().join("runs"));
    fs::remove_dir_all(&path).unwrap();
    let mut other = Archive::create(&path, Phases::default()).unwrap();
    other.ingest([runs], &IngestOptions::default(), &(), never).unwrap();
    for error in [games.archive.tag("mine", None).unwrap_err(), games.archive.history().unwrap_err()] {
        assert!(matches!(error.kind(), ErrorKind::Damaged { what: "archive_id", .. }), "{error}");
    }
    assert!(other.tags().unwrap().is_empty());
    other.tag("theirs", None).unwrap();
    games.archive.untag("theirs").unwrap_err();
    assert_eq!(other.tags().unwrap().len(), 1);
}

#[test]
fn a_tag_of_a_missing_version_is_a_problem() {
    let games = Games::new();
    games.archive.tag("kept", None).unwrap();
    let problems = || {
        let (options, never) = (StorageOptions::default(), CancellationToken::never());
        Archive::verify(games.archive.path(), None, &options, &(), never).unwrap().problems
    };
    assert!(problems().is_empty());
    fs::write(games.archive.path().join("_tags/kept.json"), "{\"version\":99}").unwrap();
    let found = problems();
    assert!(found.len() == 1 && found[0].path == "_tags/kept.json" && found[0].found == "99", "{found:?}");
}

/// The meta file identifies the rows, so their first bytes may be anything.
#[test]
fn the_rows_of_a_log_are_not_ignored_or_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let meta = r#"{"seed":1,"game_index":0,"steps_file":"n.jsonl","num_moves":0,"score":0,"max_tile":0,"seconds":1.0}"#;
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("n.meta.json"), meta).unwrap();
    fs::write(logs.join("n.jsonl"), "").unwrap();
    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    let options = IngestOptions::default().with_strict(true);
    let report = archive.ingest([&logs], &options, &(), CancellationToken::never()).unwrap();
    assert_eq!((report.accepted, report.ignored.len()), (1, 0));
}
