use super::a2pack as run;
use a2store::format::{PackReader, RunFormat, encode_run};
use a2store::run::RunMeta;
use a2store::{Board, Move, Run};
use std::path::Path;

/// Runs a command line and returns its exit status. A word that begins with `@` is a file name in `folder`.
fn status(folder: &Path, line: &str) -> u8 {
    let word = |word: &str| match word.strip_prefix('@') {
        Some(name) => folder.join(name).to_str().unwrap().to_owned(),
        None => word.to_owned(),
    };
    run(["a2pack", "-q"].map(str::to_owned).into_iter().chain(line.split(' ').map(word)))
}

fn run_file(format: RunFormat) -> Vec<u8> {
    let mut steps = Run::builder(1);
    steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
    let meta = RunMeta { engine: Some("\x1b[31mred".into()), ..RunMeta::default() };
    encode_run(&steps.finish(meta, Board(0x2100_0000_0000_0000)).unwrap(), format).unwrap()
}

#[test]
fn statuses_tell_what_went_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::create_dir(folder.join("in")).unwrap();
    std::fs::write(folder.join("in/a.a2run2"), run_file(RunFormat::A2run2)).unwrap();
    std::fs::write(folder.join("in/b.bin"), run_file(RunFormat::A2t1)).unwrap();
    let status = |line: &str| status(folder, line);

    assert_eq!(status("pack --input @in --output @x --align 8"), 0);
    assert_eq!(status("pack --input @in --output @z --compress zstd --workers 1 --json"), 0);
    for pack in ["@x", "@z"] {
        assert_eq!(status(&format!("validate --packfile {pack}")), 0);
        assert_eq!(status(&format!("validate --packfile {pack} --sample 1 --json")), 0);
        assert_eq!(status(&format!("stats --packfile {pack}")), 0);
        assert_eq!(status(&format!("stats --packfile {pack} --json")), 0);
        assert_eq!(status(&format!("inspect --packfile {pack} --index 1")), 0);
        assert_eq!(status(&format!("inspect --packfile {pack} --index 0 --json")), 0);
    }
    assert_eq!(status("to-jsonl --packfile @x --output @runs --runs-only --parallel --no-progress"), 0);
    assert_eq!(status("to-jsonl --packfile @z --output @steps --by-step --compact --workers 2"), 0);
    for lines in ["runs", "steps"] {
        assert_eq!(std::fs::read_to_string(folder.join(lines)).unwrap().lines().count(), 2);
    }
    assert_eq!(status("to-jsonl --packfile @x --output @steps --steps"), 0);
    assert_eq!(status("pack --input @in --output @y --align 8192 --entry-crc"), 0);
    assert_eq!(status("extract --packfile @x --indices 1,,0, --output @out"), 0);
    assert_eq!(std::fs::read(folder.join("out/run-000001.a2run2")).unwrap(), run_file(RunFormat::A2t1));
    std::fs::remove_file(folder.join("y")).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();

    // Wrong usage.
    for line in [
        "extract --packfile @x --indices 1 --output @out",
        "extract --packfile @x --indices 2 --output @new",
        "extract --packfile @x --indices one --output @new",
        "inspect --packfile @x --index 2",
        "stats --packfile @none",
        "pack --input @none --output @y",
        "pack --input @x --output @y",
        "pack --input @in --output @in",
        "pack --input @in --output @y --align 0",
        "pack --input @in --output @y --align 1048577",
        "pack --input @empty --output @y",
        "pack --input @in --output @y --compress gzip",
        "pack --input @in --output @y --workers 0",
        "to-jsonl --packfile @x --output @runs --by-step --runs-only",
        "unpack",
    ] {
        assert_eq!(status(line), 2, "{line}");
    }
    assert!(!folder.join("y").exists() && !folder.join("new").exists());

    // Problems with the data.
    std::fs::write(folder.join("in/c.bin"), "A2T1").unwrap();
    assert_eq!(status("pack --input @in --output @y"), 1);
    assert_eq!(PackReader::open(folder.join("y")).unwrap().len(), 2);
    let mut bytes = std::fs::read(folder.join("x")).unwrap();
    let offset = PackReader::open(folder.join("x")).unwrap().get_slice(0).unwrap().offset as usize;
    bytes[offset] ^= 1;
    std::fs::write(folder.join("x"), &bytes).unwrap();
    bytes[0] ^= 1;
    std::fs::write(folder.join("header"), &bytes).unwrap();
    for line in ["validate --packfile @x", "validate --packfile @header"] {
        assert_eq!((status(line), status(&format!("{line} --json"))), (2, 2), "{line}");
    }
    for line in [
        "extract --packfile @x --indices 0,1 --output @sound",
        "inspect --packfile @x --index 0",
        "stats --packfile @header",
        "to-jsonl --packfile @x --output @runs",
    ] {
        assert_eq!(status(line), 1, "{line}");
    }
    assert_eq!(std::fs::read_to_string(folder.join("runs")).unwrap().lines().count(), 1);
    let sound: Vec<_> =
        std::fs::read_dir(folder.join("sound")).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(sound, ["run-000001.a2run2"]);
    // If no file is a run, the pack stays as it is.
    std::fs::write(folder.join("empty/a.bin"), "A2T1").unwrap();
    assert_eq!(status("pack --input @empty --output @y"), 1);
    assert_eq!(PackReader::open(folder.join("y")).unwrap().len(), 2);
}
