use crate::support::write_runs;
use a2store::export::{ExportFormat, ExportOptions, convert};
use a2store::format::{Compression, MacroxuePack, MacroxuePackWriter};
use a2store::run::{RunMeta, RunStep};
use a2store::{Board, CancellationToken, ErrorKind, Move, Run};
use std::fs;

#[test]
fn a_failed_export_leaves_no_run_files() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, out) = (write_runs(folder.path()), folder.path().join("out"));
    let damaged = runs.join("beta/run-00003.a2run2");
    let bytes = fs::read(&damaged).unwrap();
    let options = ExportOptions::new(ExportFormat::A2run2);
    let export = || convert([&runs], &out, &options, &(), CancellationToken::never());
    fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    export().unwrap_err();
    assert!(!out.exists() || fs::read_dir(&out).unwrap().next().is_none());
    fs::write(&damaged, &bytes).unwrap();
    assert_eq!(export().unwrap().runs, 24);
    // The files of an earlier export stay.
    export().unwrap_err();
    assert_eq!(fs::read_dir(out.join("00000")).unwrap().count(), 24);
}

#[test]
fn options_of_other_formats_are_rejected() {
    let (runs, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a2t1 = || ExportOptions::new(ExportFormat::A2t1);
    for (options, expected) in [
        (a2t1().with_align(8_u32), "a2pack with align"),
        (a2t1().with_compression(Compression::Zstd), "a2pack with compress"),
        (a2t1().with_shard_rows(8_u64), "npy or session or macroxue with shard_rows"),
        (a2t1().with_moves(true), "session with moves"),
        (a2t1().with_by_step(true), "jsonl with by_step"),
        (a2t1().with_compact(true), "jsonl with compact"),
    ] {
        let out = folder.path().join("out");
        let error = convert([runs.path()], &out, &options, &(), CancellationToken::never()).unwrap_err();
        assert!(error.to_string().contains(&format!("expected {expected}, found a2t1")), "{error}");
        assert!(!out.exists());
    }
}

/// Queries and `verify` assume that only runs of sessions lack steps.
#[test]
fn a_macroxue_pack_has_all_steps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack");
    let run = |indices: [u32; 3]| {
        let mut steps = Run::builder(3);
        for index in indices {
            let board = Board(0x1100_0000_0000_0000).into();
            steps.push_step(RunStep { index, board, chosen: Some(Move::Left), branches: None }).unwrap();
        }
        steps.finish(RunMeta { seed: Some(7), ..RunMeta::default() }, None).unwrap()
    };
    let mut writer = MacroxuePackWriter::create(&path, None).unwrap();
    let error = writer.push(&run([0, 1, 3])).unwrap_err();
    assert!(error.to_string().contains("expected a run with all its steps"), "{error}");
    writer.push(&run([0, 1, 2])).unwrap();
    writer.finish().unwrap();
    MacroxuePack::open(&path).unwrap().decode(0).unwrap();

    let rows = path.join("steps.npy");
    let mut bytes = fs::read(&rows).unwrap();
    let index_of_last_step = bytes.len() - 46 + 4;
    bytes[index_of_last_step] = 5;
    fs::write(&rows, bytes).unwrap();
    let error = MacroxuePack::open(&path).unwrap().decode(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Decode { .. }));
    assert!(error.to_string().contains("step 2") && error.to_string().contains("expected 2, found 5"), "{error}");
}
