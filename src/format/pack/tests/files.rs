//! Packing files and folders, and extracting files from packs.

use super::*;
use crate::format::JsonlOptions;
use crate::format::run_file::MAX_RUN_BYTES;
use crate::system::cancellation::CancellationToken;
use std::path::Path;

#[test]
fn files_that_are_not_runs_are_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.a2pack");
    let mut builder = PackBuilder::create(&path, PackOptions::default()).unwrap();
    let too_long = vec![0; MAX_RUN_BYTES as usize + 1];
    for bytes in [b"A2T1".as_slice(), b"", &too_long] {
        assert!(matches!(builder.add_run_bytes(bytes).unwrap_err().kind(), ErrorKind::Decode { .. }));
    }
    builder.add_run_bytes(&files()[0]).unwrap();
    assert!(!path.exists());
    assert_eq!(builder.finish().unwrap().packed, 1);
    assert!(validate(&PackReader::open(&path).unwrap()).is_sound());
    for align in [0, (1 << 20) + 1, u32::MAX] {
        let error = PackBuilder::create(&path, PackOptions { align, ..Default::default() }).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Argument { name: "align", .. }));
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn folders_are_packed_in_the_order_of_names() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out.a2pack"));
    std::fs::create_dir_all(input.join("b")).unwrap();
    let files = files();
    for (name, file) in [("c.a2run2", &files[0]), ("b/x.bin", &files[1]), ("a.dat", &files[2])] {
        std::fs::write(input.join(name), file).unwrap();
    }
    std::fs::write(input.join("readme.txt"), "no run").unwrap();
    std::fs::write(input.join("b/damaged.bin"), &files[1][..50]).unwrap();
    for compression in Compression::ALL {
        let options = PackOptions { compression, workers: Some(2), ..Default::default() };
        let report = pack_folder(&input, &output, &options, &(), never()).unwrap();
        assert_eq!((report.packed, report.rejected, report.ignored, report.num_steps), (3, 1, 1, 63));
        assert!(report.errors[0].path().unwrap().ends_with("b/damaged.bin"));
        assert!(report.errors[0].location().unwrap().offset.is_some());
        let pack = PackReader::open(&output).unwrap();
        for (index, file) in [&files[2], &files[1], &files[0]].into_iter().enumerate() {
            assert_eq!(&*pack.get_slice(index).unwrap().bytes, file);
        }
        assert!(validate(&pack).is_sound());
    }
    let before = std::fs::read(&output).unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let error = pack_folder(&input, &output, &PackOptions::default(), &(), &cancel).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Cancelled));
    assert_eq!(std::fs::read(&output).unwrap(), before);
    assert_eq!(names(folder.path()), ["in", "out.a2pack"]);
    let pack = PackReader::open(&output).unwrap();
    assert!(pack.validate(&ValidateOptions::default(), &(), &cancel).is_err());
    assert!(pack.stats(&(), &cancel).is_err());
    assert!(pack.to_jsonl(folder.path().join("lines"), &JsonlOptions::default(), &(), &cancel).is_err());
    assert_eq!(names(folder.path()), ["in", "out.a2pack"]);
}

#[test]
fn extract_writes_original_bytes_and_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let files = files();
    let pack = PackReader::from_bytes(build(&files, 8, Compression::Zstd, None)).unwrap();
    let report = pack.extract([2, 0, 2], &out).unwrap();
    let (paths, errors) = (report.paths, report.errors);
    assert!(errors.is_empty());
    assert_eq!(paths, ["run-000002.a2run2", "run-000000.a2run2", "run-000002.a2run2"].map(|name| out.join(name)));
    assert_eq!(std::fs::read(&paths[0]).unwrap(), files[2]);
    assert_eq!(std::fs::read(&paths[1]).unwrap(), files[0]);
    let error = pack.extract([1, 0], &out).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists));
    assert!(matches!(pack.extract([1, 3], &out).unwrap_err().kind(), ErrorKind::IndexOutOfBounds { .. }));
    assert_eq!(names(&out), ["run-000000.a2run2", "run-000002.a2run2"]);
}

#[test]
fn extract_skips_unreadable_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = build(&files(), 8, NONE, None);
    for index in [0, 2] {
        let offset = number::<8>(&bytes, entry_offset(index)) as usize;
        bytes[offset + 9] ^= 1;
    }
    let pack = PackReader::from_bytes(bytes).unwrap();
    let report = pack.extract([2, 1, 0, 1], folder.path()).unwrap();
    assert_eq!(report.paths, vec![folder.path().join("run-000001.a2run2"); 2]);
    let runs: Vec<_> = report.errors.iter().map(|error| error.location().unwrap().run).collect();
    assert_eq!(runs, [Some(0), Some(2)]);
    assert_eq!(std::fs::read(&report.paths[0]).unwrap(), files()[1]);
}

#[test]
fn a_pack_without_runs_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out.a2pack"));
    std::fs::create_dir(&input).unwrap();
    std::fs::write(input.join("readme.txt"), "no run").unwrap();
    let pack = || pack_folder(&input, &output, &PackOptions::default(), &(), never());
    let error = pack().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound));
    std::fs::write(input.join("a.bin"), "A2T1").unwrap();
    let report = pack().unwrap();
    assert_eq!((report.packed, report.rejected, report.ignored), (0, 1, 1));
    assert_eq!(names(folder.path()), ["in"]);
}

#[test]
fn lines_do_not_depend_on_the_number_of_threads() {
    let mut files = files();
    files.push(encode_run(&sample_run(5000, None), RunFormat::A2run2).unwrap());
    files.push(encode_run(&sample_run(0, None), RunFormat::A2run2).unwrap());
    let num_steps = 20 + 3 + 40 + 5000;
    let packs =
        Compression::ALL.map(|compression| PackReader::from_bytes(build(&files, 8, compression, None)).unwrap());
    for (by_step, compact) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut expected: Option<Vec<u8>> = None;
        for (pack, workers) in packs.iter().flat_map(|pack| [(pack, 1), (pack, 3)]) {
            let mut lines = Vec::new();
            let options = JsonlOptions { by_step, compact, workers: Some(workers) };
            let report = pack.write_jsonl(&mut lines, &options, &(), never()).unwrap();
            assert_eq!((report.num_runs, report.num_steps, report.num_bytes), (5, num_steps, lines.len() as u64));
            assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count() as u64, if by_step { num_steps } else { 5 });
            assert_eq!(expected.get_or_insert_with(|| lines.clone()), &lines);
        }
    }
}
