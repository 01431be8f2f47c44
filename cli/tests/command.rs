//! Tests of the built command `a2store`.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)] // The tests of the core use the rest.
#[path = "../../tests/it/support.rs"]
mod support;

use crate::support::write_runs;
use a2store::board::WideBoard;
use a2store::format::{RunFormat, encode_run};
use a2store::run::RunMeta;
use a2store::{Archive, Board, CancellationToken, IngestOptions, Move, Phases, Run};
use a2store_explore::{Report, ReportOptions};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn a2store(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_a2store")).args(args).current_dir(folder).output().unwrap()
}

#[track_caller]
fn stdout(folder: &Path, args: &[&str]) -> String {
    let output = a2store(folder, args);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{args:?}: {err}");
    assert_eq!(err, "", "{args:?}");
    out
}

#[track_caller]
/// Checks the status, and a part of the text on standard error.
fn says(folder: &Path, args: &[&str], status: i32, message: &str) {
    let output = a2store(folder, args);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
    assert!(err.contains(message), "{args:?}: {err}");
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn games_are_simulated_ingested_and_queried() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let simulate = ["simulate", "--runs", "5", "--seed", "1", "--fast", "-o", "runs", "--label", "e", "--json"];
    let simulated = json(&stdout(folder, &simulate));
    assert_eq!(simulated["runs"], 5);
    let ingested = json(&stdout(folder, &["ingest", "runs", "games.a2", "--json"]));
    assert_eq!((&ingested["accepted"], &ingested["version"]), (&5.into(), &2.into()));
    assert_eq!(ingested["num_steps"], simulated["num_steps"]);
    assert!(stdout(folder, &["ingest", "runs", "games.a2"]).starts_with("0 runs added, 5 duplicates, 0 rejected"));

    says(folder, &["export", "games.a2", "--where", "false", "--format", "npy", "-o", "none"], 0, "no runs to export");
    std::fs::create_dir(folder.join("empty")).unwrap();
    says(folder, &["ingest", "empty", "games.a2"], 0, "no runs found");

    let info = json(&stdout(folder, &["info", "games.a2", "--json"]));
    assert_eq!((&info["num_runs"], &info["engines"][0]["engine"]), (&5.into(), &"e".into()));
    let info = stdout(folder, &["info", "games.a2"]);
    assert!(info.contains("runs      5\n") && info.contains("\n| e "), "{info}");
    assert_eq!(json(&stdout(folder, &["history", "games.a2", "--json"]))[0]["added_runs"], 5);
    assert!(stdout(folder, &["history", "games.a2"]).lines().nth(1).unwrap().trim_start().starts_with("2  "));
    assert!(stdout(folder, &["history", "games.a2"]).contains("ingest"));

    let by_name =
        ["sql", "games.a2", "SELECT count(*) AS n FROM steps WHERE engine = $e", "-p", "e=e", "--format", "json"];
    assert_eq!(json(&stdout(folder, &by_name))["n"], ingested["num_steps"]);
    let several = ["sql", "games.a2", "SELECT $b + $a AS x", "-p", "b=40", "-p", "a=2.5", "--format", "csv"];
    assert_eq!(stdout(folder, &several), "x\n42.5\n");
    let table = stdout(folder, &["sql", "games.a2", "SELECT run_id FROM runs", "--max-rows", "2"]);
    assert!(table.contains("run_id") && table.ends_with("the first 2 rows\n"), "{table}");
    let plan =
        stdout(folder, &["sql", "games.a2", "SELECT board FROM steps WHERE move = $m", "-p", "m=1", "--explain"]);
    assert!(plan.contains("DataSourceExec") && plan.contains("move@1 = 1"), "{plan}");
    let older = ["sql", "games.a2", "SELECT count(*) AS n FROM runs", "--version", "1", "--format", "csv"];
    assert_eq!(stdout(folder, &older), "n\n0\n");
}

#[test]
fn exit_status_tells_bad_data_from_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    says(folder, &[], 2, "Usage");
    says(folder, &["nothing"], 2, "unrecognized subcommand");
    says(folder, &["info", "games.a2"], 2, "games.a2: No such file");
    says(folder, &["ingest", "runs", "games.a2"], 2, "runs: No such file");
    assert!(!folder.join("games.a2").exists(), "an archive was created for nothing");
    write_runs(folder);
    std::fs::write(folder.join("runs/bad.bin"), b"A2T1").unwrap();
    says(folder, &["ingest", "--strict", "runs", "games.a2"], 1, "bad.bin: byte 4: version");
    says(folder, &["ingest", "runs", "games.a2"], 1, "bad.bin: byte 4: version");
    says(folder, &["sql", "games.a2", "SELECT nothing FROM steps"], 2, "nothing");
    says(folder, &["sql", "games.a2", "SELECT $x", "-p", "y=1"], 2, "no value for the parameters $x");
    says(folder, &["sql", "games.a2", "SELECT 1", "-p", "oops"], 2, "expected NAME=VALUE");
    says(folder, &["info", "games.a2", "--version", "9"], 2, "version 9: expected 1..=2");
    says(folder, &["info", "runs"], 2, "not an archive");
    let inside = ["sql", "games.a2", "SELECT 1", "--format", "csv", "-o", "games.a2/steps/x.parquet"];
    says(folder, &inside, 2, "expected a path outside of the archive");
    for entry in std::fs::read_dir(folder.join("games.a2/steps")).unwrap() {
        std::fs::write(entry.unwrap().path(), b"PAR1").unwrap();
    }
    says(folder, &["sql", "games.a2", "SELECT board FROM steps"], 1, "damaged: length of the file: expected");
    let manifest = folder.join("games.a2/_versions/18446744073709551613.json");
    std::fs::write(manifest, b"{}").unwrap();
    says(folder, &["info", "games.a2"], 1, "damaged");
}

#[test]
fn reports_in_json_have_these_keys() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_runs(folder);
    std::fs::write(folder.join("runs/bad.bin"), b"A2T1").unwrap();
    let report = |line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        json(&String::from_utf8(a2store(folder, &args).stdout).unwrap())
    };
    let keys = |report: &serde_json::Value| {
        let mut keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        keys.join(" ")
    };
    let ingested = report("ingest runs games.a2");
    let expected = "accepted duplicates errors ignored num_bytes num_steps rejected secs twins version";
    assert_eq!(keys(&ingested), expected);
    assert_eq!(keys(&ingested["errors"][0]), "kind message offset path run step");
    assert_eq!((&ingested["errors"][0]["path"], &ingested["errors"][0]["offset"]), (&"runs/bad.bin".into(), &4.into()));
    for (line, expected) in [
        ("simulate --runs 1 --fast --out more", "num_bytes num_steps runs secs"),
        ("export games.a2 --format a2pack --out games.a2pack", "errors num_files num_steps path runs secs"),
        ("convert runs/alpha --format jsonl --out games.jsonl", "errors num_files num_steps path runs secs"),
        ("compact games.a2", "bytes_after bytes_before files_after files_before num_rows version"),
        ("expire games.a2", "dry_run first_version num_bytes num_files num_versions paths tags version"),
        ("restore games.a2", "adopted adopted_runs damaged done lost new_version version"),
    ] {
        assert_eq!(keys(&report(line)), expected, "{line}");
    }
}

#[test]
fn a_closed_pipe_is_success() {
    let folder = tempfile::tempdir().unwrap();
    write_runs(folder.path());
    stdout(folder.path(), &["ingest", "runs", "games.a2"]);
    for format in ["table", "csv", "json", "parquet", "arrow"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_a2store"))
            .args(["sql", "games.a2", "SELECT * FROM steps", "--format", format])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn a_full_standard_error_stops_no_work() {
    let folder = tempfile::tempdir().unwrap();
    let runs = write_runs(folder.path());
    std::fs::write(runs.join("readme.txt"), "of unknown content").unwrap();
    let status = |args: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_a2store"));
        command.args(args).current_dir(folder.path()).stdout(Stdio::null()).stderr(full).status().unwrap().code()
    };
    assert_eq!(status(&["ingest", "runs", "games.a2"]), Some(0));
    assert_eq!(status(&["convert", "runs", "--format", "npy", "-o", "npy"]), Some(0));
    assert_eq!(status(&["info", "missing.a2"]), Some(2));
    assert!(folder.path().join("npy/steps.npy").exists());
}

/// The page adds up the rows of the summary.
#[test]
fn the_summary_of_a_report_has_every_group() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, cancel) = (folder.path().join("runs"), CancellationToken::never());
    std::fs::create_dir(&runs).unwrap();
    for engine in 0..1001 {
        let mut steps = Run::builder(1);
        steps.push(Board(0x1100_0000_0000_0000), Move::Left, None);
        let meta = RunMeta { engine: Some(format!("e{engine}")), ..RunMeta::default() };
        let run = steps.finish(meta, WideBoard::from(Board(0x2100_0000_0000_0000))).unwrap();
        std::fs::write(runs.join(engine.to_string()), encode_run(&run, RunFormat::A2run2).unwrap()).unwrap();
    }
    let mut archive = Archive::create(folder.path().join("games.a2"), Phases::default()).unwrap();
    archive.ingest([&runs], &IngestOptions::default(), &(), cancel).unwrap();
    let report = Report::of(&archive, &ReportOptions::default(), &(), cancel).unwrap();
    assert_eq!(report.tables[0].rows.as_ref().unwrap().num_rows(), 1001);
}
