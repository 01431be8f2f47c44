//! Every truncation and every flipped bit of small files. Each yields a typed error or the original run, never another.

use super::folders::{Files, dataset, session, take};
use super::run_files::{RunV2, with_magic};
use super::well_formed::{check, same};
use super::{scratch, seeds};
use a2store::format::{Dataset, RunFormat, RunSource, Session, SessionOptions, decode_run, encode_run};
use a2store::{Error, Run};
use std::path::Path;

/// The outcomes of all changes.
#[derive(Debug, Default)]
struct Found {
    errors: usize,
    runs: usize,
}

/// Returns whether an error is about content, with an offset (if any) inside the file.
fn is_about_content(error: &Error, len: usize) -> bool {
    matches!(error.kind_name(), "decode" | "checksum" | "header")
        && error.location().and_then(|location| location.offset).is_none_or(|at| at <= len as u64)
}

#[test]
fn a_truncated_run_file_is_an_error() {
    for run in seeds::games().iter().chain([&with_magic()]) {
        for format in RunFormat::ALL {
            let bytes = encode_run(run, format).unwrap();
            for len in 0..bytes.len() {
                let error = decode_run(&bytes[..len]).unwrap_err();
                assert!(
                    is_about_content(&error, len) && error.location().unwrap().offset.is_some(),
                    "{len}: {error:?}"
                );
            }
        }
    }
}

#[test]
fn a_flipped_bit_of_an_a2t1_is_an_error() {
    let mut num_flips = 0;
    for run in seeds::games() {
        let bytes = encode_run(&run, RunFormat::A2t1).unwrap();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = decode_run(&flipped).unwrap_err();
            assert!(is_about_content(&error, bytes.len()), "bit {bit}: {error:?}");
            num_flips += 1;
        }
    }
    assert!(num_flips > 7_000);
}

/// The format a2run2 has no checksum. An independent decoder must read the same run from the changed bytes.
#[test]
fn a_flipped_bit_of_an_a2run2_is_an_error_or_decodes_like_an_independent_decoder() {
    let mut found = Found::default();
    for run in seeds::games().iter().chain([&with_magic()]) {
        let bytes = encode_run(run, RunFormat::A2run2).unwrap();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = postcard::take_from_bytes::<RunV2>(&flipped);
            match decode_run(&flipped) {
                Ok((decoded, format)) => {
                    assert_eq!(format, RunFormat::A2run2);
                    check(&decoded).unwrap();
                    assert!(!same(&decoded, run));
                    let (expected, rest) = expected.unwrap();
                    assert!(rest.is_empty());
                    expected.compare(&decoded).unwrap();
                    found.runs += 1;
                }
                Err(error) => {
                    assert!(is_about_content(&error, bytes.len()), "bit {bit}: {error:?}");
                    found.errors += 1;
                }
            }
        }
    }
    assert!(found.runs > 10_000 && found.errors > 2_000, "{found:?}");
}

fn write(folder: &Path, files: &Files) {
    std::fs::create_dir(folder).unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

fn dataset_runs(folder: &Path) -> Result<Vec<Result<Run, Error>>, Error> {
    let dataset = Dataset::open(folder)?;
    Ok((0..dataset.num_runs()).map(|index| dataset.decode(index)).collect())
}

fn session_runs(folder: &Path) -> Result<Vec<Result<Run, Error>>, Error> {
    let session = Session::open(folder)?;
    Ok((0..session.num_runs()).map(|index| session.decode(index)).collect())
}

/// Truncates each file to each shorter length, and restores it.
fn every_truncation(folder: &Path, read: impl Fn(&Path) -> Result<Vec<Result<Run, Error>>, Error>) -> Found {
    let files = take(folder);
    write(folder, &files);
    let whole: Vec<Run> = read(folder).unwrap().into_iter().map(Result::unwrap).collect();
    assert!(!whole.is_empty());
    let mut found = Found::default();
    for (name, bytes) in &files {
        let path = folder.join(name);
        for len in 0..bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            match read(folder) {
                Ok(runs) => {
                    assert_eq!(runs.len(), whole.len(), "{name}, {len} bytes");
                    for (run, expected) in runs.iter().zip(&whole) {
                        assert!(run.as_ref().is_ok_and(|run| same(run, expected)), "{name}, {len} bytes: {run:?}");
                    }
                    // Only a final newline may be missing.
                    assert!(bytes[len..].trim_ascii().is_empty(), "{name}, {len} bytes");
                    found.runs += 1;
                }
                Err(error) => {
                    assert!(is_about_content(&error, len.max(10)), "{name}, {len} bytes: {error:?}");
                    found.errors += 1;
                }
            }
        }
        std::fs::write(&path, bytes).unwrap();
    }
    found
}

#[test]
fn a_truncated_file_of_a_dataset_is_an_error() {
    let (temp, games) = (scratch(), seeds::games());
    let folder = temp.path().join("dataset");
    for shard_rows in [None, Some(4)] {
        dataset(&folder, &games[1..4], shard_rows).unwrap();
        if shard_rows.is_some() {
            std::fs::remove_file(folder.join("manifest.json")).unwrap();
        }
        let found = every_truncation(&folder, dataset_runs);
        assert!(found.errors > 16_384 && found.runs < 2, "{found:?}");
        take(&folder);
    }
}

#[test]
fn a_truncated_file_of_a_session_is_an_error() {
    let (temp, games) = (scratch(), seeds::games());
    let folder = temp.path().join("session");
    for options in [SessionOptions::default(), SessionOptions::default().with_action(true).with_rotate_rows(4)] {
        session(&folder, &games[1..4], options).unwrap();
        let found = every_truncation(&folder, session_runs);
        assert!(found.errors > 8_192 && found.runs == 0, "{found:?}");
        take(&folder);
    }
}

#[test]
fn a_dataset_without_its_last_shards_loses_only_their_runs() {
    let (temp, games) = (scratch(), seeds::games());
    let folder = temp.path().join("dataset");
    dataset(&folder, &games[1..6], Some(7)).unwrap();
    std::fs::remove_file(folder.join("manifest.json")).unwrap();
    let whole: Vec<Run> = dataset_runs(&folder).unwrap().into_iter().map(Result::unwrap).collect();
    let num_rows: usize = whole.iter().map(Run::num_steps).sum();
    let mut lost_before = 0;
    for left in (1..num_rows.div_ceil(7)).rev() {
        std::fs::remove_file(folder.join(format!("steps-{left:05}.npy"))).unwrap();
        let runs = dataset_runs(&folder).unwrap();
        let (mut end, mut lost) = (0, 0);
        for (run, expected) in runs.iter().zip(&whole) {
            end += expected.num_steps();
            match run {
                Ok(run) => assert!(end <= 7 * left && same(run, expected)),
                Err(error) => {
                    assert!(end > 7 * left && is_about_content(error, usize::MAX), "{error:?}");
                    lost += 1;
                }
            }
        }
        assert!(lost >= lost_before && lost > 0);
        lost_before = lost;
    }
    std::fs::remove_file(folder.join("steps-00000.npy")).unwrap();
    assert!(is_about_content(&Dataset::open(&folder).unwrap_err(), 0));
}

/// Only the manifest has a checksum of the rows.
#[test]
fn opening_a_dataset_finds_a_flipped_bit() {
    let (temp, games) = (scratch(), seeds::games());
    let folder = temp.path().join("dataset");
    dataset(&folder, &games[2..3], None).unwrap();
    let mut found = 0;
    for name in ["steps.npy", "metadata.db"] {
        let path = folder.join(name);
        let bytes = std::fs::read(&path).unwrap();
        // In the database, only one bit per byte, to save time.
        for bit in (0..8 * bytes.len()).filter(|bit| name == "steps.npy" || bit % 8 == bit / 8 % 8) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, flipped).unwrap();
            let error = Dataset::open(&folder).unwrap_err();
            assert!(is_about_content(&error, bytes.len()), "{name}, bit {bit}: {error:?}");
            found += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(found > 18_000, "{found}");
    Dataset::open(&folder).unwrap();
}
