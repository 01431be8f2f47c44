use super::layout::{CRC_LEN, MIN_RUN_LEN};
use super::*;
use crate::board::{Board, Move};
use crate::error::{Error, ErrorKind};
use crate::format::source::{RunSource, SourceRun};
use crate::format::tests::samples::{as_rows_hold, game, runs};
use crate::run::{Branches, Run, RunMeta, RunStep};
use proptest::prelude::*;
use std::path::Path;

fn write(path: &Path, runs: &[Run]) {
    let mut writer = PackDatWriter::create(path).unwrap();
    runs.iter().for_each(|run| writer.push(run).unwrap());
    writer.finish().unwrap();
}

fn packed(runs: &[Run]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack.dat");
    write(&path, runs);
    std::fs::read(path).unwrap()
}

/// Returns a file with a change and a repaired checksum.
fn changed(runs: &[Run], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = packed(runs);
    bytes.truncate(bytes.len() - CRC_LEN);
    change(&mut bytes);
    let crc = crc32c::crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

fn quantised(value: f32) -> f32 {
    let value = if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
    (value * 65535.0 + 0.5).floor() / 65535.0
}

#[track_caller]
fn refused(bytes: Vec<u8>, message: &str) {
    let error = PackDat::from_bytes(bytes).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Header { .. }), "{error:?}");
    assert!(error.to_string().contains(message), "{error}");
}

#[test]
fn rows_match_the_specification() {
    let mut steps = Run::builder(2);
    let branches = Branches { values: [0.25, 0.5, 7.0, 0.00001], legal: 0b1011 };
    steps.push(Board(0x1122_3344_5566_7788), Move::Down, Some(branches));
    steps.push(Board(1), Move::Right, None);
    let run = steps.finish(RunMeta { engine: Some("ab".into()), ..RunMeta::default() }, None).unwrap();
    let bytes = packed(&[run]);
    let row = [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0b1011];
    let values = [0x00, 0x40, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(bytes[28..60], [&row[..], &values].concat());
    assert_eq!(
        bytes[60..92],
        [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(bytes[..28], [&b"2048\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x5c\0\0\0\0\0\0\0"[..]].concat());
    assert_eq!(bytes.len(), 92 + MIN_RUN_LEN + 2 + CRC_LEN);
}

#[test]
fn rejects_every_truncation_and_flipped_bit() {
    let bytes = packed(&[game(1, 3), game(2, 2)]);
    for len in 0..bytes.len() {
        assert!(PackDat::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
    }
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = PackDat::from_bytes(flipped).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Header { .. } | ErrorKind::Checksum { .. }), "bit {bit}: {error:?}");
    }
    assert!(PackDat::from_bytes([&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn rejects_an_inconsistent_header_with_a_valid_checksum() {
    let runs = [game(1, 3), game(2, 2)];
    let end = 28 + 5 * 32;
    refused(changed(&runs, |bytes| bytes[0] = b'3'), "byte 0: magic: expected 2048");
    refused(changed(&runs, |bytes| bytes[4] = 2), "byte 4: version: expected 1, found 2");
    refused(changed(&runs, |bytes| bytes[8..12].fill(0xff)), "byte 8: num_runs: expected at most 2");
    refused(changed(&runs, |bytes| bytes[8] = 1), "end of the runs");
    refused(changed(&runs, |bytes| bytes[12..20].fill(0xff)), "byte 12: num_steps: expected at most as many as");
    for num_steps in [1 << 59, (1 << 59) - 1, 1 << 32, 6] {
        let lie = |bytes: &mut Vec<u8>| bytes[12..20].copy_from_slice(&u64::to_le_bytes(num_steps));
        assert!(PackDat::from_bytes(changed(&runs, lie)).is_err(), "{num_steps}");
    }
    for offset in [0, 28, end as u64 - 1, end as u64 + 1, u64::MAX] {
        let lie = |bytes: &mut Vec<u8>| bytes[20..28].copy_from_slice(&offset.to_le_bytes());
        refused(changed(&runs, lie), "byte 20: metadata_offset: expected 188, the end of the rows");
    }
    refused(changed(&runs, |bytes| bytes[end] = 1), "byte 188: id of a run: expected 0, in order, found 1");
    refused(changed(&runs, |bytes| bytes[end + 24..end + 26].fill(0xff)), "engine: expected 65535 bytes");
}

#[test]
fn a_damaged_run_does_not_affect_the_others() {
    let runs = [game(1, 3), game(2, 2), game(3, 4)];
    let end = 28 + 9 * 32;
    let second = end + MIN_RUN_LEN + runs[0].meta().engine.as_ref().unwrap().len();
    let open = |change: &dyn Fn(&mut Vec<u8>)| PackDat::from_bytes(changed(&runs, change)).unwrap();
    let error_of_second = |change: &dyn Fn(&mut Vec<u8>)| {
        let pack = open(change);
        assert_eq!(pack.decode(0).unwrap(), as_rows_hold(&runs[0], quantised));
        assert_eq!(pack.decode(2).unwrap(), as_rows_hold(&runs[2], quantised));
        pack.decode(1).unwrap_err().to_string()
    };
    let row = 28 + 3 * 32;
    let cases: [(usize, u8, &str); 5] = [
        (row + 16, 4, "run 1: byte 140 (step 0): move: expected 0..=3, found 4"),
        (row + 32 + 17, 16, "run 1: byte 173 (step 1): ev_mask: expected 0..=15, found 16"),
        (row + 8, 2, "run 1: byte 132 (step 0): row: expected step 0 of run 1, found step 0 of run 2"),
        (row + 32 + 12, 3, "row: expected step 1 of run 1, found step 3 of run 1"),
        (second + 8, 200, "steps of the run: expected steps within the 9 of the file, found 200 from step 3 on"),
    ];
    for (offset, byte, message) in cases {
        let error = error_of_second(&|bytes: &mut Vec<u8>| bytes[offset] = byte);
        assert!(error.contains(message), "{error}");
    }
    // A wrong place, in the file or not, is corrected by the ids of the rows.
    for (offset, byte) in [(second + 4, 0), (second + 4, 4), (second + 4, 9), (second + 7, 255)] {
        let pack = open(&|bytes: &mut Vec<u8>| bytes[offset] = byte);
        (0..3).for_each(|index| assert_eq!(pack.decode(index).unwrap(), as_rows_hold(&runs[index], quantised)));
    }
    let pack = open(&|bytes: &mut Vec<u8>| bytes[end + 26] = 0xff);
    let error = pack.decode(0).unwrap_err().to_string();
    assert!(error.starts_with(&format!("run 0: byte {}: engine: expected UTF-8", end + 26)), "{error}");
    assert!(pack.decode(1).is_ok());
    assert!(matches!(pack.decode(3).unwrap_err().kind(), ErrorKind::IndexOutOfBounds { index: 3, len: 3 }));
}

#[test]
fn a_rejected_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack.dat");
    let mut writer = PackDatWriter::create(&path).unwrap();
    writer.push(&game(1, 5)).unwrap();
    let refuse = |writer: &mut PackDatWriter, run: &Run, message: &str| {
        let error = writer.push(run).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Argument { .. }) && error.to_string().contains(message), "{error}");
    };
    let meta = RunMeta { engine: Some("x".repeat(65_536)), ..RunMeta::default() };
    refuse(&mut writer, &Run::builder(0).finish(meta, None).unwrap(), "at most 65535 bytes");
    let step = |index, chosen| RunStep { index, board: Board(1).into(), chosen, branches: None };
    let mut steps = Run::builder(1);
    steps.push_step(step(0, None)).unwrap();
    refuse(&mut writer, &steps.finish(RunMeta::default(), None).unwrap(), "a run without unknown moves");
    let mut steps = Run::builder(1);
    steps.push_step(step(3, Some(Move::Up))).unwrap();
    refuse(&mut writer, &steps.finish(RunMeta::default(), None).unwrap(), "all its steps");
    writer.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), packed(&[game(1, 5)]));
    assert!(matches!(PackDatWriter::create(&path).err().unwrap().kind(), ErrorKind::Io { .. }));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn raw_values_are_normalized() {
    let mut steps = Run::builder(1);
    steps.push(Board(1), Move::Up, Some(Branches { values: [-5.0, 10.0, 0.0, 15.0], legal: 0b1011 }));
    let run = steps.finish(RunMeta { raw_evs: true, ..RunMeta::default() }, None).unwrap();
    let back = PackDat::from_bytes(packed(&[run])).unwrap().decode(0).unwrap();
    assert_eq!(back.ev_values()[0], [1.0, quantised(0.75), 0.0, 1.0]);
    assert!(!back.meta().raw_evs);
}

proptest! {
    #[test]
    fn runs_round_trip_up_to_what_the_format_holds(runs in prop::collection::vec(runs(), 0..5)) {
        let bytes = packed(&runs);
        let pack = PackDat::from_bytes(bytes.clone()).unwrap();
        prop_assert_eq!(pack.num_runs(), runs.len());
        prop_assert_eq!(pack.num_steps(), runs.iter().map(|run| run.num_steps() as u64).sum::<u64>());
        let mut decoded = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let back = pack.decode(index).unwrap();
            prop_assert_eq!(&back, &as_rows_hold(run, quantised));
            prop_assert!(matches!(pack.read(index).unwrap(), SourceRun::Run(read) if read == back));
            decoded.push(back);
        }
        let again = PackDat::from_bytes(packed(&decoded)).unwrap();
        for (index, run) in decoded.iter().enumerate() {
            prop_assert_eq!(&again.decode(index).unwrap(), run);
        }
    }

    #[test]
    fn damaged_bytes_with_a_valid_checksum_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let bytes = changed(&[game(1, 4), game(2, 3)], |bytes| {
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
        });
        if let Ok(pack) = PackDat::from_bytes(bytes) {
            for index in 0..pack.num_runs() {
                let _ = (pack.num_bytes(index), pack.locate(index, Error::decode(0, "row", "", "")));
                if let Ok(run) = pack.decode(index) {
                    prop_assert!(run.num_steps() as u64 <= pack.num_steps());
                }
            }
        }
    }
}
